"""The text renderer, by what it prints."""

from __future__ import annotations

from textwrap import dedent

from linnet.diagnostics.concise import render as render_concise
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.diagnostics.text import render, render_all
from linnet.source import Source, Span


def span(source: Source, part: str, start: int = 0) -> Span:
    at = source.text.index(part, start)
    return Span(source, at, at + len(part))


def error(label: Label, *related: Label, **more: object) -> Diagnostic:
    return Diagnostic("E2202", "error", "shape differs", label, list(related), **more)  # type: ignore[arg-type]


def shown(text: str) -> str:
    return dedent(text).strip("\n")


SOURCE = Source(
    "src/lib.linnet",
    "module a\n\npub fn f(x: R[B, In]) -> R[B, Out] {\n    let y = x\n\n    return x + y\n}\n",
)


def test_a_finding_draws_its_line_and_what_it_relates_to() -> None:
    finding = error(
        Label(span(SOURCE, "x + y"), "this is `[B, In]`"),
        Label(span(SOURCE, "R[B, Out]"), "declared here"),
        notes=["`In` and `Out` are free\nof each other"],
        help="declare `R[B, In]`",
    )
    assert render(finding) == shown(
        """
        error[E2202]: shape differs
         --> src/lib.linnet:6:12
          |
        3 | pub fn f(x: R[B, In]) -> R[B, Out] {
          |                          --------- declared here
        ...
        6 |     return x + y
          |            ^^^^^ this is `[B, In]`
          |
          = note: `In` and `Out` are free
                  of each other
          = help: declare `R[B, In]`
        """
    )


def test_labels_of_one_line_hang_below_each_other() -> None:
    end = span(SOURCE, "x + y").end
    finding = error(
        Label(span(SOURCE, "x + y"), "whole"),
        Label(Span(SOURCE, end - 1, end), "right"),
        Label(span(SOURCE, "return"), "in this"),
    )
    assert render(finding) == shown(
        """
        error[E2202]: shape differs
         --> src/lib.linnet:6:12
          |
        6 |     return x + y
          |     ------ ^^^^- right
          |     |      |
          |     |      whole
          |     in this
        """
    )


def test_another_file_gets_its_own_place() -> None:
    other = Source("src/b.linnet", "module b\npub fn g(x: T)\n")
    finding = error(Label(span(SOURCE, "x + y"), "m"), Label(span(other, "g"), "defined here"))
    assert " ::: src/b.linnet:2:8" in render(finding)
    assert "2 | pub fn g(x: T)\n  |        - defined here" in render(finding)


def test_a_span_over_lines_marks_its_ends() -> None:
    source = Source("a.linnet", "let y = f(\n    a,\n    b,\n    c)\n")
    whole = Span(source, source.text.index("f("), source.text.index(")") + 1)
    assert render(error(Label(whole, "here"))) == shown(
        """
        error[E2202]: shape differs
         --> a.linnet:1:9
          |
        1 | let y = f(
          |         ^^
        ...
        4 |     c)
          |     ^^ here
        """
    )


def test_tabs_and_wide_characters_stand_over_their_carets() -> None:
    source = Source("a.linnet", '\tlet s = "日本e\u0301", y = z\n')
    lines = render(error(Label(span(source, "z"), "here"))).splitlines()
    # A tab to column 4; two wide characters, a letter with a combining mark.
    assert lines[3] == '1 |     let s = "日本e\u0301", y = z'
    assert lines[4] == "  |" + " " * (1 + 4 + 8 + 7 + 6) + "^ here"


def test_a_long_line_is_cut_around_the_span() -> None:
    text = " + ".join(f"x{i}" for i in range(200))
    source = Source("a.linnet", text)
    lines = render(error(Label(span(source, "x100"), "here")), width=80).splitlines()
    assert len(lines[3]) <= 80
    assert lines[3].startswith("1 | …") and lines[3].endswith("…")
    at = lines[4].index("^^^^")
    assert lines[3][at : at + 4] == "x100"


def test_a_long_message_stands_below_its_mark() -> None:
    message = "the terminal's width holds this whole message, but not behind its mark"
    lines = render(error(Label(span(SOURCE, "x + y"), message)), width=80).splitlines()
    assert lines[4:] == ["  |            ^^^^^", f"  | {' ' * (76 - len(message))}{message}"]
    assert len(lines[5]) == 80


def test_every_span_of_a_long_line_has_its_caret() -> None:
    text = "".join(f"{i:04}" for i in range(100))
    source = Source("a.linnet", text)
    for start in range(0, len(text), 4):
        finding = error(Label(Span(source, start, start + 4), "m"))
        lines = render(finding, width=80).splitlines()
        at = lines[4].index("^^^^")
        assert lines[3][at : at + 4] == text[start : start + 4]


def test_the_end_of_the_file_can_be_pointed_at() -> None:
    for text in ("module a\n", "module a", ""):
        source = Source("a.linnet", text)
        assert "^ expected" in render(error(Label(Span(source, len(text), len(text)), "expected")))


def test_control_characters_cannot_reach_the_terminal() -> None:
    source = Source("a\x1b[2J.linnet", "let a = \x1b[31m\u202e\x07 b\n")
    finding = error(Label(span(source, "b"), "x\x1b[0m"))
    for text in (render(finding), render_concise(finding)):
        assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    lines = render(finding).splitlines()
    assert lines[3].index("b") == lines[4].index("^")


def test_carriage_returns_are_not_shown() -> None:
    source = Source("a.linnet", "module a\r\nlet x = y\r\n")
    assert "2 | let x = y\n" in render(error(Label(span(source, "y"), "m")))


def test_color_changes_nothing_but_color() -> None:
    import re

    finding = error(Label(span(SOURCE, "x + y"), "m"), notes=["n"], help="h")
    colored = render(finding, color=True)
    assert "\x1b[1;31merror[E2202]" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(finding)


def test_concise_is_one_line() -> None:
    finding = error(Label(span(SOURCE, "x + y"), "m"))
    assert render_concise(finding) == "src/lib.linnet:6:12: error[E2202]: shape differs"
    assert render_all([finding, finding]).count("error[E2202]") == 2
