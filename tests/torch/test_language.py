"""The language's meaning in every policy: small programs with answers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch_programs import load_text

import linnet

POLICIES = ("exact", "equivalent", "fast")


@pytest.fixture(params=POLICIES)
def run(request, tmp_path):
    """`run(text, *args)` calls the entry `f` of a program under the policy."""

    def one(text: str, *args, entry: str = "f", **keywords):
        model = load_text(tmp_path, text, numerics=request.param)
        return model.entries[entry](*args, **keywords)

    return one


def integers(dtype: str) -> list[int]:
    bits = int(dtype[1:])
    if dtype[0] == "u":
        return [0, 1, 2, 7, 2 ** (bits - 1), 2**bits - 2, 2**bits - 1]
    top = 2 ** (bits - 1)
    return [0, 1, -1, 2, -3, 7, top - 1, 1 - top, -top]


def as_tensor(values: list[int], dtype: str) -> torch.Tensor:
    torch_dtype = getattr(torch, {"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    if dtype == "u64":
        wrapped = [v - 2**64 if v >= 2**63 else v for v in values]
        return torch.tensor(wrapped, dtype=torch.int64).view(torch.uint64)
    return torch.tensor(values, dtype=torch.int64).to(torch_dtype)


def listed(x: torch.Tensor) -> list[int]:
    if x.dtype == torch.uint64:
        return [v % 2**64 for v in x.view(torch.int64).flatten().tolist()]
    return x.to(torch.int64).flatten().tolist()


def wrapped(value: int, dtype: str) -> int:
    bits = int(dtype[1:])
    value %= 2**bits
    return value - 2**bits if dtype[0] == "i" and value >> (bits - 1) else value


def quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_integer_arithmetic(run, dtype):
    """Wraps; `/` and `%` truncate; also where the quotient does not fit."""
    text = f"""
    pub entry f<N: Dim>(a: Tensor[N; {dtype}], b: Tensor[N; {dtype}], c: Tensor[N; {dtype}]) -> (
        Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; {dtype}],
        Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; bool]
    ) {{
        let s[n] = a[n] + b[n]
        return (s, a - b, a * b, a / c, a % c, -a, max(min(a, b), c), a < b)
    }}
    """
    values = integers(dtype)
    pairs = [(a, b) for a in values for b in values]
    a, b = ([p[i] for p in pairs] for i in (0, 1))
    c = [x or 3 for x in b]
    got = run(text, *(as_tensor(v, dtype) for v in (a, b, c)))
    want = [
        [wrapped(x + y, dtype) for x, y in pairs],
        [wrapped(x - y, dtype) for x, y in pairs],
        [wrapped(x * y, dtype) for x, y in pairs],
        [wrapped(quotient(x, z), dtype) for x, z in zip(a, c, strict=True)],
        [wrapped(x - quotient(x, z) * z, dtype) for x, z in zip(a, c, strict=True)],
        [wrapped(-x, dtype) for x in a],
        [max(min(x, y), z) for x, y, z in zip(a, b, c, strict=True)],
        [int(x < y) for x, y in pairs],
    ]
    for result, expected in zip(got, want, strict=True):
        assert listed(result) == expected


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8", "u32", "u64"])
def test_bits_and_shifts(run, dtype):
    text = f"""
    pub entry f<N: Dim>(a: Tensor[N; {dtype}], s: Tensor[N; {dtype}]) -> (
        Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; {dtype}], Tensor[N; {dtype}]
    ) {{
        return (shl(a, s), shr(a, s), (a & s) | (a ^ s), abs(a))
    }}
    """
    bits = int(dtype[1:])
    pairs = [(a, s) for a in integers(dtype) for s in (0, 1, 3, bits - 1)]
    got = run(text, *(as_tensor([p[i] for p in pairs], dtype) for i in (0, 1)))
    assert listed(got[0]) == [wrapped(a << s, dtype) for a, s in pairs]
    assert listed(got[1]) == [a >> s for a, s in pairs]
    assert listed(got[2]) == [wrapped((a & s) | (a ^ s), dtype) for a, s in pairs]
    assert listed(got[3]) == [wrapped(abs(a), dtype) for a, _ in pairs]


def test_casts(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32], i: Tensor[N; i64], d: Tensor[N; f64]) -> (
        Tensor[N; i32], Tensor[N; bool], Tensor[N; i8], Tensor[N; u32], Tensor[N; bf16],
        Tensor[N; f16], Tensor[N; i64]
    ) {
        return (cast<i32>(x), cast<bool>(x), cast<i8>(i), cast<u32>(i), cast<bf16>(d),
                cast<f16>(d), cast<i64>(cast<bool>(i)))
    }
    """
    x = torch.tensor([1.9, -1.9, 0.0, -0.5])
    i = torch.tensor([300, -1, 0, 2**33 + 5])
    # Just above the tie of bf16: rounding by way of f32 would round down.
    d = torch.tensor(
        [1 + 2**-8 + 2**-40, 1 + 2**-8, 70000.0, 1 + 2**-11 + 2**-40], dtype=torch.float64
    )
    got = run(text, x, i, d)
    assert got[0].tolist() == [1, -1, 0, 0]
    assert got[1].tolist() == [True, True, False, True]
    assert got[2].tolist() == [44, -1, 0, 5]
    assert listed(got[3]) == [300, 2**32 - 1, 0, 5]
    assert got[4].tolist()[:2] == [1 + 2**-7, 1.0]
    assert got[5].tolist()[2:] == [math.inf, 1 + 2**-10]
    assert got[6].tolist() == [1, 1, 0, 1]


def test_reductions(run):
    text = """
    pub entry f<M: Dim, N: Dim>(x: Tensor[M, N; f32], b: Tensor[M, N; bool], i: Tensor[M, N; i8]) -> (
        Tensor[M; f32], Tensor[M; f32], Tensor[M; f32], Tensor[M; bool], Tensor[M; bool],
        Tensor[M; i8], i8, Tensor[M; i8]
    ) {
        let biggest[m] = max[n] x[m, n]
        let least[m] = min[n] x[m, n]
        let product[m] = prod[n] x[m, n]
        let some_of[m] = any[n] b[m, n]
        let all_of[m] = all[n] b[m, n]
        let total[m] = sum[n] i[m, n]
        let whole = sum[m, n] i[m, n]
        let top[m] = max[n] i[m, n]
        return (biggest, least, product, some_of, all_of, total, whole, top)
    }
    """
    x = torch.tensor([[1.0, 2, -3], [4, 5, 6]])
    i = torch.tensor([[100, 100, 1], [-5, 2, 3]], dtype=torch.int8)
    got = run(text, x, x > 0, i)
    assert got[0].tolist() == [2, 6] and got[1].tolist() == [-3, 4]
    assert got[2].tolist() == [-6, 120]
    assert got[3].tolist() == [True, True] and got[4].tolist() == [False, True]
    assert got[5].tolist() == [wrapped(201, "i8"), 0] and int(got[6]) == wrapped(201, "i8")
    got = run(text, x[:, :0], x[:, :0] > 0, i[:, :0])  # nothing to reduce
    assert got[0].tolist() == [-math.inf] * 2 and got[1].tolist() == [math.inf] * 2
    assert got[2].tolist() == [1, 1] and got[3].tolist() == [False] * 2
    assert got[4].tolist() == [True] * 2 and got[5].tolist() == [0, 0]
    assert got[7].tolist() == [-128, -128]


def test_narrow_sums_accumulate_wide(run):
    """256 ones in bf16 and one more: rounded once, at the end."""
    text = """
    pub entry f<N: Dim>(x: Tensor[N; bf16]) -> (bf16, bf16) {
        let a = sum[n] x[n]
        let b = sum[n] x[n] * x[n] * 0.5
        return (a, b)
    }
    """
    a, b = run(text, torch.ones(512, dtype=torch.bfloat16))
    assert float(a) == 512 and float(b) == 256


def test_index_notation(run):
    text = """
    pub entry f<B: Dim, M: Dim, N: Dim>(
        x: Tensor[M, M; f32], y: Tensor[B, N, M; f32], at: Tensor[B; i32]
    ) -> (
        Tensor[M; f32], Tensor[N, M, B; f32], Tensor[B, M; f32], Tensor[M, N; f32], Tensor[B, M; f32]
    ) where B > 0, M > 0 {
        let diagonal[m] = x[m, m]
        let turned[n, m, b] = y[b, n, m]
        let picked[b, m] = y[b, at[b], m]
        let outer[m, n] = x[m, 0] * y[0, n, m]
        let moved[b, m] = y[b, cast<i64>(at[b]) - 1, m] + x[at[b], m]
        return (diagonal, turned, picked, outer, moved)
    }
    """
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 3, generator=generator), torch.randn(2, 3, 3, generator=generator)
    at = torch.tensor([1, 2])
    got = run(text, x, y, at)
    assert torch.equal(got[0], x.diagonal())
    assert torch.equal(got[1], y.permute(1, 2, 0))
    assert torch.equal(got[2], y[torch.arange(2), at])
    assert torch.equal(got[3], x[:, :1] * y[0].t())
    assert torch.equal(got[4], y[torch.arange(2), at - 1] + x[at])
    with pytest.raises(linnet.InputError, match="at"):
        run(text, x, y, torch.tensor([0, 2]))
    with pytest.raises(linnet.InputError, match="at"):
        run(text, x, y, torch.tensor([1, 3]))


def test_an_index_not_wanted_fails_no_check(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32], at: Tensor[N; i32]) -> Tensor[N; f32] {
        let y[n] = if at[n] >= 0 { x[at[n]] } else { -1.0 }
        return y
    }
    """
    assert run(text, [5.0, 6.0], [-7, 1]).tolist() == [-1, 6]
    with pytest.raises(linnet.InputError, match="index 2"):
        run(text, [5.0, 6.0], [2, 0])


def test_control_flow(run):
    text = """
    enum Mode { Low, High }
    struct Pair { first: i32, second: Tensor[2; f32] }
    fn pick(mode: Mode, x: f32) -> f32 {
        return match mode {
            Mode.Low => x
            Mode.High => x * 10.0
        }
    }
    pub entry f(mode: Mode, x: Tensor[2; f32]?, p: Pair, n: i32) -> (f32, i32, Tensor[4; i64], i32) {
        let base = match x {
            some(v) => v[1]
            none => 0.5
        }
        var i = n - n
        var total = n - n
        while i < n {
            i = i + 1
            total = total + i * p.first
        }
        var last = n
        let ys = for k in 0..4 {
            last = last + 1
            yield k * k
        }
        return (pick(mode, base) + p.second[0], total, ys, last)
    }
    """
    pair = {"first": 2, "second": [1.0, 9.0]}
    got = run(text, "High", [1.0, 2.0], pair, 4)
    assert float(got[0]) == 21 and int(got[1]) == 20 and got[2].tolist() == [0, 1, 4, 9]
    assert int(got[3]) == 8
    assert float(run(text, "Low", None, pair, 0)[0]) == 1.5
    with pytest.raises(linnet.InputError, match="mode"):
        run(text, "Middle", None, pair, 0)


def test_shapes(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N, 6; f32]) -> (
        Tensor[N, 3; f32], Tensor[N, 2, 3; f32], Tensor[N + 2, 6; f32], Tensor[N, 6; f32], Tensor[N; f32],
        Tensor[2, N; i32]
    ) {
        let zeros = fill<f32>([2, 6], 0.0)
        return (
            x[..., 1::2],
            reshape(x, [N, 2, 3]),
            concat(x, zeros, axis = 0),
            cumsum(x, axis = -1),
            x[:, 4],
            broadcast_to(iota<i32>(N), [2, N]),
        )
    }
    """
    x = torch.arange(18.0).reshape(3, 6)
    got = run(text, x)
    assert torch.equal(got[0], x[:, 1::2]) and torch.equal(got[1], x.reshape(3, 2, 3))
    assert torch.equal(got[2], torch.cat((x, torch.zeros(2, 6))))
    assert torch.equal(got[3], x.cumsum(-1)) and torch.equal(got[4], x[:, 4])
    assert got[5].tolist() == [[0, 1, 2]] * 2


def test_functions_of_elements(run):
    """A scalar function inside index notation, with a branch and a loop of its own."""
    text = """
    fn steps(x: i64) -> i64 {
        var n = x
        var count = x - x
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 }
            count = count + 1
        }
        return count
    }
    pub entry f<N: Dim>(x: Tensor[N; i64]) -> Tensor[N; i64] {
        let y[n] = steps(x[n])
        return y
    }
    """
    assert run(text, [1, 2, 3, 7, 27]).tolist() == [0, 1, 7, 16, 111]


def test_integer_division_by_zero_is_an_input_error(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; i32], d: Tensor[N; i32]) -> Tensor[N; i32] {
        return x / d
    }
    """
    with pytest.raises(linnet.InputError, match="zero"):
        run(text, [1, 2], [1, 0])
