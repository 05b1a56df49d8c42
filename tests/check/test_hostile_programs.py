"""Programs that nobody means well by: always findings, soon, and never an exception."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from clock import seconds
from programs import read

from linnet.check import check_package
from linnet.check.checker import Checked
from linnet.ir.verify import verify_program
from linnet.package import open_package
from linnet.source import Source
from linnet.syntax.lexer import tokenize

# Seconds of work. The contract asks for one on a usual machine.
PATIENCE = 2.0


def check(folder: Path, text: str | bytes) -> Checked:
    file = folder / "program.linnet"
    file.write_bytes(text if isinstance(text, bytes) else f"module t\n{text}".encode())
    results: list[Checked] = []
    assert seconds(lambda: results.append(check_package(open_package(file)))) < PATIENCE
    (checked,) = results
    for item in checked.diagnostics:
        assert 0 <= item.span.start <= item.span.end <= len(item.span.source.text)
        assert len(item.message) < 2000
    return checked


def lines(pattern: str, count: int, start: int = 0) -> str:
    """The pattern for each number: `#` is the number, `@` the next, `&` the one before."""
    return "\n".join(
        pattern.replace("#", str(k)).replace("@", str(k + 1)).replace("&", str(k - 1))
        for k in range(start, start + count)
    )


def names(count: int) -> str:
    return ", ".join(f"A{k}: Dim" for k in range(count))


DEEP = 10_000
NESTED = {
    "parentheses": f"fn f() -> i64 {{ return {'(' * DEEP}1{')' * DEEP} }}",
    "brackets": f"fn f(x: Tensor[3; f32]) -> i64 {{ return x{'[' * DEEP}1{']' * DEEP} }}",
    "open": f"fn f() -> i64 {{ return {'(' * DEEP}",
    "braces": f"fn f() -> i64 {{ {'while true { ' * DEEP}",
    "types": f"fn f(x: {'(' * DEEP}f32{')' * DEEP}) -> i64 {{ return 1 }}",
    "chain": f"fn f(c: f32) -> f32 {{ return {' + '.join(['c'] * DEEP)} }}",
    "members": f"fn f(c: f32) -> f32 {{ return c{'.a' * DEEP} }}",
    "unaries": f"fn f(c: f32) -> f32 {{ return {'-' * DEEP}c }}",
}
# As deep as the parser lets through: the checker walks it.
ALLOWED = {
    "calls": f"fn g(c: f32) -> f32 {{ return c }}\n"
    f"fn f(c: f32) -> f32 {{ return {'g(' * 97}c{')' * 97} }}",
    "prelude": f"fn f(c: f32) -> f32 {{ return {'exp(' * 97}c{')' * 97} }}",
    "elements": f"fn f(c: Tensor[3; f32]) -> Tensor[3; f32] {{\n"
    f"let y[i] = {'select(c[i] > 0, ' * 97}c[i]{', 1)' * 97}\nreturn y }}",
    "gathers": f"fn f(c: Tensor[3; i32]) -> Tensor[3; i32] {{\n"
    f"let y[i] = {'c[' * 97}i{']' * 97}\nreturn y }}",
    "unary": f"fn f(c: f32) -> f32 {{ return {'-' * 190}c }}",
    "sum": f"fn f(c: f32) -> f32 {{ return {' + '.join(['c'] * 190)} }}",
    "matches": f"fn f(c: f32?) -> f32 {{ return "
    f"{'match c { some(_v) => ' * 60}1{' none => 2 }' * 60} }}",
    "loops": f"fn f(x: f32) -> f32 {{\nvar y = x\n{'for k in 0..2 { y = y + 1 ' * 80}"
    f"{'}' * 80}\nreturn y }}",
}
BIG = 1_000_000
LONG = {
    "unknown name": f"fn f() -> i64 {{ return {'a' * BIG} }}",
    "name": f"fn {'a' * BIG}() -> i64 {{ return 1 }}\nfn f() -> i32 {{ return {'a' * BIG}() }}",
    "integer": f"fn f() -> i64 {{ return {'9' * BIG} }}",
    "float": f"fn f() -> f64 {{ return {'9' * BIG}.0 }}",
    "string": f'fn f() -> i64 {{ return "{"f" * BIG}" }}',
    "dimension": f"fn f<{'N' * BIG}: Dim>(x: Tensor[{'N' * BIG}; f32]) -> f32 {{ return x[0] }}",
}
GROWING = {
    "constants": "const A0 = 9223372036854775807\n" + lines("const A# = A& * A&", 40, 1),
    "constants as floats": "const A0 = 9223372036854775807\n"
    + lines("const A# = A& * A&", 5, 1)
    + "\nfn f() -> f64 { return A5 * 1.0 }\nfn g() -> f32 { return A5 }\nconst C: f32 = A5",
    "powers of sums": "fn f<A: Dim, B: Dim, C: Dim>(x: Tensor["
    + " * ".join(["(A + B + C)"] * 40)
    + "; f32]) -> i64 { return 1 }",
    "powers of sums as values": "fn f<A: Dim, B: Dim, C: Dim>() -> i64 { return "
    + " * ".join(["(A + B + C)"] * 40)
    + " }",
    "quotients": f"fn f<A: Dim, B: Dim>(x: Tensor[{'(' * 45}A{' + B) / 3' * 45}; f32]) -> "
    f"Tensor[{'(' * 45}B{' + A) / 3' * 45}; f32] {{ return x }}",
    "extremes": f"fn f<A: Dim, B: Dim>(x: Tensor[{'min(max(' * 40}A"
    f"{', B), A + B)' * 40}; f32]) -> i64 {{ return 1 }}",
    "equal sizes": f"fn f<{names(1000)}>(x: Tensor[A0; f32]) -> Tensor[A999; f32]\n"
    f"where {lines('A# == A@,', 998)} A0 > 0 {{ return x }}",
    "ordered sizes": f"fn f<{names(1000)}>(x: Tensor[A0; f32]) -> f32\n"
    f"where {lines('A# <= A@,', 998)} A0 > 0 {{ return x[A999] }}",
    "products": f"fn f<{names(90)}>(x: Tensor[A0; f32]) -> Tensor[A89 * 5; f32]\n"
    f"where {lines('A# * A@ == A@ * 7 + A&,', 88, 1)} A0 > 0 {{ return x }}",
    "tuples": "type T0 = (f32, f32)\n"
    + lines("type T# = (T&, T&)", 60, 1)
    + "\nfn f(x: T60) -> i64 { return 1 }",
    "structs": "struct T0 { a: f32 }\n" + lines("struct T# { a: T&, b: T& }", 60, 1),
    "packs": "type T0<*S: Shape> = Tensor[*S; f32]\n"
    + lines("type T#<*S: Shape> = T&<[*S, *S]>", 60, 1)
    + "\nfn f(x: T60<[2, 3]>) -> i64 { return 1 }",
    "arguments": "type T0<N: Dim> = Tensor[N; f32]\n"
    + lines("type T#<N: Dim> = T&<N * N + 1>", 60, 1)
    + "\nfn f<N: Dim>(x: T60<N>) -> i64 { return 1 }",
    "values": "fn f(x: f32) -> i64 {\nlet a0 = (x, x)\n"
    + lines("let a# = (a&, a&)", 60, 1)
    + "\nreturn a60 }",
    "optionals": "fn f(x: f32) -> i64 {\nlet a0 = some(x)\n"
    + lines("let a# = some(a&)", 1500, 1)
    + "\nreturn a1500 }",
    "axes": "fn g<*S: Shape>(x: Tensor[*S; f32]) -> Tensor[*S, *S; f32] {\n"
    "let y[*s, *t] = x[*s] * x[*t]\nreturn y }\nfn f(x: Tensor[2; f32]) -> i64 {\nlet a0 = g(x)\n"
    + lines("let a# = g(a&)", 60, 1)
    + "\nreturn a60 }",
    "blocks": lines("pub block B#<*S: Shape> { sub b: B@<[*S, *S]> }", 90)
    + "\npub block B90<*S: Shape> { pub fn f() -> f32 { return 1 } }\n"
    + f"block R {{ sub b: B0<[2]>\npub fn f() -> f32 {{ return b{'.b' * 80}.f() }} }}",
    "block sizes": "pub block A<N: Dim> { sub a: A<N + 1> }",
}
MANY = {
    "constants": lines("const A# = A@", 1500) + "\nconst A1500 = 1",
    "aliases": lines("type A# = A@", 1500) + "\ntype A1500 = f32",
    "structs": lines("struct A# { a: A@ }", 1500) + "\nstruct A1500 { a: f32 }",
    "blocks": lines("block B# { sub b: B@ }", 1500) + "\nblock B1500 { }",
    "functions": lines("fn a#() -> f32 { return a@() }", 1200)
    + "\nfn a1200() -> f32 { return a0() }",
    "calls": lines(
        "fn a#() -> f32 { return " + " + ".join(f"a{k}()" for k in range(80)) + " }", 80
    ),
    "unknown names": lines("fn name_number_#() -> f32 { return name_nunber_#x }", 1000),
    "unknown names in one place": "fn f() -> f32 {\n"
    + lines("let name_number_# = name_nunber_#x", 1200)
    + "\nreturn 1 }",
    "indices": "fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> f32\nwhere N > 4 * M, M > 5 {\n"
    + lines("let a# = x[#:N - # * M]", 1200)
    + "\nreturn 1 }",
    "parameters": f"fn f({', '.join(f'a{k}: f32' for k in range(2000))}) -> f32 {{ return a0 }}\n"
    f"fn g(x: f32) -> f32 {{ return f({', '.join(['x'] * 2000)}) }}",
    "generics": f"fn f<{names(2000)}>(x: f32) -> f32 {{ return x }}\n"
    f"fn g(x: f32) -> f32 {{ return f<{', '.join(['1'] * 2000)}>(x) }}",
    "axes": f"fn f(x: Tensor[{', '.join(['1'] * 8000)}; f32]) -> f32 {{ return 1 }}",
    "variants": f"enum E {{ {', '.join(f'A{k}' for k in range(3000))} }}\n"
    f"fn f(e: E) -> f32 {{ return match e {{ "
    f"{' '.join(f'E.A{k} => 1' for k in range(2500))} }} }}",
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_too_deeply(tmp_path: Path, name: str) -> None:
    assert not check(tmp_path, NESTED[name]).ok


@pytest.mark.parametrize("name", ALLOWED)
def test_nested_deeply(tmp_path: Path, name: str) -> None:
    assert check(tmp_path, ALLOWED[name]).ok


@pytest.mark.parametrize("name", LONG)
def test_long_names_and_literals(tmp_path: Path, name: str) -> None:
    assert not check(tmp_path, LONG[name]).ok


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_by_itself(tmp_path: Path, name: str) -> None:
    assert not check(tmp_path, GROWING[name]).ok


@pytest.mark.parametrize("name", MANY)
def test_many_of_a_kind(tmp_path: Path, name: str) -> None:
    check(tmp_path, MANY[name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\x00",
        b"module t\nfn f() -> i64 { return \xff }\n",
        b"module t\nfn f() -> i64 { return \x00 1 }\n",
        b"module t\n/* /* never closed",
        b"}" * 5000,
        b"module t\n" + b"fn " * 10_000,
        b"module t\n" + b"<" * 20_000,
    ],
)
def test_what_is_no_program(tmp_path: Path, data: bytes) -> None:
    assert not check(tmp_path, data).ok


def test_imports(tmp_path: Path) -> None:
    """A long chain is fine, a long cycle is refused."""
    (tmp_path / "src").mkdir()
    manifest = '[package]\nname = "p"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    (tmp_path / "linnet.toml").write_text(manifest)
    count = 300
    for k in range(count):
        text = f"module m\nuse crate.m{k + 1}::{{f as g}}\npub fn f() -> f32 {{ return g() }}\n"
        (tmp_path / "src" / f"m{k}.linnet").write_text(text)
    last = tmp_path / "src" / f"m{count}.linnet"
    last.write_text("module m\npub fn f() -> f32 { return 1 }\n")
    assert check_package(open_package(tmp_path)).ok
    last.write_text("module m\nuse crate.m0::{f as g}\npub fn f() -> f32 { return g() }\n")
    codes = [item.code for item in check_package(open_package(tmp_path)).diagnostics]
    assert codes == ["E1206"]


def tables() -> list[str]:
    """The programs of the other tests."""
    found = []
    for file in sorted(Path(__file__).parent.glob("test_rules_*.py")):
        parts = file.read_text(encoding="utf-8").split('@cases(r"""')[1:]
        for part in parts:
            programs = read(part.split('"""')[0])
            found += [p.modules["lib.linnet"] for p in programs if len(p.modules) == 1]
    return found


def mutate(rng: random.Random, text: str, pool: list[str]) -> str:
    tokens = [t.text for t in tokenize(Source("t", text))[0] if t.kind != "comment"]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        spots = [i for i, token in enumerate(tokens) if token.strip()]
        at = rng.choice(spots)
        match rng.randrange(6):
            case 0 | 1:
                tokens[at] = rng.choice(pool)
            case 2:
                other = rng.choice(spots)
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = ""
            case 4:
                tokens.insert(at, f"{rng.choice(pool)} ")
            case 5:
                tokens[at:at] = tokens[at : at + rng.randrange(15)]
    return "".join(tokens)


def run_mutants(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    texts = tables()
    pool = [t.text for text in texts for t in tokenize(Source("t", text))[0] if t.text.strip()]
    for _ in range(count):
        text = mutate(rng, rng.choice(texts), pool)
        try:
            checked = check(folder, text.encode())
            if checked.program is not None:
                verify_program(checked.program)
        except Exception as error:
            raise AssertionError(text) from error


def test_mutated_programs(tmp_path: Path) -> None:
    run_mutants(tmp_path, 1, 400)


@pytest.mark.fuzz
def test_many_mutated_programs(tmp_path: Path) -> None:
    for seed in range(2, 102):
        run_mutants(tmp_path, seed, 2000)
