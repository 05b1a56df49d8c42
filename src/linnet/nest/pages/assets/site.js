// What the pages do beyond showing text: find, size, open. Everything here works on what the
// page already holds; nothing is loaded. A little longer than other files: a page has one script.
"use strict";

const $ = (query, root = document) => root.querySelector(query);
const $$ = (query, root = document) => [...root.querySelectorAll(query)];

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// --- finding ---------------------------------------------------------------------

function find(form, items, words, keep = () => true) {
  if (!form || !items.length) return;
  form.hidden = false;
  const output = $("output", form);
  const update = () => {
    const wanted = $("input", form).value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const item of items) {
      const text = words(item);
      item.hidden = !(wanted.every((word) => text.includes(word)) && keep(item));
      if (!item.hidden) shown += 1;
    }
    output.textContent = shown === items.length ? "" : `${shown} of ${items.length}`;
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update(); // a field may have kept its text over a reload
}

const filters = $("#find-models");
find(filters, $$("#models > .card"), (card) => card.dataset.words || "", (card) =>
  $$("select", filters).every((select) => {
    const held = (card.dataset[select.name] || "").split("|");
    return select.value === "" || held.includes(select.value);
  }));
find($("#find-parameters"), $$("#parameter-table tbody tr"), (row) => row.textContent.toLowerCase());

// --- source: what is pointed at, and lines in folded modules ------------------------------

const tip = make("div", { class: "tip", role: "tooltip", hidden: "" });
document.body.append(tip);
function showTip(event) {
  const over = event.target.closest?.(".source [title], .source [data-tip]");
  if (!over) {
    tip.hidden = true;
    return;
  }
  if (over.title) {
    over.dataset.tip = over.title;
    over.removeAttribute("title");
  }
  tip.textContent = over.dataset.tip;
  tip.hidden = false;
  const place = over.getBoundingClientRect();
  const below = place.bottom + 8 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(place.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below ? place.bottom + 6 : place.top - tip.offsetHeight - 6}px`;
}
document.addEventListener("mouseover", showTip);
document.addEventListener("focusin", showTip);
document.addEventListener("keydown", (event) => event.key === "Escape" && (tip.hidden = true));
addEventListener("scroll", () => (tip.hidden = true), { passive: true });

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = target?.closest("details");
  if (fold && !fold.open) {
    fold.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", reveal);
reveal();

for (const box of $$(".copy")) {
  if (!navigator.clipboard) break;
  const button = make("button", { type: "button" }, "copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText($("code", box).textContent);
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1200);
  });
  box.append(button);
}

// --- expressions over sizes ------------------------------------------------------------

function atom(a, env) {
  if (typeof a === "string") return number(a, env);
  const [p, q] = [dim(a[1], env), dim(a[2], env)];
  return a[0] === "/" ? Math.floor(p / q) : a[0] === "<" ? Math.min(p, q) : Math.max(p, q);
}
function number(name, env) {
  if (name.startsWith("*")) return env[name.slice(1)].reduce((a, b) => a * b, 1);
  return env[name];
}
function dim(d, env) {
  if (typeof d === "number") return d;
  if (typeof d === "string") return number(d, env);
  let total = 0;
  for (const [coefficient, ...atoms] of d) {
    total += atoms.reduce((product, a) => product * atom(a, env), coefficient);
  }
  return total;
}
function shape(items, env) {
  return items.flatMap((d) =>
    typeof d === "string" && d.startsWith("*") ? env[d.slice(1)] : [dim(d, env)]);
}
const dtype = (name, env) => (typeof env[name] === "string" ? env[name] : name);
function typeText(t, env) {
  if (typeof t === "string") return dtype(t, env);
  if (t[0] === "?") return `${typeText(t[1], env)}?`;
  const sizes = shape(t[1], env);
  return sizes.length ? `[${sizes.join(", ")}] ${dtype(t[2], env)}` : dtype(t[2], env);
}
function argument(a, env) {
  if (typeof a === "number") return a;
  if (typeof a === "string") return env[a] ?? a; // a size, or a dtype by name
  return a[0] === "s" ? shape(a[1], env) : dim(a, env);
}

// --- the model's page ------------------------------------------------------------------

const data = $("#data") && JSON.parse($("#data").textContent);
const state = { entry: null, sizes: {}, bits: 0, open: new Map() };

function environment() {
  return { ...data.generics, ...state.sizes };
}

const human = (bytes) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < 4) {
    bytes /= 1000;
    at += 1;
  }
  return at ? `${bytes.toFixed(1)} ${units[at]}` : `${Math.round(bytes)} B`;
};

// Bits of a weight; what is packed has its share of the scales in them.
function weightBits(kept, dtypeName, scale, env) {
  if (!state.bits || kept === "dense") return data.bits[dtype(dtypeName, env)];
  return (kept === "eight" ? 8 : state.bits) + scale;
}

function memory() {
  const env = environment();
  let weights = 0;
  for (const [elements, type, kept, scale] of data.weights) {
    weights += (dim(elements, env) * weightBits(kept, type, scale, env)) / 8;
  }
  let [caches, fixed] = [0, 0];
  const longer = { ...env };
  for (const name of data.free) if (name !== "Batch") longer[name] = env[name] * 2;
  for (const [, elements, type] of data.states) {
    const bytes = (dim(elements, env) * data.bits[dtype(type, env)]) / 8;
    if (dim(elements, longer) > dim(elements, env)) caches += bytes;
    else fixed += bytes;
  }
  const entry = data.entries[state.entry];
  const width = data.dtype ? String(data.bits[env[data.dtype]] / 8) : "0";
  const work = Math.max(0, ...(entry.peak[width] || []).map((d) => dim(d, env)));
  return { weights, caches, fixed, work };
}

const PARTS = {
  weights: "weights",
  caches: "caches, growing with the context",
  fixed: "states of fixed size",
  work: "values at work",
};
const MACHINES = [["8 GB", 8e9], ["16 GB", 16e9], ["24 GB", 24e9], ["48 GB", 48e9], ["80 GB", 80e9], ["141 GB", 141e9]];

function drawMemory() {
  const amounts = memory();
  const total = Object.values(amounts).reduce((a, b) => a + b, 0);
  const bar = make("div", { class: "bar", "aria-hidden": "true" });
  const list = make("ul", { class: "amounts" });
  for (const [part, bytes] of Object.entries(amounts)) {
    if (!bytes) continue;
    const piece = make("div", { class: part });
    piece.style.flexBasis = `${(100 * bytes) / total}%`;
    bar.append(piece);
    list.append(make("li", {}, make("i", { class: part }), make("b", {}, human(bytes)), ` ${PARTS[part]}`));
  }
  const fits = make("p", { class: "fits" }, "Together ", make("b", {}, human(total)), ". Fits in ");
  for (const [name, bytes] of MACHINES) {
    const yes = total <= bytes * 0.95;
    fits.append(make("span", { class: yes ? "yes" : "no" }, yes ? `✓ ${name}` : name));
  }
  $("#memory").replaceChildren(bar, list, fits);
}

// --- controls ---------------------------------------------------------------------------

function steps(most) {
  const found = [];
  for (let n = 1; n < most; n *= 2) found.push(n);
  return [...found, most];
}

function control(name, label, values, start) {
  const output = make("output", {}, start.toLocaleString("en"));
  const range = make("input", { type: "range", min: 0, max: values.length - 1, step: 1, name });
  let at = values.findIndex((n) => n >= start);
  range.value = at < 0 ? values.length - 1 : at;
  state.sizes[name] = start;
  range.setAttribute("aria-valuetext", String(start));
  range.addEventListener("input", () => {
    state.sizes[name] = values[range.value];
    output.textContent = state.sizes[name].toLocaleString("en");
    range.setAttribute("aria-valuetext", output.textContent);
    update();
  });
  const line = make("span", { class: "top-line" }, make("span", {}, label), output);
  return make("label", { "data-size": name }, line, range);
}

function choice(label, options, chosen, change) {
  const select = make("select", {}, ...options.map(([value, text]) => {
    const option = make("option", { value }, text);
    option.selected = value === chosen;
    return option;
  }));
  select.addEventListener("change", () => {
    change(select.value);
    update();
  });
  return make("label", {}, label, select);
}

const LABELS = { Batch: "Batch (rows kept)", MaxSeq: "Context (MaxSeq)", S: "Tokens in the call (S)", B: "Batch of the call (B)", M: "Prompts in the call (M)" };

function buildControls() {
  const box = $("#controls");
  for (const name of data.free) {
    const most = Math.max(data.generics[name], name === "Batch" ? 256 : 1);
    box.append(control(name, LABELS[name] || name, steps(most), name === "MaxSeq" ? Math.min(4096, most) : data.generics[name]));
  }
  const own = new Set(Object.values(data.entries).flatMap((entry) => entry.own));
  const longest = data.generics.MaxSeq || 8192;
  for (const name of own) {
    if (name in state.sizes) continue;
    const start = data.check[name] ?? (name === "S" ? 8 : 1);
    box.append(control(name, LABELS[name] || name, steps(name === "S" ? longest : 256), start));
  }
  if (data.dtype) {
    const now = data.generics[data.dtype];
    state.sizes[data.dtype] = now;
    const names = ["bf16", "f16", "f32"].map((name) => [name, name]);
    box.append(choice(`Dtype (${data.dtype})`, names, now, (value) => (state.sizes[data.dtype] = value)));
  }
  if (data.weights.some(([, , kept]) => kept !== "dense")) {
    const kinds = [["0", "as they are"], ["8", "int8"], ["4", "int4 (embedding, head int8)"]];
    box.append(choice("Quantized weights", kinds, "0", (value) => (state.bits = Number(value))));
  }
  box.hidden = false;
  $("#memory").hidden = false;
}

// --- diagrams: the layout is that of linnet/nest/diagram/svg.py -------------------------------

// Narrower boxes where the window is, so that a phone shows a whole layer.
const box = () => (innerWidth < 640 ? 196 : 292);
const MARGIN = 6, PAD = 12, LINE = 17, RAIL = 11, CHARACTER = 6.1;

function svg(tag, attributes = {}, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const clip = (text, length) => (text.length <= length ? text : `${text.slice(0, Math.max(length - 1, 1))}…`);
const portText = ([name, type], env) => (name ? `${name} ` : "") + typeText(type, env);
const rails = (leaf) => (leaf.lanes ? 8 + RAIL * leaf.lanes : 0);
const gap = (outs) => LINE * outs.length + (outs.length ? 12 : 10);

function place(sheet, env, path, open) {
  const leaf = { sheet, params: sheet.p.map((p) => portText(p, env)), rows: [], rails: new Map(), lanes: 0 };
  sheet.r.forEach((row, position) => {
    const here = `${path}${position}`;
    const placed = {
      row, path: here, inner: [],
      outs: (row.o || []).map((p) => portText(p, env)),
      members: (row.m || []).map(([name, kind, type]) => [kind, `${name} ${typeText(type, env)}`]),
      repeat: row.x === undefined ? null : String(dim(row.x, env)),
    };
    if (open.has(here)) {
      if (row.t !== undefined) {
        const below = {};
        for (const [name, value] of Object.entries(row.b || {})) below[name] = argument(value, env);
        placed.inner.push(["", place(data.fns[row.t], below, `${here}/`, open)]);
      } else {
        (row.i || []).forEach(([name, inner], which) =>
          placed.inner.push([name, place(inner, env, which ? `${here}:${which}/` : `${here}/`, open)]));
      }
    }
    leaf.rows.push(placed);
  });
  measure(leaf);
  return leaf;
}

function headHeight({ row, members }) {
  const two = (row.k !== "plain" && row.k !== "state") || Boolean(row.l);
  return (two ? 42 : 27) + 15 * members.length;
}

function measure(leaf) {
  const ends = new Map();
  for (const [source, port, target] of leaf.sheet.w) {
    if (target === source + 1) continue;
    const key = `${source},${port}`;
    ends.set(key, Math.max(ends.get(key) || 0, target));
  }
  const order = [...ends].map(([key, end]) => [key.split(",").map(Number), end]);
  order.sort(([a], [b]) => a[0] - b[0] || a[1] - b[1]);
  const free = [];
  for (const [[source, port], end] of order) {
    let lane = free.findIndex((until) => until <= source);
    if (lane < 0) lane = free.length;
    free[lane] = end;
    leaf.rails.set(`${source},${port}`, lane);
  }
  leaf.lanes = free.length;
  let width = box();
  let y = gap(leaf.params);
  for (const placed of leaf.rows) {
    placed.height = headHeight(placed);
    for (const [name, inner] of placed.inner) {
      placed.height += inner.height + PAD + (name ? LINE : 0);
      width = Math.max(width, inner.width + 2 * PAD);
    }
    placed.y = y;
    y += placed.height + gap(placed.outs);
  }
  leaf.height = y + 22;
  leaf.width = width + rails(leaf);
}

function drawSheet(leaf, into, x, y, width) {
  const room = width - rails(leaf);
  const end = leaf.rows.length;
  const bottom = (i) => (i < 0 ? y : y + leaf.rows[i].y + leaf.rows[i].height);
  const top = (i) => (i === end ? y + leaf.height - 22 : y + leaf.rows[i].y);
  const outs = (i) => (i < 0 ? leaf.params : leaf.rows[i].outs);
  const arrivals = new Map();
  for (const [source, port, target] of leaf.sheet.w) {
    const start = bottom(source);
    const down = x + 16 + 9 * Math.min(port, 8);
    let path;
    if (target === source + 1) {
      path = `M${down} ${start}V${top(target) - 1}m-3.5 -5 3.5 5 3.5 -5`;
    } else {
      const rail = x + room + 8 + RAIL * leaf.rails.get(`${source},${port}`);
      const turn = start + LINE * (port + 1) + 1;
      const arrival = arrivals.get(target) || 0;
      arrivals.set(target, arrival + 1);
      const at = target === end ? top(end) + 9 : top(target) + 8 + 7 * Math.min(arrival, 3);
      path = `M${down} ${start}V${turn - 4}q0 4 4 4H${rail - 5}q5 0 5 5V${at - 5}q0 5 -5 5H${x + room + 1}m5 -3.5 -5 3.5 5 3.5`;
    }
    const wire = svg("path", { class: "wire", d: path });
    wire.append(svg("title", {}, outs(source)[port]));
    into.append(wire);
  }
  for (let source = -1; source < end; source += 1) {
    const texts = outs(source);
    texts.forEach((text, port) => {
      const left = x + 22 + 9 * Math.min(texts.length - 1, 8);
      const label = svg("text", { class: "value", x: left, y: bottom(source) + LINE * (port + 1) - 4 });
      const cut = text.indexOf("[") < 0 ? text.lastIndexOf(" ") + 1 : text.indexOf("[");
      if (cut > 0) label.append(svg("tspan", { class: "name" }, text.slice(0, cut)));
      label.append(text.slice(cut));
      into.append(label);
    });
  }
  for (const placed of leaf.rows) drawRow(placed, into, x, y + placed.y, room);
  into.append(svg("rect", { class: "end", x, y: top(end), width: room, height: 18, rx: 9 }));
  into.append(svg("text", { class: "endtext", x: x + room / 2, y: top(end) + 13 }, "result"));
}

function drawRow(placed, into, x, y, width) {
  const { row, height } = placed;
  const plain = row.k === "plain" || row.k === "state";
  const opens = row.t !== undefined || Boolean(row.i);
  const group = svg("g", { class: `row ${row.k}${opens ? " opens" : ""}` });
  if (placed.repeat !== null) {
    group.append(svg("rect", { class: "stack", x: x + 4, y: y + 4, width, height, rx: 7 }));
  }
  group.append(svg("rect", { class: "box", x, y, width, height, rx: 7 }));
  group.append(svg("path", { class: "mark", d: `M${x + 1.5} ${y + 7}v${headHeight(placed) - 14}` }));
  let right = x + width - 12;
  if (opens) {
    const turned = placed.inner.length > 0;
    const shape = turned ? `M${right - 8} ${y + 11}h8l-4 6z` : `M${right - 7} ${y + 10}v8l6 -4z`;
    group.append(svg("path", { class: "turn", d: shape }));
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    group.setAttribute("aria-expanded", String(turned));
    group.setAttribute("aria-label", `${row.l || row.n}${placed.repeat ? `, ${placed.repeat} times` : ""}`);
    group.dataset.path = placed.path;
    right -= 16;
  }
  if (placed.repeat !== null) {
    group.append(svg("text", { class: "repeat", x: right, y: y + 18 }, `× ${placed.repeat}`));
    right -= 10 * (placed.repeat.length + 2);
  }
  const title = row.l || (plain ? "" : row.k);
  if (title) {
    group.append(linked(row, svg("text", { class: "label", x: x + 12, y: y + 18 }, clip(title, Math.floor((right - x - 12) / 7.4)))));
  }
  let base = y + (title ? 34 : 18);
  const room = (title ? width - 24 : right - x - 12) / CHARACTER;
  const note = svg("text", { class: "note", x: x + 12, y: base }, clip(row.n || "", Math.floor(room)));
  group.append(title ? note : linked(row, note));
  for (const [kind, text] of placed.members) {
    base += 15;
    group.append(svg("circle", { class: kind, cx: x + 15, cy: base - 3.5, r: 3 }));
    group.append(svg("text", { class: "member", x: x + 23, y: base }, text));
  }
  let at = y + headHeight(placed);
  const below = svg("g", {});
  for (const [name, inner] of placed.inner) {
    if (name) {
      below.append(svg("text", { class: "note", x: x + PAD, y: at + 10 }, name));
      at += LINE;
    }
    drawSheet(inner, below, x + PAD, at, width - 2 * PAD);
    at += inner.height + PAD;
  }
  group.prepend(svg("title", {}, row.n || row.l || ""));
  into.append(group, below);
}

function linked(row, node) {
  if (!row.h) return node;
  const link = svg("a", { href: row.h, tabindex: "-1" });
  link.append(node);
  return link;
}

function drawDiagram() {
  const entry = data.entries[state.entry];
  const open = state.open.get(state.entry);
  const leaf = place(data.fns[entry.fn], environment(), "", open);
  const [width, height] = [leaf.width + 2 * MARGIN, leaf.height + 2 * MARGIN];
  const picture = svg("svg", { class: "diagram", role: "group", "aria-label": `Diagram of ${state.entry}`, width, height, viewBox: `0 0 ${width} ${height}` });
  drawSheet(leaf, picture, MARGIN, MARGIN, leaf.width);
  const focused = document.activeElement?.dataset?.path;
  $("#picture").replaceChildren(picture);
  if (focused !== undefined) $(`[data-path="${CSS.escape(focused)}"]`, picture)?.focus({ preventScroll: true });
}

function toggle(event) {
  if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  const group = event.target.closest(".opens");
  if (!group || event.target.closest("a")) return;
  event.preventDefault();
  const open = state.open.get(state.entry);
  const path = group.dataset.path;
  if (open.has(path)) open.delete(path);
  else open.add(path);
  drawDiagram();
}

function choose(name) {
  state.entry = name;
  if (!state.open.has(name)) {
    const deepest = innerWidth < 640 ? 3 : 99; // a phone has no room for more boxes in boxes
    const open = data.entries[name].open.filter((path) => path.split("/").length <= deepest);
    state.open.set(name, new Set(open));
  }
  for (const tab of $$(".tabs [data-entry]")) {
    if (tab.dataset.entry === name) tab.setAttribute("aria-current", "true");
    else tab.removeAttribute("aria-current");
  }
  const own = new Set([...data.free, ...data.entries[name].own]);
  for (const label of $$("#controls [data-size]")) label.hidden = !own.has(label.dataset.size);
}

function update() {
  drawMemory();
  drawDiagram();
}

if (data && Object.keys(data.entries).length) {
  buildControls();
  for (const note of $$(".scripted")) note.hidden = false;
  for (const tab of $$(".tabs [data-entry]")) {
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      choose(tab.dataset.entry);
      update();
    });
  }
  $("#picture").addEventListener("click", toggle);
  $("#picture").addEventListener("keydown", toggle);
  choose(Object.keys(data.entries)[0]);
  update();
}
