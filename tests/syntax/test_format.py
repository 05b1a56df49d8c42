"""The formatter: its style, its comments, and that it never changes a program."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from clock import seconds

from linnet.source import Source
from linnet.syntax.format import Unparsed, format_text
from linnet.syntax.lexer import tokenize
from linnet.syntax.parser import parse

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("src/linnet/std/**/*.linnet"), *ROOT.glob("models/**/*.linnet")])

LONG = ", ".join(f"argument_number_{n}" for n in range(7))
SHOWN = "\n".join(f"        argument_number_{n}," for n in range(7))


def body(*lines: str) -> str:
    inner = "\n".join(f"    {line}" if line else "" for line in lines)
    return f"module m\n\nfn f() -> i64 {{\n{inner}\n}}\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("return  1+2 *3", ["return 1 + 2 * 3"]),
        ("let x:i64=- 1 return ! x", ["let x: i64 = -1", "return !x"]),
        ("return x [ ... , 1 : :2,a : b , :]", ["return x[..., 1::2, a:b, :]"]),
        ("return f < N , [ * S ] >( a,axis=- 1 )", ["return f<N, [*S]>(a, axis = -1)"]),
        ("return f(\na,\nb)", ["return f(a, b)"]),
        ("return f(a, b,)", ["return f(", "    a,", "    b,", ")"]),
        ("return (a,)", ["return (a,)"]),
        ("let(a,_)=f()return a", ["let (a, _) = f()", "return a"]),
        (
            "let c[m,n]=sum<f32>[ k ]a[m,k]*b[k,n]return c",
            ["let c[m, n] = sum<f32>[k] a[m, k] * b[k, n]", "return c"],
        ),
        ("return if a{1}else if b{2}else{3}", ["return if a { 1 } else if b { 2 } else { 3 }"]),
        (
            "return match x{some(v)=>v,none=>0}",
            ["return match x {", "    some(v) => v", "    none => 0", "}"],
        ),
        (
            "let y=for i in 0..N{yield i}return y",
            ["let y = for i in 0..N {", "    yield i", "}", "return y"],
        ),
        ("while a{x=1}\n\n\n\nreturn x", ["while a {", "    x = 1", "}", "", "return x"]),
        ("let x: Pair<A>= none return x", ["let x: Pair<A> = none", "return x"]),
        # Comments.
        ("// one\n\n\n// two\nreturn 1 // end\n", ["// one", "", "// two", "return 1  // end"]),
        ("return 1\n  // last\n", ["return 1", "// last"]),
        ("return f(a, // first\nb)", ["return f(", "    a,  // first", "    b,", ")"]),
        ("return f(a,\n// before b\nb)", ["return f(", "    a,", "    // before b", "    b,", ")"]),
        ("return f(/* n */ 1)", ["return f(/* n */ 1)"]),
        ("return a + // why\nb", ["return a +  // why", "    b"]),
        ("let x = // why\n1\nreturn x", ["let x =  // why", "    1", "return x"]),
        ("return /* a\n b */ 1", ["return /* a", " b */ 1"]),
    ],
)
def test_statements(given: str, expected: list[str]) -> None:
    text = f"module m\nfn f()->i64{{\n{given}\n}}"
    wanted = body(*expected).replace("\n     b */", "\n b */")
    assert format_text(text) == wanted
    assert format_text(wanted) == wanted


def test_long_lines() -> None:
    assert format_text(f"module m fn f() -> i64 {{ return call({LONG}) }}") == body(
        "return call(", *SHOWN.replace("        ", "    ").split("\n"), ")"
    )
    sum_ = " + ".join(f"argument_number_{n}" for n in range(7))
    shown = format_text(f"module m fn f() -> i64 {{ let x = {sum_} return x }}").split("\n")
    assert shown[3:6] == [
        "    let x =",
        "        argument_number_0 +",
        "        argument_number_1 +",
    ]
    # The whole value on the next line is better than a break inside.
    value = "if condition { first_of_the_values(argument) } else { second_of_the_values(argument) }"
    shown = format_text(f"module m fn f() -> i64 {{ let something = {value} return x }}").split(
        "\n"
    )
    assert shown[3:5] == ["    let something =", f"        {value}"]


def test_items() -> None:
    given = (
        "// head\nmodule m use std.a::{b,c as d}\nconst N=1 const M=2 pub struct P{x:i64,y:f32}"
        "enum E{A,B}type A<T:Float=f32>=Tensor[N;T]?\n"
        "pub block B<N:Dim,*S:Shape>where N>0{param w:Tensor[N;f32]sub s:[L<N>;3]\n"
        "/// doc\nfn g()->f32{return 1.0}}op h(a:f32=1.0)->(f32,f32)where A>0,B>0{return(a,a)}"
    )
    assert (
        format_text(given)
        == """\
// head
module m

use std.a::{b, c as d}

const N = 1
const M = 2

pub struct P { x: i64, y: f32 }

enum E { A, B }

type A<T: Float = f32> = Tensor[N; T]?

pub block B<N: Dim, *S: Shape>
where N > 0 {
    param w: Tensor[N; f32]
    sub s: [L<N>; 3]

    /// doc
    fn g() -> f32 {
        return 1.0
    }
}

op h(a: f32 = 1.0) -> (f32, f32)
where
    A > 0,
    B > 0
{
    return (a, a)
}
"""
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_repository_is_clean(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_text(text, str(path)) == text


def test_the_page_about_formatting_is_in_style() -> None:
    page = (ROOT / "tests" / "spec" / "13-formatting.md").read_text(encoding="utf-8")
    first, *_ = re.findall(r"```linnet\n(.*?)```", page, re.DOTALL)
    assert format_text(first) == first


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(Unparsed) as caught:
        format_text("module m fn f( {")
    assert caught.value.diagnostics


def test_line_ends_and_a_mark_at_the_start() -> None:
    assert format_text("\ufeffmodule m\r\n\r\nconst A = 1 // x \r\n") == (
        "module m\n\nconst A = 1  // x\n"
    )


# --- Random layouts --------------------------------------------------------------------

SPACES = [
    " ", "  ", "\n", "\n\n", "\n\n\n", "\t", " // c\n", "\n// own\n", "/* x */", "\n/* y */\n",
    "/* a\n b */", " /// doc\n", "\n\n// far\n\n",
]  # fmt: skip


def programs() -> list[str]:
    """The repository's files, and the programs of the language's pages."""
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    for page in sorted((ROOT / "tests/spec").glob("*.md")):
        for found in re.finditer(r"```linnet\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            text = found[1]
            texts.append(text if "module " in text else f"module m\n{text}")
    return [text for text in texts if not parse(Source("p", text))[1]]


def scattered(text: str, rng: random.Random) -> str:
    """The program with its white space and comments in disorder."""
    share = rng.choice([0.02, 0.1, 0.5])
    parts: list[str] = []
    for token in tokenize(Source("p", text))[0]:
        if token.kind == "space" and rng.random() < share:
            after_comment = parts and parts[-1].startswith("//")
            parts.append(("\n" if after_comment else "") + rng.choice(SPACES))
        else:
            parts.append(token.text)
            if token.kind not in ("space", "comment", "doc") and token.text != ".":
                if rng.random() < share / 3:
                    parts.append(rng.choice(SPACES))
    return "".join(parts)


def _scatter(rounds: int, seed: int) -> None:
    """`format_text` proves each of its results itself; and the layout it meets is forgotten
    where there are no comments."""
    rng = random.Random(seed)
    texts = programs()
    formatted = 0
    for _ in range(rounds):
        text = scattered(rng.choice(texts), rng)
        if not parse(Source("p", text))[1]:
            format_text(text)
            formatted += 1
    assert formatted > rounds * 0.8


def test_scattered_programs() -> None:
    _scatter(150, seed=1)


@pytest.mark.fuzz
def test_many_scattered_programs() -> None:
    for seed in range(20):
        _scatter(1000, seed=seed)


def test_twenty_thousand_lines_in_seconds() -> None:
    text = (ROOT / "models/smollm2-135m-instruct/src/attention.linnet").read_text("utf-8")
    item = text[text.index("pub block") :]
    copies = 20_000 // item.count("\n") // 10
    whole = "module m\n\n" + "\n".join(item for _ in range(copies))
    results: list[str] = []
    assert seconds(lambda: results.append(format_text(whole))) < 3  # a tenth of the lines
    assert results == [whole]
