"""Whatever the text and the spans, a finding is drawn, harmless and with its carets in place."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.diagnostics.concise import render as render_concise
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.diagnostics.json import document
from linnet.diagnostics.text import render
from linnet.source import Source, Span

TEXT = st.text(st.sampled_from("ab \t\n\r日e\u0301\x1b\u202e😀{}-^|"), max_size=200)


@st.composite
def findings(draw: st.DrawFn) -> Diagnostic:
    sources = [Source(f"{name}.linnet", draw(TEXT)) for name in "ab"]

    def label() -> Label:
        source = draw(st.sampled_from(sources))
        ends = st.integers(0, len(source.text))
        start, end = sorted((draw(ends), draw(ends)))
        return Label(Span(source, start, end), draw(st.sampled_from(["", "m", "w" * 90])))

    related = [label() for _ in range(draw(st.integers(0, 3)))]
    return Diagnostic("E1101", "error", draw(TEXT), label(), related, [draw(TEXT)], draw(TEXT))


@given(findings(), st.sampled_from([80, 100]))
@settings(max_examples=200, deadline=None)
def test_every_finding_can_be_drawn(finding: Diagnostic, width: int) -> None:
    text = render(finding, width=width)
    assert "^" in text
    for char in text + render_concise(finding):
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cf"), repr(char)
    assert "\n" not in render_concise(finding)
    json.dumps(document([finding]))


@given(st.text(st.sampled_from("ab\t日e\u0301 "), min_size=1, max_size=60), st.data())
@settings(max_examples=200, deadline=None)
def test_carets_stand_under_the_span(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    source = Source("a.linnet", text[:at] + "zz" + text[at:])
    finding = Diagnostic("E1101", "error", "m", Label(Span(source, at, at + 2)))
    lines = render(finding).splitlines()
    shown, marks = lines[3], lines[4]

    def columns(part: str) -> int:
        return sum(
            0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) == "W" else 1
            for c in part
        )

    assert columns(shown[: shown.index("zz")]) == marks.index("^^")
