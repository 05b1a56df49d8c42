"""The normal form: equality, printing, reading back, limits."""

from __future__ import annotations

import copy
import pickle

import pytest

from linnet.dims import Dim, DimTooLarge, parse_dim

SAME = [
    ("1 + n", "n + 1"),
    ("Heads * HeadDim * 2", "Heads * (2 * HeadDim)"),
    ("Width - 1 + 1", "Width"),
    ("2 * K * D - K * D", "K * D"),
    ("H / 2 / 3", "H / 6"),
    ("H / 2 % 3", "H / 2 - 3 * (H / 6)"),
    ("(H + 8) / 4", "H / 4 + 2"),
    ("(H - 3) / 2 + 1", "(H - 1) / 2"),
    ("(S - 1) / 4 + 1", "(S + 3) / 4"),
    ("(4 * H + 6) / 8", "(2 * H + 3) / 4"),
    ("(2 * H + 3) / 4", "(H + 1) / 2"),
    ("(8 * H) % 4", "0"),
    ("H % 4 % 4", "H % 4"),
    ("x / (x + 1)", "0"),
    ("min(S, S + K)", "S"),
    ("max(S, S + K)", "S + K"),
    ("min(a, min(c, b))", "min(min(b, a), c)"),
    ("(x * (n + 1)) / (n + 1)", "x"),
    ("(S * (N + 2) + N + 1) / (N + 2)", "S"),
    ("-7 / 2", "-4"),
    ("-7 % 2", "1"),
    ("(a + b) * (a - b)", "a * a - b * b"),
    ("S * S * S", "S * (S * S)"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_equal_after_normalization(left: str, right: str) -> None:
    assert parse_dim(left) == parse_dim(right)
    assert hash(parse_dim(left)) == hash(parse_dim(right))


DIFFERENT = [("x / x", "1"), ("H / 2 + H / 2", "H"), ("K * (V / K)", "V"), ("0 / x", "0")]


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_not_equal_without_an_assumption(left: str, right: str) -> None:
    assert parse_dim(left) != parse_dim(right)


PRINTED = [
    ("0", "0"),
    ("2*KeyHeads*KeyDim+1", "2 * KeyDim * KeyHeads + 1"),
    ("H - H/4", "H - H / 4"),
    ("(S - 1) / 4", "(S - 1) / 4"),
    ("(H + 2*Pad - K) / Stride + 1", "(H - K + 2 * Pad) / Stride + 1"),
    ("H % 8", "H % 8"),
    ("(HeadDim / 4) % 2", "(HeadDim / 4) % 2"),
    ("3 + (H + 1) % 4", "(H + 1) % 4 + 3"),
    ("-(A / 3)", "-(A / 3)"),
    ("-4 / A", "-4 / A"),
    ("K * (V / K)", "K * (V / K)"),
    ("W - H", "W - H"),
    ("-H + W", "W - H"),
    ("*S * H", "*S * H"),
    ("H * *S + *T", "*S * H + *T"),
    ("min(0, H - 4)", "min(H - 4, 0)"),
    ("H * H", "H * H"),
    ("x / (a * b)", "x / (a * b)"),
]


@pytest.mark.parametrize(("text", "printed"), PRINTED)
def test_print(text: str, printed: str) -> None:
    dim = parse_dim(text)
    assert str(dim) == printed
    assert parse_dim(printed) == dim


def test_integers_stand_for_constants() -> None:
    h = Dim.name("H")
    assert 1 + h == h + 1 and 3 - h == -(h - 3) and 2 * h == h + h
    assert Dim.const(7) == 7 and hash(Dim.const(7)) == hash(7)
    assert (Dim.const(7) // 2).constant == 3 and (Dim.const(7) % 4).constant == 3
    assert 7 // (h + 8) == 0 and 7 % (h + 8) == 7
    assert h.constant is None and (h - h).constant == 0


def test_substitute_all_at_once() -> None:
    dim = parse_dim("a + 2 * b + a / b")
    swapped = dim.substitute({"a": Dim.name("b"), "b": Dim.name("a")})
    assert swapped == parse_dim("b + 2 * a + b / a")
    assert dim.substitute({"a": 8, "b": 3}).constant == 16
    assert dim.evaluate({"a": 8, "b": 3}) == 16
    assert parse_dim("H / 4").substitute({"H": parse_dim("8 * k")}) == parse_dim("2 * k")


def test_names_include_those_inside_atoms() -> None:
    assert parse_dim("a * min(b, *S / c)").names() == {"a", "b", "*S", "c"}


def test_python() -> None:
    dim = parse_dim("H % 4 + *S * (min(a, b) / 3) - max(a, max(b, c))")
    source = dim.python(lambda name: "n_" + name.replace("*", "p_"))
    values = {"H": 7, "*S": 5, "a": 9, "b": 6, "c": 1}
    local = {"n_" + name.replace("*", "p_"): value for name, value in values.items()}
    assert eval(source, dict(local)) == dim.evaluate(values) == 3 + 10 - 9


def test_evaluate_errors() -> None:
    with pytest.raises(KeyError):
        parse_dim("H + 1").evaluate({})
    with pytest.raises(ZeroDivisionError):
        parse_dim("H / K").evaluate({"H": 1, "K": 0})


def test_copies_are_equal() -> None:
    dim = parse_dim("min(a / b, *S) + 2 * H")
    assert copy.deepcopy(dim) == dim
    assert pickle.loads(pickle.dumps(dim)) == dim


@pytest.mark.parametrize("text", ["", "1 +", "a b", "(a", "a)", "#", "min(a", "a ** ** b", "== 1"])
def test_not_a_dimension(text: str) -> None:
    with pytest.raises(ValueError):
        parse_dim(text)


def power_of_sum() -> Dim:
    result, base = Dim.const(1), parse_dim("a + b + c + d")
    for _ in range(40):
        result = result * base
    return result


def tower() -> Dim:
    result = Dim.name("x")
    for i in range(10_000):
        result = Dim.min(result * result, Dim.name(f"n{i}")) // 7
    return result


def long_sum() -> Dim:
    result = Dim.const(0)
    for i in range(10_000):
        result = result + Dim.name(f"n{i}")
    return result


def large_integer() -> Dim:
    result = Dim.const(2**62)
    for _ in range(20):
        result = result * result
    return result


def brackets() -> Dim:
    return parse_dim("(" * 100_000 + "a" + ")" * 100_000)


@pytest.mark.parametrize("build", [power_of_sum, tower, long_sum, large_integer, brackets])
def test_explosions_are_refused(build) -> None:
    with pytest.raises(DimTooLarge):
        build()
