"""The first page: every model as a card, with a search and filters."""

from __future__ import annotations

from linnet.nest.pages.html import element, human_count, page, text
from linnet.nest.pages.shown import Shown
from linnet.weights.amounts import tenths

_SIZES = (("small", 1e9), ("medium", 15e9), ("large", 100e9), ("huge", float("inf")))
_SIZE_NAMES = {
    "small": "under 1 B",
    "medium": "1 B to 15 B",
    "large": "15 B to 100 B",
    "huge": "over 100 B",
}


def size_class(parameters: int) -> str:
    return next(name for name, limit in _SIZES if parameters < limit)


def index_page(models: list[Shown], refused: dict[str, str]) -> str:
    cards = "".join(card(shown) for shown in models)
    broken = "".join(
        f'<li class="card refused"><h2>{text(name)}</h2><p>This package is refused: '
        f"{text(reason)}</p></li>"
        for name, reason in refused.items()
    )
    families = sorted({m.card.family for m in models if m.card.family})
    licences = sorted({m.card.license for m in models if m.card.license})
    tasks = sorted({tag for m in models for tag in m.card.tags})
    sizes = [n for n, _ in _SIZES if any(size_class(m.parameters) == n for m in models)]
    filters = (
        select("task", "Task", [(t, t) for t in tasks])
        + select("family", "Family", [(f, f) for f in families])
        + select("size", "Size", [(n, _SIZE_NAMES[n]) for n in sizes])
        + select("licence", "Licence", [(x, x) for x in licences])
    )
    body = f"""
<div class="hero"><h1>Models one can read</h1>
<p class="summary">Each is a few hundred lines of Linnet: every shape proven, every line linked to
what it calls, its weights left where they were published.</p></div>
<form class="find filters" id="find-models" role="search" hidden>
<label class="wide">Search <input type="search" name="q" autocomplete="off"
placeholder="name, family, what it does"></label>{filters}
<output aria-live="polite"></output></form>
<ul class="cards" id="models">{cards}{broken}</ul>
<p class="more"><a href="std/index.html">The standard library, with its source</a></p>
"""
    summary = "Neural networks as checked text: source, diagrams, sizes."
    return page("Linnet zoo", body, up="", description=summary)


def select(name: str, label: str, options: list[tuple[str, str]]) -> str:
    inner = '<option value="">any</option>' + "".join(
        element("option", text(shown), value=value) for value, shown in options
    )
    return f"<label>{label} {element('select', inner, name=name)}</label>"


def card(shown: Shown) -> str:
    it = shown.card
    counts = f"{human_count(shown.parameters)} parameters"
    if shown.active != shown.parameters:
        counts += f", {human_count(shown.active)} active"
    total = tenths(sum(shown.bytes_by_dtype.values()))
    inner = (
        f'<h2><a href="{text(it.name)}/index.html">{text(it.title)}</a></h2>'
        f"<p>{text(it.summary)}</p>"
        f'<ul class="tags">{"".join(f"<li>{text(tag)}</li>" for tag in it.tags)}</ul>'
        f'<p class="figures">{counts} · {total} · {text(it.license or "no licence stated")}</p>'
    )
    words = " ".join([it.name, it.title, it.summary, it.family or "", *it.tags]).lower()
    return element(
        "li",
        inner,
        class_="card",
        data_words=words,
        data_family=it.family,
        data_task="|".join(it.tags),
        data_size=size_class(shown.parameters),
        data_licence=it.license,
    )
