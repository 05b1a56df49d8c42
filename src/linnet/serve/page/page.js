"use strict";
// A chat over /v1/chat/completions. Text from the model is only ever set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const turns = $("turns");
const FIELDS = ["system", "temperature", "top_p", "max_tokens", "seed", "thinking"];
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];

let messages = [];
let model = "";
let running = null; // the AbortController of the answer that comes
let follow = true; // whether the view stays at the end

// --- Settings, kept in this browser; the key only until the tab is closed ---

function restore() {
  for (const name of FIELDS) $(name).value = stored(localStorage, name);
  $("key").value = stored(sessionStorage, "key");
}

function stored(where, name) {
  try {
    return where.getItem("linnet." + name) || "";
  } catch {
    return ""; // a browser may forbid it
  }
}

function keep() {
  try {
    for (const name of FIELDS) localStorage.setItem("linnet." + name, $(name).value);
    sessionStorage.setItem("linnet.key", $("key").value);
  } catch {
    // Then they hold for this page alone.
  }
}

function headers() {
  const found = { "content-type": "application/json" };
  if ($("key").value) found.authorization = "Bearer " + $("key").value;
  return found;
}

// --- Text with code in it ---

function show(place, text) {
  const parts = [];
  const lines = text.split("\n");
  let plain = [];
  const flush = () => {
    parts.push(...prose(plain));
    plain = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const fence = /^\s{0,3}(`{3,}|~{3,})\s*([^`]*)$/.exec(lines[i]);
    if (!fence) {
      plain.push(lines[i]);
      continue;
    }
    flush();
    const mark = fence[1];
    const body = [];
    for (i++; i < lines.length; i++) {
      const end = lines[i].trim();
      if (end.length >= mark.length && end === mark[0].repeat(end.length)) break;
      body.push(lines[i]);
    }
    parts.push(code(body.join("\n"), fence[2].trim()));
  }
  flush();
  place.replaceChildren(...parts);
}

// Headings, points of lists and what lies between them. Other markup stays as it was written.
function prose(lines) {
  const parts = [];
  let plain = [];
  const flush = () => {
    while (plain.length && !plain[0].trim()) plain.shift();
    const said = plain.join("\n").trimEnd();
    if (said) parts.push(paragraph(said));
    plain = [];
  };
  for (const line of lines) {
    const head = /^\s{0,3}#{1,6}\s(.*)$/.exec(line);
    const point = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/.exec(line);
    if (head) {
      flush();
      const title = paragraph(head[1].trim());
      title.className = "head";
      parts.push(title);
    } else if (point) {
      flush();
      const mark = point[2].length > 1 ? point[2] : "•";
      const item = paragraph(`${mark} ${point[3]}`);
      item.className = `item deep-${Math.min(3, Math.floor(point[1].length / 2))}`;
      parts.push(item);
    } else {
      plain.push(line);
    }
  }
  flush();
  return parts;
}

function paragraph(text) {
  const p = document.createElement("p");
  for (const piece of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    const mark = piece.startsWith("`") ? 1 : piece.startsWith("**") ? 2 : 0;
    if (mark && piece.length > 2 * mark && piece.endsWith(piece.slice(0, mark))) {
      const inline = document.createElement(mark === 1 ? "code" : "strong");
      inline.textContent = piece.slice(mark, -mark);
      p.append(inline);
    } else {
      p.append(piece);
    }
  }
  return p;
}

function code(text, language) {
  const box = document.createElement("div");
  box.className = "code";
  const bar = document.createElement("div");
  const name = document.createElement("span");
  name.textContent = language || "code";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  bar.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  const inner = document.createElement("code");
  inner.textContent = text;
  pre.append(inner);
  box.append(bar, pre);
  return box;
}

// --- Turns ---

function turn(role, title) {
  $("hello")?.remove();
  const article = document.createElement("article");
  article.className = role;
  const head = document.createElement("h2");
  head.textContent = title;
  const text = document.createElement("div");
  text.className = "text";
  article.append(head, text);
  turns.append(article);
  scroll();
  return { article, text, thoughts: null };
}

function thoughts(view) {
  if (!view.thoughts) {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "Thinking …";
    const text = document.createElement("div");
    text.className = "text";
    details.append(summary, text);
    view.article.insertBefore(details, view.text);
    view.thoughts = { summary, text };
  }
  return view.thoughts;
}

function scroll() {
  if (follow) turns.scrollTop = turns.scrollHeight;
}

function fail(text) {
  $("error").textContent = text;
  $("error").hidden = !text;
}

function state(text) {
  $("state").textContent = text;
}

function busy(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  turns.setAttribute("aria-busy", String(on));
}

// --- Asking ---

function body() {
  const asked = { model, messages: [...messages], stream: true, stream_options: { include_usage: true } };
  if ($("system").value.trim()) asked.messages.unshift({ role: "system", content: $("system").value });
  for (const name of NUMBERS) if ($(name).value !== "") asked[name] = Number($(name).value);
  if ($("thinking").value) asked.reasoning_effort = $("thinking").value;
  return asked;
}

async function ask(question) {
  fail("");
  follow = true;
  messages.push({ role: "user", content: question });
  show(turn("user", "You").text, question);
  const view = turn("assistant", model || "Model");
  const answer = { content: "", reasoning: "", reason: null, usage: null, came: false };
  const mine = new AbortController();
  running = mine;
  busy(true);
  state("Waiting …");
  const began = performance.now();
  let drawn = false;
  const draw = () => {
    drawn = false;
    if (answer.reasoning) {
      show(thoughts(view).text, answer.reasoning);
      if (answer.content) view.thoughts.summary.textContent = "Thoughts";
    }
    show(view.text, answer.content);
    scroll();
  };
  const soon = () => {
    if (!drawn) requestAnimationFrame(draw);
    drawn = true;
  };
  let error = "";
  let stopped = false;
  try {
    if (!model) await learn();
    for await (const event of events(mine.signal)) {
      answer.came = true;
      if (event.error) throw new Error(event.error.message);
      if (event.usage) answer.usage = event.usage;
      const choice = event.choices && event.choices[0];
      if (!choice) continue;
      if (choice.delta.reasoning_content) {
        if (!answer.reasoning) state("Thinking …");
        answer.reasoning += choice.delta.reasoning_content;
      }
      if (choice.delta.content) {
        if (!answer.content) state("Answering …");
        answer.content += choice.delta.content;
      }
      if (choice.finish_reason) answer.reason = choice.finish_reason;
      soon();
    }
    if (!answer.reason) error = "The server broke off.";
  } catch (e) {
    if (mine.signal.aborted) stopped = true;
    else if (!(e instanceof TypeError)) error = e.message;
    else error = answer.came ? "The server broke off." : "The server cannot be reached.";
  }
  draw();
  if (view.thoughts) view.thoughts.summary.textContent = "Thoughts";
  if (running !== mine) return; // a new chat began
  running = null;
  busy(false);
  if (answer.content || answer.reasoning) {
    const said = { role: "assistant", content: answer.content };
    if (answer.reasoning) said.reasoning_content = answer.reasoning;
    messages.push(said);
  } else {
    messages.pop();
    view.article.remove();
  }
  end(view, answer, stopped, (performance.now() - began) / 1000);
  state(error ? "" : stopped ? "Stopped." : "Done.");
  if (error) {
    fail(error);
    if (!answer.content && !answer.reasoning) {
      turns.lastElementChild?.remove(); // the question goes back to where it can be sent again
      if (!$("question").value) $("question").value = question;
    }
    scroll(); // there is less room now
  }
  $("question").focus();
}

function end(view, answer, stopped, seconds) {
  const notes = [];
  if (stopped) notes.push("stopped");
  if (answer.reason === "length") notes.push("cut at the longest answer allowed");
  if (answer.usage) {
    notes.push(`${answer.usage.completion_tokens} tokens in ${seconds.toFixed(1)} s`);
    const cached = answer.usage.prompt_tokens_details?.cached_tokens;
    if (cached) notes.push(`${cached} of ${answer.usage.prompt_tokens} prompt tokens reused`);
  }
  if (!notes.length) return;
  const line = document.createElement("p");
  line.className = "end quiet";
  line.textContent = notes.join("; ");
  view.article.append(line);
  scroll();
}

async function* events(signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: headers(),
    body: JSON.stringify(body()),
    signal,
  });
  if (!response.ok) throw new Error(await reason(response));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      for (const line of block.split("\n")) {
        if (!line.startsWith("data: ")) continue;
        if (line === "data: [DONE]") return;
        yield JSON.parse(line.slice(6));
      }
    }
  }
}

async function reason(response) {
  let text = "";
  try {
    text = (await response.json()).error.message;
  } catch {
    text = response.statusText || "no reason given";
  }
  if (response.status === 401) text += ". Settings has a field for it.";
  return `${response.status}: ${text}`;
}

async function learn() {
  let response = await fetch("v1/models", { headers: headers() });
  while (response.status === 503) {
    const health = await (await fetch("health")).json();
    if (health.status !== "loading") break;
    state(`The model is loading${health.doing ? `: ${health.doing}` : ""} …`);
    await new Promise((done) => setTimeout(done, 1000));
    response = await fetch("v1/models", { headers: headers() });
    if (response.ok) state("");
  }
  if (!response.ok) throw new Error(await reason(response));
  model = (await response.json()).data[0].id;
  $("model").textContent = model;
  document.title = `${model} – Linnet`;
}

// --- Controls ---

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = $("question").value;
  if (!question.trim() || running) return;
  $("question").value = "";
  ask(question);
});

$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("settings").open) stop();
});

function stop() {
  running?.abort();
}

$("stop").addEventListener("click", stop);

$("fresh").addEventListener("click", () => {
  const old = running;
  running = null;
  old?.abort();
  messages = [];
  turns.replaceChildren();
  busy(false);
  fail("");
  state("");
  $("question").focus();
});

$("open-settings").addEventListener("click", () => $("settings").showModal());
$("settings").addEventListener("close", () => {
  keep();
  $("question").focus();
  if (!model) learn().then(() => fail(""), (e) => fail(e.message));
});

turns.addEventListener("scroll", () => {
  follow = turns.scrollHeight - turns.scrollTop - turns.clientHeight < 40;
});

restore();
learn().catch((e) => fail(e instanceof TypeError ? "The server cannot be reached." : e.message));
