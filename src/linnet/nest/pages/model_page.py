"""The page of one model: what it is, its diagrams and sizes, its source, files and parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from linnet.check.modules import ModuleScope
from linnet.errors import PackageError
from linnet.ir.memory import Stored
from linnet.ir.program import Function
from linnet.ir.types import BITS, TensorType, substitute
from linnet.nest.checked import digest
from linnet.nest.diagram import Diagram
from linnet.nest.pages.html import element, human_count, outside, page, text
from linnet.nest.pages.links import links_of, signature
from linnet.nest.pages.readme import readme_html
from linnet.nest.pages.shown import Shown
from linnet.nest.pages.source import source_html
from linnet.source import Span
from linnet.weights.amounts import tenths

MAX_SOURCE = 1 << 20  # characters; the largest model of the zoo has fifty thousand

Address = Callable[[Span], "str | None"]

_SECTIONS = (
    ("about", "About"), ("sizes", "Sizes at work"), ("diagram", "Diagram"),
    ("entries", "Entries"), ("run", "Run it"), ("source", "Source"), ("files", "Files"),
    ("parameters", "Parameters"), ("checked", "Checked"),
)  # fmt: skip


def model_page(shown: Shown, address: Address) -> str:
    """`address` gives the way from this page to a place in any source."""
    card = shown.card
    nav = "".join(f'<li><a href="#{id}">{title}</a></li>' for id, title in _SECTIONS)
    data = json.dumps(shown.document(address), separators=(",", ":"), ensure_ascii=False)
    data = data.replace("<", "\\u003c")  # nothing in it can end the element
    body = f"""
<div class="hero"><p class="family">{text(card.family or "model")}</p>
<h1>{text(card.title)}</h1>
<p class="summary">{text(card.summary)}</p>
<ul class="tags">{"".join(f"<li>{text(tag)}</li>" for tag in card.tags)}</ul>
{facts(shown)}</div>
<nav class="sections" aria-label="On this page"><ul>{nav}</ul></nav>
{section("about", readme(shown))}
{section("sizes", sizes(shown))}
{section("diagram", diagrams(shown, address))}
{section("entries", entries(shown, address))}
{section("run", run(shown))}
{section("source", source(shown, address))}
{section("files", files(shown))}
{section("parameters", parameters(shown))}
{section("checked", checked(shown))}
<script type="application/json" id="data">{data}</script>
"""
    crumbs = f'<span class="crumb" aria-hidden="true">/</span><span>{text(card.name)}</span>'
    return page(card.title, body, up="../", description=card.summary, crumbs=crumbs)


def section(id: str, content: str) -> str:
    title = dict(_SECTIONS)[id]
    head = f'<section id="{id}" aria-labelledby="{id}-h"><h2 id="{id}-h">{title}</h2>'
    return f"{head}{content}</section>"


def facts(shown: Shown) -> str:
    card = shown.card
    by_dtype = ", ".join(f"{d} {tenths(n)}" for d, n in shown.bytes_by_dtype.items())
    rows: list[tuple[str, str]] = [("Parameters", text(human_count(shown.parameters)))]
    if shown.active != shown.parameters:
        rows.append(("Active for a token", text(human_count(shown.active))))
    rows.append(("Weights", text(by_dtype or "none")))
    longest = shown.sizes.get("MaxSeq")
    if longest:
        rows.append(("Context", f"{longest:,}"))
    rows.append(("Licence", text(card.license or "not stated")))
    names = {"huggingface": "Hugging Face", "github": "GitHub", "arxiv": "Paper"}
    links = " ".join(outside(url, names.get(key, key)) for key, url in card.links.items())
    rows.append(("Links", links))
    return '<dl class="facts">' + "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows
    ) + "</dl>"  # fmt: skip


def readme(shown: Shown) -> str:
    markdown = shown.readme
    first, _, rest = markdown.lstrip().partition("\n")
    if first.startswith("# "):  # the page has the title already
        markdown = rest
    rendered = readme_html(markdown)
    return f'<div class="readme">{rendered or "<p>There is no README.</p>"}</div>'


# --- sizes at work -------------------------------------------------------------------


def sizes(shown: Shown) -> str:
    """Controls that the script fills, and a table that stands without it."""
    return f"""<p class="lead">What the model holds in memory, by the same expressions that
<code>linnet memory</code> evaluates: weights, the caches and states of its rows, and the values of
one call at their fullest moment. The diagram below follows the sizes chosen here.</p>
<div id="controls" class="controls" hidden></div>
<div id="memory" class="memory" hidden aria-live="polite"></div>
<noscript><p class="note">With scripts allowed, sliders here change the sizes.</p></noscript>
{element("details", "<summary>As a table</summary>" + memory_table(shown), class_="fold")}"""


def memory_table(shown: Shown) -> str:
    """Weights and states at a few contexts, in the card's dtype."""
    weights = sum(shown.bytes_by_dtype.values())
    longest = shown.sizes.get("MaxSeq", 0)
    contexts = [n for n in (4096, 32768) if n < longest] + ([longest] if longest else [])
    rows = []
    for context in contexts or [0]:
        values = {**shown.sizes, **({"MaxSeq": context} if context else {})}
        held = sum(
            s.elements.evaluate(values) * BITS[str(shown.generics.get(s.dtype, s.dtype))] // 8
            for s in shown.states
        )
        cells = [f"{context:,}" if context else "–"]
        cells += [tenths(n) for n in (weights, held, weights + held)]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    batch = shown.sizes.get("Batch")
    caption = f"{batch} row{'s' if batch != 1 else ''}, without values at work" if batch else ""
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{caption}</caption><thead><tr>'
        "<th>context</th><th>weights</th><th>caches and states</th><th>together</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


# --- diagrams ---------------------------------------------------------------------------


def diagrams(shown: Shown, address: Address) -> str:
    """The first entry's picture in the page; the others' are files beside it."""
    tabs, first = [], None
    for name, entry in shown.entries.items():
        if first is None:
            first = Diagram(shown.program, shown.sheets, entry.id, shown.generics)
        tabs.append(f'<a href="{text(name)}.svg" data-entry="{text(name)}">{text(name)}</a>')
    if first is None:
        return "<p>The model has no entries.</p>"
    picture = first.text(address, standalone=False)
    return f"""<p class="lead">Each box is an operation of the checked program, each line a value on
its way, with its shape. <span class="scripted" hidden>A box with a triangle opens.</span></p>
<div class="tabs" role="group" aria-label="Entries">{"".join(tabs)}</div>
<p class="legend"><span class="block">block</span> <span class="op">operation of the library</span>
<span class="grid">index notation</span> <span class="state">state</span> × N: that many
layers, drawn once</p>
<div class="picture scroll" id="picture" tabindex="0">{picture}</div>"""


def entry_diagrams(shown: Shown) -> dict[str, str]:
    """A file for each entry's picture, by its name."""
    return {
        f"{name}.svg": Diagram(shown.program, shown.sheets, entry.id, shown.generics).text()
        for name, entry in shown.entries.items()
    }


# --- entries, running -------------------------------------------------------------------


def entries(shown: Shown, address: Address) -> str:
    parts = []
    for name, entry in shown.entries.items():
        href = address(entry.span) if entry.span is not None else None
        title = f'<a href="{text(href)}">{text(name)}</a>' if href else text(name)
        written = declaration(shown, name, entry)
        effects = ""
        if name in shown.bound.entries:
            instance = shown.bound.functions[shown.bound.entries[name]]
            kept = sorted(instance.writes)
            if kept:
                names = ", ".join(f"<code>{text(path)}</code>" for path in kept)
                effects = f"<p>Writes {names}.</p>"
            else:
                effects = "<p>Keeps no state.</p>"
        doc = f"<p>{prose(entry.doc)}</p>" if entry.doc else ""
        parts.append(
            f'<article class="entry"><h3>{title}</h3><pre class="sig"><code>{text(written)}</code>'
            f"</pre><p>With the card's sizes: <code>{text(concrete(shown, entry))}</code></p>"
            f"{doc}{effects}</article>"
        )
    return "".join(parts) or "<p>None.</p>"


def declaration(shown: Shown, name: str, entry: Function) -> str:
    """An entry's head as it stands in the source, in one line."""
    decl = shown.checker.blocks[shown.root].methods.get(name)
    return signature(decl.node).partition("\n")[0] if decl is not None else entry.name


def prose(doc: str) -> str:
    """A documentation comment: text, and code between backticks."""
    parts = text(" ".join(doc.split())).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def concrete(shown: Shown, entry: Function) -> str:
    """The entry's signature with the card's generics put in."""
    kind = shown.bound.kinds[shown.bound.root]
    parameters = ", ".join(
        f"{name} {_short(substitute(type, kind.bindings))}" for name, type in entry.params
    )
    return f"({parameters}) → {_short(substitute(entry.result, kind.bindings))}"


def _short(type: Any) -> str:
    if isinstance(type, TensorType):
        return f"[{', '.join(map(str, type.shape))}] {type.dtype}"
    return str(type)


def run(shown: Shown) -> str:
    name = shown.card.name
    chat = {"text-generation", "chat"} & set(shown.card.tags)
    commands = [f"linnet inspect --parameters {name}"]
    if chat:
        commands += [
            f'linnet generate {name} --chat "What is a linnet?"',
            f"linnet chat {name}",
        ]
    first = next(iter(shown.entries), None)
    python = f'import linnet\n\nmodel = linnet.load("{name}")\n'
    if first is not None:
        names = ", ".join(name for name, _ in shown.entries[first].params)
        python += f"result = model.{first}({names})\n"
    blocks = "".join(f'<div class="copy"><pre><code>{text(c)}</code></pre></div>' for c in commands)
    code = f"<pre><code>{text(python)}</code></pre>"
    return f'{blocks}<h3>In Python</h3><div class="copy">{code}</div>'


# --- source and files --------------------------------------------------------------------


def source(shown: Shown, address: Address) -> str:
    parts = []
    total = sum(len(scope.file.source.text) for scope in shown.modules())
    if total > MAX_SOURCE:
        raise PackageError(f"{total:,} characters of source are too many to show ({MAX_SOURCE:,})")
    for position, scope in enumerate(shown.modules()):
        file = scope.file
        lines = file.source.text.count("\n") + 1
        html = source_html(
            file,
            links_of(shown.checker, scope, shown.program),
            anchor_of(scope.id),
            address,
        )
        opened = " open" if position == 0 else ""
        parts.append(
            f'<details class="module"{opened}><summary><code>{text(file_name(shown, scope))}</code>'
            f"<span>{lines} lines</span></summary>{html}</details>"
        )
    return "".join(parts)


def file_name(shown: Shown, scope: ModuleScope) -> str:
    """Where a module's file stands in the package; of a dependency, its module's name."""
    path = Path(scope.file.source.path).resolve()
    folder = shown.folder.resolve()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else scope.id


def anchor_of(module: str) -> str:
    """The id in a page for a module: letters, digits, dots and dashes."""
    return module.replace("/", "-")


def files(shown: Shown) -> str:
    card = shown.card
    own = "".join(
        f"<tr><td><code>{text(name)}</code></td><td>{tenths(size)}</td></tr>"
        for name, size in shown.files()
    )
    html = (
        '<div class="scroll" tabindex="0"><table><caption>The package</caption><thead><tr>'
        f"<th>file</th><th>size</th></tr></thead><tbody>{own}</tbody></table></div>"
    )
    weights = card.weights
    if weights.repo is not None:
        revision = weights.revision or "main"
        base = f"https://huggingface.co/{weights.repo}"
        sizes = shown.weight_sizes()
        rows = "".join(
            f"<tr><td>{outside(f'{base}/blob/{revision}/{name}', name)}</td>"
            f"<td>{tenths(sizes[name]) if name in sizes else ''}</td>"
            f"<td>{outside(f'{base}/resolve/{revision}/{name}', 'download')}</td></tr>"
            for name in weights.files
        )
        total = tenths(sum(shown.bytes_by_dtype.values()))
        html += (
            f"<p>The weights, {total}, are in {outside(base, weights.repo)} at revision "
            f"<code>{text(revision)}</code>.</p>"
        )
        if rows:
            html += (
                f'<details class="fold"{" open" if len(weights.files) < 9 else ""}><summary>'
                f"{len(weights.files)} weight file{'s' if len(weights.files) != 1 else ''}"
                '</summary><div class="scroll" tabindex="0"><table><thead><tr><th>file</th>'
                f"<th>size</th><th>from the hub</th></tr></thead><tbody>{rows}</tbody></table>"
                "</div></details>"
            )
    if weights.package is not None:
        size = shown.local_sizes().get(Path(weights.package_file or "").name)
        known = f", {tenths(size)}" if size else ""
        html += (
            f"<p>The Python package <code>{text(weights.package)}</code> brings them too, as "
            f"<code>{text(weights.package_file)}</code>{known}.</p>"
        )
    return html


# --- parameters -----------------------------------------------------------------------------


def parameters(shown: Shown) -> str:
    """One row for all layers' parameters of a kind; the script adds a search."""
    rows = []
    for stored in shown.storage:
        if stored.optional and not shown.has(stored):
            continue
        rows.append(_row(shown, stored))
    absent = sum(1 for s in shown.storage if s.optional and not shown.has(s) and s.kind != "state")
    note = (
        f'<p class="note">{absent} optional parameter{"s" if absent != 1 else ""} that this '
        "checkpoint lacks are left out.</p>"
        if absent
        else ""
    )
    return f"""<div class="find" id="find-parameters" hidden><label>Search
<input type="search" autocomplete="off" placeholder="mlp weight"></label>
<output aria-live="polite"></output></div>
<div class="scroll" tabindex="0"><table class="parameters" id="parameter-table"><thead><tr>
<th>path, and tensor of the checkpoint</th><th>kind</th><th>shape</th><th>dtype</th>
<th>how many</th><th>bytes</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>{note}"""


def _row(shown: Shown, stored: Stored) -> str:
    dtype = str(shown.generics.get(stored.dtype, stored.dtype))
    shape = ", ".join(str(d.evaluate(shown.sizes)) for d in stored.shape)
    symbols = ", ".join(map(str, stored.shape))
    count = shown.elements(stored) * BITS[dtype] // 8
    found = shown.tensor_names(stored)
    names = text(found[0]) if found is not None else "not bound"
    if stored.path in shown.tied:
        names = f"tied to {names}"
    below = "" if stored.kind == "state" else f'<span class="tensor">{names}</span>'
    path = text(stored.path).replace("*", '<span class="all">*</span>')
    return (
        f'<tr class="{stored.kind}"><td><code>{path}</code>{below}</td><td>{stored.kind}</td>'
        f'<td title="[{text(symbols)}]">[{shape}]</td><td>{dtype}</td>'
        f"<td>{stored.copies.evaluate(shown.sizes)}</td><td>{tenths(count)}</td></tr>"
    )


def checked(shown: Shown) -> str:
    modules = shown.modules()
    lines = sum(scope.file.source.text.count("\n") + 1 for scope in modules)
    required = [p for p in shown.manifest if p.kind == "param" and not p.optional]
    unbound = shown.unbound()
    items = [
        (True, f"{len(modules)} modules, {lines:,} lines: every shape and dtype proven, for all "
         "sizes that the <code>where</code> clauses allow"),
        (True, f"the card's sizes satisfy every clause of <code>"
         f"{text(shown.program.blocks[shown.root].name)}</code>"),
    ]  # fmt: skip
    if shown.bindings:
        tensors = len(set(shown.bindings.values()))
        if unbound:
            items.append((False, f"{len(unbound)} parameters are bound to no tensor, the first "
                          f"<code>{text(unbound[0])}</code>"))  # fmt: skip
        else:
            items.append((True, f"all of the {len(required):,} required parameters are bound, to "
                          f"{tensors:,} tensors of the checkpoint"))  # fmt: skip
        strange = sorted(set(shown.bindings) - {p.path for p in shown.manifest})
        if strange:
            items.append((False, f"{len(strange)} bindings name no parameter, the first "
                          f"<code>{text(strange[0])}</code>"))  # fmt: skip
        else:
            items.append((True, "no binding names a path that does not exist"))
    rows = "".join(
        f'<li class="{"yes" if fine else "no"}">{content}</li>' for fine, content in items
    )
    at = ", ".join(f"{n} = {v}" for n, v in shown.card.check.items())
    more = (
        f"<p class='note'><code>linnet nest check {text(shown.card.name)}</code> goes on from "
        "here: it compares every parameter with the header of its tensor in the checkpoint, and "
        f"runs the entries on random weights{f' at <code>{text(at)}</code>' if at else ''}.</p>"
    )
    more += recorded(shown)
    return f'<ul class="checks">{rows}</ul>{more}'


def recorded(shown: Shown) -> str:
    """What `nest check` and `parity` noted beside the card."""
    found, now = shown.checked, digest(shown.card)
    html = ""

    def mark(ok: bool, content: str, noted: str) -> str:
        stale = "" if noted == now else " <em>(of an earlier state of these files)</em>"
        return f'<li class="{"yes" if ok else "no"}">{content}{stale}</li>'

    if found.check:
        noted = found.check["digest"]
        rows = "".join(
            mark(s["ok"], f"{text(s['name'])}: {text(s['detail'] or 'fine')}", noted)
            for s in found.check["steps"]
            if not s["skipped"]
        )
        version = text(found.check["linnet"])
        html += f"<h3>Noted by <code>nest check</code> of Linnet {version}</h3>"
        html += f'<ul class="checks">{rows}</ul>'
    if found.parity:
        rows = "".join(
            mark(
                p["result"] <= p["tolerance"],
                f"<code>{text(p['entry'])}</code> in {text(p['dtype'])} within {p['result']:.1e} "
                f"of the largest magnitude of {text(p['reference'])}, on {text(p['weights'])}; "
                f"{p['blocks']:.0f} blocks compared",
                p["digest"],
            )
            for p in found.parity
        )
        html += f'<h3>Noted by <code>parity</code></h3><ul class="checks">{rows}</ul>'
    return html
