"""What the parser says of wrong text: everything, once, and nothing that follows from it."""

from __future__ import annotations

import random

import pytest
from outline import findings

from linnet.source import Source
from linnet.syntax import tree
from linnet.syntax.lexer import tokenize
from linnet.syntax.parser import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("E1102", 1)]),
        ("use a.b\nmodule c\n", [("E1102", 1)]),
        ("module a\nmodule b\n", [("E1101", 2)]),
        ("module a\nkernel k(x) { anything }\nextern fn q()\nfn f() -> i32 { return 1 }\n",
         [("E1103", 2), ("E1103", 3)]),
        ("module a\nop f() -> i32 { return 1 } grad(y, dy) { return {y} }\nconst A = 1\n",
         [("E1103", 2)]),
        ("module a\nfn f(x: Tensor[B S; f32], y: i32) -> i32 { return y }\n", [("E1101", 2)]),
        ("module a\nfn f(x: i32 y: i32) -> i32 { return y }\n", [("E1101", 2)]),
        ("module a\nfn f() -> i32 {\nlet a = (1 + 2\nlet b = [3\nreturn b\n}\n",
         [("E1101", 3), ("E1101", 4)]),
        ("module a\nfn f() -> i32 {\nlet x = 3;\nx += 1\nf(x)\nlet y = if x { 1 }\nreturn x\n}\n",
         [("E1101", 3), ("E1101", 4), ("E1101", 5), ("E1101", 6)]),
        ("module a\nfn f() -> i32 {\nlet match = 3\nreturn match + 1\n}\n", [("E1004", 3)]),
        ("module a\nfn f() -> i32 {\nlet device = 3\ndevice = 4\nreturn async\n}\n",
         [("E1004", 3), ("E1004", 5)]),
        ("module a\nfn f() -> i32 {\nlet x = $\nreturn x § 1\n}\n", [("E1001", 3), ("E1001", 4)]),
        ("module a\nfn f() -> i32 {\nlet x = g(\"abc)\nreturn x\n}\n", [("E1003", 3)]),
        ("module a\nfn f() -> i32 { return 1 /* oops }\n", [("E1002", 2)]),
        ("module a\nfn f() -> i32 { return 9223372036854775808 }\n", [("E1005", 2)]),
        ("module a\nblock B {\nfn f() -> i32 {\nwhile x {\nreturn 1\n}\n"
         "fn g() -> i32 { return 1 }\n}\nblock C { }\n", [("E1101", 7)]),
        ("module a\nblock B {\nparam w\nstate s: Tensor[H f32]\nconst N = 1\nfn f() { }\n}\n",
         [("E1101", 3), ("E1101", 4), ("E1101", 5)]),
        ("module a\nblock B {\nparam w: f32\nblock C {\n}\n", [("E1101", 4)]),
        ("module a\nfn f() -> i32 {\nfor i in xs { }\nvar y = for i in 0..2 { yield i }\n"
         "return y\n}\n",
         [("E1101", 3), ("E1101", 4)]),
        ("module a\nfn f() -> i32 where A >, B > 0 { return 1 }\n", [("E1101", 2)]),
        ("module a\nuse super.x\nuse a.b::c\nuse a::{b, c as}\nfn f() -> i32 { return 1 }\n}\n",
         [("E1101", 2), ("E1101", 3), ("E1101", 4)]),
        ("module a\nlet x = 3\nparam w: f32\nconst A = 1\n", [("E1101", 2)]),
        ("module a\n}\n", [("E1101", 2)]),
    ],
)  # fmt: skip
def test_each_mistake_is_reported_once(text: str, expected: list[tuple[str, int]]) -> None:
    assert findings(text) == expected


def test_what_an_error_leaves_in_the_tree() -> None:
    parsed, _ = parse(
        Source(
            "t",
            "module a\nfn broken( -> i32 { return 1 }\n"
            "fn f(x: Tensor[, y: i32) -> i32 where A > { let z = 1 + \n while ( { return ] } }\n"
            "block B where +, A > 0 { param w: [3 }\n",
        )
    )
    broken, f, block = parsed.file.items
    assert isinstance(broken, tree.Function) and isinstance(broken.result, tree.ErrorType)
    assert [type(s) for s in broken.body] == [tree.ErrorStmt]
    assert isinstance(f, tree.Function) and [p.name.text for p in f.parameters] == ["x", "y"]
    assert isinstance(f.parameters[0].type, tree.ErrorType)
    assert any(isinstance(clause, tree.ErrorExpr) for clause in f.where)
    let, loop = f.body
    assert isinstance(let, tree.Let) and isinstance(let.value, tree.ErrorExpr)
    assert isinstance(loop, tree.While) and isinstance(loop.condition, tree.ErrorExpr)
    assert isinstance(block, tree.Block)
    assert [type(clause) for clause in block.where] == [tree.ErrorExpr, tree.Binary]


@pytest.mark.parametrize(
    "inner",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "[" * 10_000,
        "f(" * 10_000 + "1" + ")" * 10_000,
        "f<(" * 10_000 + "1" + ")>(1)" * 10_000,
        "f<" * 10_000 + "1" + ">" * 10_000,
        "-" * 10_000 + "1",
        "1" + " + 1" * 10_000,
        "a" + ".b" * 10_000,
        "if a { 1 } else " * 10_000 + "{ 2 }",
        "match x { none => " * 10_000 + "1" + "}" * 10_000,
        "sum[k] " * 10_000 + "1",
    ],
)
def test_deep_nesting_is_one_error(inner: str) -> None:
    text = f"module a\nfn f() -> i32 {{\nreturn {inner}\n}}\nconst A = = 1\n"
    assert findings(text) == [("E1101", 3), ("E1101", 5)]


def test_deep_types_and_bodies_are_one_error() -> None:
    deep = 10_000
    types = f"module a\nfn f(x: {'(' * deep}i32{')' * deep}, y: i32) -> i32 {{ return y }}\n"
    assert findings(types) == [("E1101", 2)]
    bodies = f"module a\nfn f() -> i32 {{ {'while a { ' * deep}{'}' * deep} return 1 }}\n"
    assert findings(bodies) == [("E1101", 2)]
    assert findings("module a\nconst A = " + "(" * 50 + "1" + ")" * 50) == []


def test_damaged_text_never_raises() -> None:
    text = (
        "module a\nuse b.c::{d}\nblock B<H: Dim, T: Float = bf16> where H > 0 {\n"
        "  param w: Tensor[H, 2 * H; T]? = none\n  sub xs: [L<H, T>; 3]\n"
        "  pub entry go<S: Dim>(x: Tensor[*S, H; T], n: i32 = 1) -> (T, T) where S > 0 {\n"
        "    let c[m, *s] = sum<f32>[k] x[m, k] * f<A, [B]>(y)[..., 1::2]\n"
        "    var z = if a { 1 } else { match w { some(v) => v none => 0 } }\n"
        "    static for l in xs { z = l.f(z, axis = -1) }\n    return (z, z)\n  }\n}\n"
    )
    pieces = [token.text for token in tokenize(Source("t", text))[0]]
    extra = ["{", "}", "(", ")", "<", ">", ";", ",", '"', "/*", "é", "0x", "some", "match", "for"]
    rng = random.Random(7)
    for _ in range(400):
        damaged = list(pieces)
        for _ in range(rng.choice([1, 2, 5])):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = [rng.choice(extra + pieces)]
        source = Source("t", rng.choice(["", " "]).join(damaged))
        parsed, problems = parse(source)
        assert "".join(token.text for token in parsed.tokens) == source.text
        for problem in problems:
            assert 0 <= problem.span.start <= problem.span.end <= len(source.text)


def test_findings_help() -> None:
    def help_of(text: str) -> str | None:
        return parse(Source("t", f"module a\nfn f() -> i32 {{ {text} }}\n"))[1][0].help

    assert "without semicolons" in str(help_of("let x = 1; return x"))
    assert "bare names" in str(help_of("return self.x"))
    assert "x = x + …" in str(help_of("x += 1 return x"))
    _, problems = parse(Source("t", "module a\nfn f() -> i32 {\n  return g(1, 2\n}\n"))
    assert problems[0].span.text == "2" and "after this" in problems[0].label.message
    assert problems[0].related[0].span.text == "("
