"""Few bits: layouts read back, the scale that leaves least error, files that carry them."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.errors import WeightsError
from linnet.weights.packed import (
    Packed,
    group_of,
    quantize_rows,
    read_packed,
    round_rows,
    unpack_rows,
)
from linnet.weights.packed import sizes as sizes_of
from linnet.weights.quantize import quantize_values


def packed(values: np.ndarray, kind: str) -> Packed:
    width = values.shape[-1]
    rows = values.reshape(-1, width)
    return quantize_values(lambda a, b: rows[a:b], values.shape, kind)


def test_groups_divide_the_row() -> None:
    assert [group_of(n) for n in (2048, 576, 96, 100, 0)] == [128, 64, 32, None, None]
    assert sizes_of("int4", (10, 576)) == (288, 9)


def test_int4_layout() -> None:
    """Byte j of a group: element j low, element j + group / 2 high; 8 is zero."""
    values = np.zeros((1, 32), np.float32)
    values[0, 0], values[0, 16], values[0, 5] = -8, 3, 7
    data, scale = quantize_rows(values, "int4")
    assert scale[0, 0] == 1
    assert data[0, 0] == 0 | 11 << 4
    assert data[0, 5] == 15 | 8 << 4


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("width", [32, 192, 512])
def test_what_a_format_can_hold_comes_back_exactly(kind: str, width: int) -> None:
    random = np.random.default_rng(width)
    low, high = (-127, 128) if kind == "int8" else (-8, 8)
    q = random.integers(low, high, (6, width)).astype(np.float32)
    q[:, :: group_of(width)] = low
    values = q * 0.25
    made = packed(values, kind)
    assert np.array_equal(unpack_rows(made, 0, 6), values)
    assert np.array_equal(unpack_rows(made, 2, 4), values[2:4])
    assert np.frombuffer(read_packed(made, "f32"), np.float32).tolist() == values.ravel().tolist()


@pytest.mark.parametrize("shape", [(64, 512), (3, 8, 128)])
@pytest.mark.parametrize("draw", ["normal", "heavy tails"])
def test_int4_has_less_error_than_plain_rounding(shape: tuple[int, ...], draw: str) -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=shape) if draw == "normal" else random.standard_t(4, size=shape)
    values = values.astype(np.float32)
    made = packed(values, "int4")
    error = np.square(unpack_rows(made, 0, made.rows).reshape(shape) - values).mean()
    assert error < 0.75 * np.square(round_rows(values, "int4") - values).mean()


def test_zero_groups_and_tiny_values() -> None:
    values = np.zeros((2, 64), np.float32)
    values[1] = 1e-42  # below the least normal number: no scale can be the inverse of one
    made = packed(values, "int4")
    assert np.abs(unpack_rows(made, 0, 2)).max() <= 1e-41
    assert np.isfinite(unpack_rows(packed(values, "int8"), 0, 2)).all()


def test_a_value_that_is_not_finite_is_refused() -> None:
    values = np.zeros((70, 64), np.float32)
    values[66, 3] = np.inf
    with pytest.raises(WeightsError, match="row 66 holds a value that is not finite"):
        packed(values, "int8")
