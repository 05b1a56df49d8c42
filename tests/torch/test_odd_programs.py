"""Programs that a random generator found: each ran in one policy and not, or not equal, in another."""

from __future__ import annotations

import pytest
import torch
from torch_programs import load_text

import linnet

POLICIES = ("exact", "equivalent", "fast")


@pytest.fixture(params=POLICIES)
def run(request, tmp_path):
    def one(text: str, *args, **keywords):
        return load_text(tmp_path, text, numerics=request.param).f(*args, **keywords)

    return one


def test_a_constant_made_of_another(run):
    """Both are hoisted, whatever the order."""
    text = """
    pub entry f<M: Dim>(x: Tensor[M; i64]) -> (Tensor[3; i64], Tensor[3; i64], Tensor[M; i32]) {
        let first = iota<i64>(3) * 2
        let second = cumsum(first, axis = 0)
        var a = fill<i32>([M], 3)
        let ys = for i in 0..3 {
            a = a - cumsum(a, axis = 0)
            yield second[0] + i
        }
        return (first, second + ys, a)
    }
    """
    first, second, a = run(text, [5, 6])
    assert first.tolist() == [0, 2, 4]
    assert second.tolist() == [0, 3, 8]
    assert a.tolist() == [0, 0]


def test_a_loop_that_needs_no_line(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; i64]) -> (Tensor[N; i64], i64) {
        var a = x
        var n: i64 = 0
        let ys = for i in 0..3 {
            a = a
            yield i
        }
        while n < 2 {
            n = n + 1
            a = a
        }
        return (a, n)
    }
    """
    a, n = run(text, [5, 6])
    assert a.tolist() == [5, 6] and int(n) == 2


def test_literals_as_yields(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32]) -> (Tensor[N; f32], Tensor[3; f64], Tensor[N; u64]) {
        let a = for i in 0..N { yield cast<f32>(0.5) }
        let b = for i in 0..3 { yield 0.25 }
        let c = for i in 0..N { yield cast<u64>(0) - 3 }
        return (a, b, c)
    }
    """
    a, b, c = run(text, [1.0, 2.0])
    assert a.tolist() == [0.5] * 2 and b.tolist() == [0.25] * 3
    assert c.tolist() == [2**64 - 3] * 2


SCALARS = """
    fn total(x: f32) -> f32 {
        var acc = x
        var k: i32 = 0
        while k < 2 {
            acc = sum[r] acc * cast<f32>(iota<i32>(3)[r])
            k = k + 1
        }
        return acc
    }
    fn constant(x: bool) -> f32 { return max(sum[r] cast<f32>(iota<i32>(2)[r]), 0.5) }
    fn chosen(x: i32) -> i32 {
        return if (any[r] iota<i32>(3)[r] == x) { 7 } else { sum[r] iota<i32>(4)[r] * x }
    }
    fn third(a: f32, b: f32) -> f32 { return a }
"""


def test_functions_with_index_notation_inside_index_notation(run):
    text = (
        SCALARS
        + """
    pub entry f<N: Dim, M: Dim>(x: Tensor[N; f32], y: Tensor[M; i32], t: Tensor[9, M; f32]) -> (
        Tensor[N, M; f32], Tensor[N; f32], Tensor[M; i32], f32, Tensor[M; f32]
    ) {
        let a[i, j] = total(x[i]) * cast<f32>(y[j])
        let b[i] = constant(x[i] > 0.0) + x[i]
        let c[j] = chosen(y[j])
        let d = sum[i, j] third(x[i], t[0, j])
        let e[j] = t[min(max(chosen(y[j]), 0), 8), j]
        return (a, b, c, d, e)
    }
    """
    )
    x, y = torch.tensor([1.0, -2.0]), torch.tensor([2, 5, -1])
    t = torch.arange(27.0).reshape(9, 3)
    a, b, c, d, e = run(text, x, y, t)
    assert torch.equal(a, 9 * x[:, None] * y)
    assert torch.equal(b, x + 1)
    assert c.tolist() == [7, 30, -6]
    assert float(d) == -3
    assert e.tolist() == [21, 25, 2]
    a, b, c, d, e = run(text, x[:0], y, t)
    assert a.shape == (0, 3) and b.shape == (0,) and float(d) == 0


def test_lanes_not_wanted_fail_no_check(run):
    """A division or a loop of an element that an `if` does not take."""
    text = """
    fn inverse(x: i32) -> i32 { return 12 / x }
    fn steps(x: i32) -> i32 {
        var n = x
        var k: i32 = 0
        while n != 0 {
            n = n - 1
            k = k + 12 / (n + 1)
        }
        return k
    }
    fn either(x: i32) -> i32 { return if x == 0 { -1 } else { 12 / x } }
    pub entry f<N: Dim>(x: Tensor[N; i32]) -> (Tensor[N; i32], Tensor[N; i32], Tensor[N; i32]) {
        let a[i] = if x[i] != 0 { inverse(x[i]) } else { 5 }
        let b[i] = if x[i] >= 0 { steps(x[i]) } else { 0 }
        let c[i] = either(x[i])
        return (a, b, c)
    }
    """
    a, b, c = run(text, [0, 3, -2])
    assert a.tolist() == [5, 4, -6]
    assert b.tolist() == [0, 4 + 6 + 12, 0]
    assert c.tolist() == [-1, 4, -6]


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16", "u16", "u32", "i64"])
def test_narrow_indices_are_indices(run, dtype):
    text = f"""
    pub entry f<N: Dim, M: Dim>(x: Tensor[2, 4, M; f32], at: Tensor[N; {dtype}]) -> (
        Tensor[N, M; f32], Tensor[2, N; f32], Tensor[4; f32]
    ) where M > 1 {{
        let a[n, m] = x[1, at[n], m]
        let b[k, n] = x[k, at[n], iota<{dtype}>(2)[k]]
        let c[n] = x[0, iota<{dtype}>(4)[n], 0]
        return (a, b, c)
    }}
    """
    x = torch.arange(24.0).reshape(2, 4, 3)
    at = torch.tensor([3, 0, 1, 1])
    a, b, c = run(text, x, at)
    assert torch.equal(a, x[1, at])
    assert torch.equal(b, torch.stack([x[0, at, 0], x[1, at, 1]]))
    assert torch.equal(c, x[0, :, 0])


def test_positions_that_wrap_are_refused(run):
    """`iota<i8>` past 127 and sums in a narrow type are not what their bounds say."""
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
        let y[n] = x[iota<i8>(N)[n]]
        return y
    }
    """
    assert run(text, torch.arange(100.0)).tolist() == list(range(100))
    with pytest.raises(linnet.InputError, match="index"):
        run(text, torch.arange(200.0))
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32], at: Tensor[2; i8]) -> (Tensor[2; f32], Tensor[2; f32]) where N > 150 {
        let y[n] = x[iota<u8>(2)[n] + 255]
        let z[n] = x[at[n] + 100]
        return (y, z)
    }
    """
    x = torch.arange(300.0)
    y, z = run(text, x[:260], [1, 2])
    assert y.tolist() == [255, 0] and z.tolist() == [101, 102]
    with pytest.raises(linnet.InputError, match="index"):
        run(text, x, [1, 50])


def test_an_index_into_nothing_is_refused(run):
    text = """
    pub entry f<N: Dim, K: Dim>(x: Tensor[K; i64], y: Tensor[N, K; f32]) -> (Tensor[3; i64], Tensor[3; f64]) where N > 0 {
        let a[i] = x[min(max(iota<i64>(3)[i] * 2, 0), K - 1)]
        let b[i] = if y[0, iota<i64>(3)[i]] > 0.0 { 1.0 } else { 0.0 }
        return (a, b)
    }
    """
    a, b = run(text, [4, 5, 6], torch.tensor([[1.0, -1.0, 2.0]]))
    assert a.tolist() == [4, 6, 6] and b.tolist() == [1, 0, 1]
    for size in (0, 1, 2):
        with pytest.raises(linnet.InputError, match="index"):
            run(text, torch.zeros(size, dtype=torch.int64), torch.zeros(1, size))


def test_what_nothing_uses_is_refused_all_the_same(run):
    text = """
    fn first(a: f32, b: f32) -> f32 { return a }
    pub entry f(x: Tensor[3; f32], at: i64, ids: Tensor[2; i32], by: i32) -> f32 {
        let unused = x[at % 5]
        let rows[i] = x[ids[i]]
        let part = 7 / (by - 1)
        return first(x[0], rows[0])
    }
    """
    x = torch.arange(3.0)
    assert float(run(text, x, 7, [2, 0], 3)) == 0
    for at, ids, by in ((8, [0, 0], 3), (0, [0, 3], 3), (0, [-1, 0], 3), (0, [0, 0], 1)):
        with pytest.raises(linnet.InputError):
            run(text, x, at, ids, by)


def test_what_is_not_computed_is_not_refused(run):
    """An index for elements of which there are none."""
    text = """
    pub entry f<N: Dim, M: Dim>(x: Tensor[3; f32], ids: Tensor[2; i32], y: Tensor[N; f32], z: Tensor[M; f32]) -> (
        Tensor[2, N; f32], Tensor[2; f32]
    ) {
        let a[i, n] = x[ids[i]] + y[n]
        let b[i] = sum[m] x[ids[i] + 1] * z[m]
        return (a, b)
    }
    """
    x, some, none_ = torch.arange(3.0), torch.ones(2), torch.ones(0)
    a, b = run(text, x, [5, -7], none_, none_)
    assert a.shape == (2, 0) and b.tolist() == [0, 0]
    assert run(text, x, [1, 0], some, some)[1].tolist() == [4, 2]
    for y, z in ((some, none_), (none_, some)):
        with pytest.raises(linnet.InputError, match="ids"):
            run(text, x, [5, -7], y, z)


def test_a_place_in_a_cache_that_no_argument_bounds(run):
    text = """
    use std.nn.cache::{write_span}
    pub entry f<N: Dim>(x: Tensor[N; f32], at: i32) -> Tensor[1, 1, 6, 1; f32] where N > 0 {
        let value = reshape(x, [1, 1, N, 1])
        return write_span(fill<f32>([1, 1, 6, 1], 0.0), value, min(max(at % 7, 0), 6 - N))
    }
    """
    assert run(text, torch.ones(2), 9).flatten().tolist() == [0, 0, 1, 1, 0, 0]
    with pytest.raises(linnet.InputError, match="index -1"):
        run(text, torch.ones(7), 0)


def test_odd_scalars(run):
    text = """
    enum Mode { Plain, Twice }
    fn g(c: bool) -> bool {
        let a = if c { Mode.Plain } else { Mode.Twice }
        return a == Mode.Twice || Mode.Plain != Mode.Plain
    }
    pub entry f<N: Dim>(x: Tensor[N; bf16], c: bool) -> (Tensor[N; bf16], Tensor[N; bf16], u8, bool) {
        let counted[i] = iota<bf16>(N)[i] + x[i]
        let one = fill<u8>([1], 255)[0]
        return (counted, 100.0 / x, one, g(c))
    }
    """
    x = torch.tensor([3.0, 7.0, 13.0], dtype=torch.bfloat16)
    a, b, c, d = run(text, x, False)
    assert a.tolist() == [3, 8, 15] and int(c) == 255 and bool(d)
    assert torch.equal(b, (100.0 / x.double()).to(torch.bfloat16))  # rounded once


def test_a_value_used_twice_by_what_is_used_twice(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; i64]) -> Tensor[N; i64] {
        var y = x
        static for i in 0..40 { y = y + y }
        let z[i] = y[i] + 1
        return z
    }
    """
    assert run(text, [1, 3]).tolist() == [2**40 + 1, 3 * 2**40 + 1]


def test_states_of_one_number(tmp_path):
    text = """
    pub block Root {
        state count: i64
        state mean: f32
        state seen: bool
        pub entry step(x: f32) -> (i64, f32, bool, i64) {
            let (before, mid, was) = (count, mean, seen)
            count = count - 3
            mean = mean + x
            seen = true
            return (before, mid, was, count / 2)
        }
    }
    """
    for policy in POLICIES:
        model = load_text(tmp_path, text, numerics=policy)
        first, second = model.step(2.5), model.step(1.0)
        assert [x.item() for x in first] == [0, 0, False, -1]
        assert [x.item() for x in second] == [-3, 2.5, True, -3]
        assert [model.state[n].item() for n in ("count", "mean", "seen")] == [-6, 3.5, True]


def test_a_choice_that_is_known_computes_both_sides(run):
    text = """
    pub entry f(x: Tensor[2; i32]) -> Tensor[2; i32] {
        let y[i] = select(iota<i64>(2)[i] <= 2, x[i], x[iota<i64>(2)[i] + 1])
        return y
    }
    """
    with pytest.raises(linnet.InputError, match="index 2"):
        run(text, [1, 2])


def test_floats_past_the_signed_integers(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; u64] { return cast<u64>(x) }
    """
    x = torch.tensor([2.0**63, 1.5 * 2.0**63, 3.0])
    assert run(text, x).tolist() == [2**63, 3 * 2**62, 3]


def test_what_passes_find_in_a_constant(run):
    """The order of numbers that depend on no input; a number's remainder by a tensor."""
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32]) -> (Tensor[4; i32], Tensor[N; f32]) {
        let t = iota<i32>(4)
        let c[i] = (t[i] * 7) % 5
        let rank[i] = sum<i32>[j] select(c[j] > c[i] || (c[j] == c[i] && t[j] < t[i]), 1, 0)
        return (rank, -2.5 % x)
    }
    """
    rank, rest = run(text, torch.tensor([2.0, -1.0]))
    assert rank.tolist() == [3, 1, 0, 2] and rest.tolist() == [-0.5, -0.5]


def test_an_argument_that_a_function_of_elements_ignores(run):
    text = """
    fn second(a: f32, b: f32) -> f32 { return b * 2.0 }
    pub entry f(x: Tensor[3; f32], z: Tensor[2; f32], by: i64) -> Tensor[2; f32] {
        let y[i] = second(x[iota<i64>(2)[i] + by], z[i])
        return y
    }
    """
    assert run(text, [1.0, 2.0, 3.0], [1.0, 2.0], 1).tolist() == [2, 4]
    with pytest.raises(linnet.InputError):
        run(text, [1.0, 2.0, 3.0], [1.0, 2.0], 2)


def test_a_mask_that_is_the_same_for_all_rows(run):
    text = """
    pub entry f<N: Dim>(x: Tensor[N; f32]) -> Tensor[3, N; bool] {
        let y[i, n] = iota<i64>(N)[n] < 1 && iota<i64>(3)[i] >= 0
        return y
    }
    """
    assert run(text, torch.zeros(2)).tolist() == [[True, False]] * 3


def test_an_index_found_on_the_way_to_nothing(run):
    text = """
    pub entry f<N: Dim, M: Dim>(x: Tensor[3; i64], y: Tensor[N; f32], z: Tensor[M; f32]) -> Tensor[3, M; f32] {
        let a[i, m] = y[x[i] * 2] + z[m]
        return a
    }
    """
    x = torch.tensor([0, 1, 2])
    assert run(text, x, torch.zeros(0), torch.zeros(0)).shape == (3, 0)
    assert run(text, x, torch.arange(5.0), torch.zeros(1)).flatten().tolist() == [0, 2, 4]
    with pytest.raises(linnet.InputError, match="index"):
        run(text, x, torch.arange(4.0), torch.zeros(1))


def test_a_division_after_a_state_was_written(tmp_path):
    text = """
    pub block Root {
        state a: Tensor[2; f32]
        pub entry f(x: Tensor[2; f32], n: i32) -> i32 {
            a = x
            return 6 / n
        }
    }
    """
    for policy in POLICIES:
        model = load_text(tmp_path, text, numerics=policy)
        assert int(model.f([1.0, 2.0], 4)) == 1
        with pytest.raises(linnet.InputError, match="division by zero"):
            model.f([5.0, 6.0], 0)
        assert model.state["a"].tolist() == [1, 2]


def test_a_mask_with_a_limit_for_each_key(run):
    text = """
    pub entry f(a: Tensor[3; i64]) -> Tensor[3; bool] {
        let m[k] = iota<i64>(3)[k] <= a[k]
        return m
    }
    """
    assert run(text, [0, 0, 2]).tolist() == [True, False, True]


def test_a_sum_that_some_lanes_want(run):
    """The same for all of them, with indices that are asked for there only."""
    text = """
    pub entry f<S: Dim>(x: Tensor[S; f32], y: Tensor[5, 2; i32], at: Tensor[5; i64]) -> Tensor[S; i32] {
        let r[i] = if x[i] > 0.0 { sum[j] y[j, at[j]] } else { 7 }
        return r
    }
    """
    y = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert run(text, [1.0, -1.0], y, [0, 1, 0, 1, 0]).tolist() == [27, 7]
    assert run(text, [-1.0, -1.0], y, [0, 1, 9, 1, 0]).tolist() == [7, 7]
    with pytest.raises(linnet.InputError):
        run(text, [-1.0, 1.0], y, [0, 1, 9, 1, 0])


def test_narrow_scalars_past_all_bounds(run):
    text = """
    pub entry f(a: f16, b: bf16) -> Tensor[2; f32] {
        let r[i] = select(iota<i32>(2)[i] == 0, cast<f32>(a), cast<f32>(b))
        return r
    }
    """
    for number in (float("inf"), float("-inf")):
        assert run(text, number, number).tolist() == [number, number]
    assert run(text, float("nan"), float("nan")).isnan().all()
    big = run(text, 1e6, 3.4e38).tolist()
    assert big[0] == float("inf") and big[1] > 3e38


def test_an_index_into_what_is_known_is_asked_for_all_the_same(run):
    text = """
    pub entry f<S: Dim>(at: Tensor[S; i64]) -> Tensor[S; i64] {
        let yes = fill<bool>([S], true)
        let r[i] = select(yes[at[i]], 1, 0)
        return r
    }
    """
    assert run(text, [1, 0]).tolist() == [1, 1]
    with pytest.raises(linnet.InputError, match="at"):
        run(text, [1, 2])


@pytest.mark.parametrize("table", ["fill<i64>([5], 7)", "cumsum(iota<i64>(5), axis = 0)"])
def test_what_depends_on_nothing_is_refused_all_the_same(run, table):
    """Its index may wrap, so nothing is known of it."""
    text = f"""
    pub entry f(x: Tensor[2; i64]) -> Tensor[5; i64] {{
        let table = {table}
        let r[i] = table[iota<u8>(5)[i] + OFFSET] + x[0]
        return r
    }}
    """
    assert len(run(text.replace("OFFSET", "0"), [1, 0])) == 5
    with pytest.raises(linnet.InputError, match="outside axis 0"):
        run(text.replace("OFFSET", "2"), [1, 0])
