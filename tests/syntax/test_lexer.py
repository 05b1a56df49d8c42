"""Tokens: lossless, loosely matched, each mistake reported once."""

from __future__ import annotations

import pytest

from linnet.source import Source
from linnet.syntax.lexer import string_value, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    tokens, _ = tokenize(Source("t", text))
    return [(t.kind, t.text) for t in tokens if t.kind not in ("space", "end")]


def codes(text: str) -> list[tuple[str, int]]:
    _, problems = tokenize(Source("t", text))
    return [(p.code, p.span.start) for p in problems]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeffmodule a\r\n\tfn f",
        "a/* b /* c */ d */e /// doc\n//x",
        'let s = "a\\"b" + "unclosed\n more',
        "§ 0x 12abc 1..n 1.5e-3 x[1::2]",
        "/* never /* closed */",
        "#'@$`\\~",
        "\x00\x0b\u2028é\U0001f600",
    ],
)
def test_tokens_joined_are_the_text(text: str) -> None:
    tokens, _ = tokenize(Source("t", text))
    assert "".join(token.text for token in tokens) == text
    assert all(text[token.start : token.end] == token.text for token in tokens)
    assert tokens[-1].kind == "end"


def test_numbers() -> None:
    assert kinds("1_000 0xfF 0b10_10 1.5 1e-5 3.14_15 1E+3") == [
        ("int", "1_000"),
        ("int", "0xfF"),
        ("int", "0b10_10"),
        ("float", "1.5"),
        ("float", "1e-5"),
        ("float", "3.14_15"),
        ("float", "1E+3"),
    ]
    # A range after an integer, and a hexadecimal number that ends in an `e`.
    spaced = " ".join(text for _, text in kinds("0..n 1...2 0xe+1"))
    assert spaced == "0 .. n 1 ... 2 0xe + 1"


@pytest.mark.parametrize("text", ["0x", "0b", "0b12", "0o7", "12abc", "1e", "1.5x", "0xg"])
def test_bad_numbers(text: str) -> None:
    assert codes(text) == [("E1005", 0)]
    assert kinds(text) == [("error", text)]


def test_integers_beyond_i64() -> None:
    assert codes("9223372036854775807") == []
    assert codes("9223372036854775809") == [("E1005", 0)]
    assert codes("9" * 100_000) == [("E1005", 0)]
    assert codes("0x" + "0" * 10_000 + "1") == []


def test_comments() -> None:
    assert kinds("/* a /* b */ c */ x // y") == [
        ("comment", "/* a /* b */ c */"),
        ("name", "x"),
        ("comment", "// y"),
    ]
    assert [kind for kind, _ in kinds("/// a\n//// b\n/** c */ /**/ /*** d */")] == [
        "doc",
        "comment",
        "doc",
        "comment",
        "comment",
    ]
    assert codes("x /* a /* b */") == [("E1002", 2)]


def test_strings() -> None:
    assert string_value(r'"a\n\t\"\\\x41\u{1F600}\0"') == 'a\n\t"\\A\U0001f600\0'
    assert codes('"abc') == [("E1003", 0)]
    assert codes('"abc\\') == [("E1003", 0)]
    assert codes('"ab\\"') == [("E1003", 0)]
    assert codes('"a\\q"') == [("E1003", 2)]
    assert codes('"\\u{110000}"') == [("E1003", 1)]
    assert codes('"\\u{d800}"') == [("E1003", 1)]
    assert kinds('"//" x')[0] == ("string", '"//"')


def test_bad_characters() -> None:
    assert codes("a § b") == [("E1001", 2)]
    assert codes("naïve") == [("E1001", 2)]
    assert codes("a\ufeff") == [("E1001", 1)]
    assert codes("\ufeffa") == []
    assert codes("// anything goes here: é § \x00") == []


def test_keywords_and_reserved_words() -> None:
    assert [kind for kind, _ in kinds("block kernel Tensor sum f32 _x")] == [
        "keyword",
        "keyword",
        "name",
        "name",
        "name",
        "name",
    ]
