"""What the parser makes of correct text."""

from __future__ import annotations

from pathlib import Path

import pytest
from clock import seconds
from outline import expression, file, outline, statements

from linnet.source import Source
from linnet.syntax import tree
from linnet.syntax.parser import parse

SEED = Path(__file__).parents[3] / "shared/seed/qwen3.6-35b-a3b/src"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a || b && c == d < e | f ^ g & h + i * j", "(|| a (&& b (== c (< d "
         "(| e (^ f (& g (+ h (* i j)))))))))"),
        ("a - b - c % d / e", "(- (- a b) (/ (% c d) e))"),
        ("-a * !b[0] + -2.0", "(+ (* (- a) (! (Index b [0]))) (- 2.0))"),
        ("-9223372036854775808", "(- 9223372036854775808)"),
        ("(a, b)", "(TupleExpr [a b])"),
        ("(a,)", "(TupleExpr [a])"),
        ("((a))", "(paren (paren a))"),
        ("f(a, axis = -1,)", "(Call f - [a axis=(- 1)])"),
        ("m.layer.f<A, [*S, H], B * 2>(x)", "(Call m.layer.f [A (ListExpr [*S H]) (* B 2)] [x])"),
        ("a < b", "(< a b)"),
        ("a < b > c", "(> (< a b) c)"),
        ("a < b > (c)", "(Call a [b] [c])"),
        ("f(a < b, c > d)", "(Call f - [(< a b) (> c d)])"),
        ("f(a < b, c > (d))", "(Call f - [(Call a [b c] [d])])"),
        ("f(a < b, c >= (d))", "(Call f - [(< a b) (>= c (paren d))])"),
        ("x[:, a:b, ::2, 1::2, :3:, ..., *s, 0]",
         "(Index x [(SliceItem - - -) (SliceItem a b -) (SliceItem - - 2) (SliceItem 1 - 2) "
         "(SliceItem - 3 -) ... *s 0])"),
        ("sum[k] a[k] * b + c", "(Reduce sum - [k] (+ (* (Index a [k]) b) c))"),
        ("1 + sum<f32>[k, *s] a", "(+ 1 (Reduce sum (NamedType [f32] -) [k *s] a))"),
        ("sum + max(a, b) * any", "(+ sum (* (Call max - [a b]) any))"),
        ("sum<f32>(x)", "(Call sum [f32] [x])"),
        ("if a { 1 } else if b { 2 } else { 3 }", "(If a 1 (If b 2 3))"),
        ("match m { some(v) => v + 1 none => 0 }",
         "(Match m [(Arm (SomePattern v) (+ v 1)) (Arm (NonePattern) 0)])"),
        ("match m { Mode.Fast => 1, _ => 0, }",
         "(Match m [(Arm (VariantPattern [Mode Fast]) 1) (Arm (WildcardPattern) 0)])"),
        ("some(none)", "(Some none)"),
        ("random.normal<N, T>(key)", "(Call random.normal [N T] [key])"),
        ("[]", "(ListExpr [])"),
        ("a\n+ b\n(c)\n[d]", "(+ a (Index (Call b - [c]) [d]))"),
    ],
)  # fmt: skip
def test_expressions(text: str, expected: str) -> None:
    assert expression(text) == expected


def test_a_statement_ends_where_its_grammar_ends() -> None:
    body = statements(
        "let x: i32 = a var y = b y = c let (p, _) = d let g[m, *s]: f32 = e "
        "static for l in layers { y = l.f(y) } static for i in 0..N { } "
        "let ys = for i in 0..n - 1 { yield i } while y < 3 { y = y + 1 } for j in 1..2 { } "
        "return y"
    )
    names = "Let Var Assign Let LetIndexed StaticFor StaticFor Let While For Return"
    assert [type(s).__name__ for s in body] == names.split()
    loop = body[7]
    assert isinstance(loop, tree.Let) and isinstance(loop.value, tree.ForExpr)
    assert outline(loop.value.stop) == "(- n 1)"


def test_types() -> None:
    item = file(
        "module t\nfn f(a: Tensor[B, *S, 2 * H; T]?, b: (f32, (i32)), c: m.Pair<A, [B], 3>) -> i32"
        " { return 1 }"
    ).items[0]
    assert isinstance(item, tree.Function)
    assert [outline(p.type) for p in item.parameters] == [
        "(OptionalType (TensorType [B *S (* 2 H)] (NamedType [T] -)))",
        "(TupleType [(NamedType [f32] -) (NamedType [i32] -)])",
        "(NamedType [m Pair] [A (ListExpr [B]) 3])",
    ]


def test_items() -> None:
    parsed = file(
        """// before everything
module a.random
use std.nn.linear::{linear, Linear as L,}
use std.random
use crate.x::{}
/// A constant.
pub const A: f32 = 1.0
const N = 3
type Row<N: Dim> = Tensor[N; f32]
pub struct Pair<T: DType> { left: T, right: T, }
enum Mode { Fast, Slow }
/** Two
 *  lines. */
pub op dot<N: Dim, *S: Shape, T: Numeric = f32>(a: Tensor[N; T]? = none,) -> T where N > 0, {
    return a
}
block B<H: Dim, Shards: Dim = 2 * 4>
where
    H % 2 == 0
{
    /// The weight.
    param w: Tensor[H; f32]
    pub sub xs: [Linear<H, H, f32>; N]
    sub y: Linear<H>= none
    state s: Tensor[H; f32]

    entry go() -> f32 { return 1.0 }
}
entry alone() -> i32 { return 1 }
"""
    )
    assert parsed.module and [i.text for i in parsed.module.path] == ["a", "random"]
    assert [outline(use.path) for use in parsed.uses] == [
        "[std nn linear]", "[std random]", "[crate x]",
    ]  # fmt: skip
    assert parsed.uses[0].names and [n.local.text for n in parsed.uses[0].names] == ["linear", "L"]
    assert parsed.uses[1].names is None and parsed.uses[2].names == []
    items = {item.name.text: item for item in parsed.items}
    assert list(items) == ["A", "N", "Row", "Pair", "Mode", "dot", "B", "alone"]
    assert items["A"].doc == "A constant." and items["A"].public and not items["N"].public
    dot, block = items["dot"], items["B"]
    assert dot.doc == "Two\nlines."
    assert isinstance(dot, tree.Function) and dot.kind == "op" and len(dot.where) == 1
    assert [(g.pack, g.kind, outline(g.default)) for g in dot.generics] == [
        (False, "Dim", "-"), (True, "Shape", "-"), (False, "Numeric", "f32"),
    ]  # fmt: skip
    assert isinstance(block, tree.Block)
    assert [(m.kind, m.name.text, m.public) for m in block.members] == [
        ("param", "w", False), ("sub", "xs", True), ("sub", "y", False), ("state", "s", False),
    ]  # fmt: skip
    assert block.members[0].doc == "The weight."
    assert isinstance(block.members[2].default, tree.NoneLit)
    assert [f.name.text for f in block.functions] == ["go"]


def test_spans_cover_what_they_name() -> None:
    (statement,) = statements("return f<A>(x)[0] + -y")
    assert isinstance(statement, tree.Return) and isinstance(statement.value, tree.Binary)
    assert statement.span.text == "return f<A>(x)[0] + -y"
    assert statement.value.left.span.text == "f<A>(x)[0]"
    assert statement.value.right.span.text == "-y"
    assert statement.value.op_span.text == "+"


def test_the_founding_package_parses() -> None:
    if not SEED.is_dir():
        pytest.skip("the founding package is not beside this repository")
    for path in SEED.glob("*.linnet"):
        text = path.read_text(encoding="utf-8")
        parsed, problems = parse(Source(str(path), text))
        assert not problems
        assert "".join(token.text for token in parsed.tokens) == text


def test_time_is_linear_in_the_size() -> None:
    def cost(times: int) -> float:
        text = "module t\n" + "fn f(x: Tensor[B; f32]) -> i32 { return a < (b + c[0:3]) }\n" * times
        return seconds(lambda: parse(Source("t", text)), tries=3)

    assert cost(2000) < 40 * cost(200)  # ten times the text; slack for a busy machine
