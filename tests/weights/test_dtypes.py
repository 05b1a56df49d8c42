"""Conversion between float formats, against torch bit for bit."""

from __future__ import annotations

import pytest

from linnet.weights.dtypes import CHUNK, bytes_of, convert, widens

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def as_bytes(tensor: object) -> memoryview:
    return memoryview(tensor.contiguous().view(torch.uint8).numpy().reshape(-1)).cast("B")  # type: ignore[attr-defined]


def test_sizes() -> None:
    assert bytes_of("bool", (3,)) == 3
    assert bytes_of("bf16", (2, 3)) == 12
    assert bytes_of("f64", ()) == 8
    assert bytes_of("f32", (0, 5)) == 0


@pytest.mark.parametrize("target", TORCH)
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_16_bit_value(source: str, target: str) -> None:
    raw = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    values = raw.view(TORCH[source])
    result = torch.frombuffer(convert(as_bytes(values), source, target), dtype=TORCH[target])
    expected = values.to(TORCH[target])
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result[~result.isnan()], expected[~expected.isnan()])


@pytest.mark.parametrize("target", ["f16", "bf16", "f64"])
def test_f32_bits_of_all_kinds(target: str) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(1 << 31), 1 << 31, (200_000,), generator=generator).to(torch.int32)
    ties = (torch.arange(1 << 16, dtype=torch.int64) << 16 | 0x8000).to(torch.int32)
    values = torch.cat([bits, ties, ties + 1, ties - 1]).view(torch.float32)
    result = torch.frombuffer(convert(as_bytes(values), "f32", target), dtype=TORCH[target])
    expected = values.to(TORCH[target])
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result[~result.isnan()], expected[~expected.isnan()])


def test_f64_to_bf16_rounds_once() -> None:
    # Just above a tie of bf16, by less than f32 can show: two roundings would go down.
    for sign in (1.0, -1.0):
        value = sign * (1 + 2**-8 + 2**-40)
        raw = memoryview(np.array([value, np.inf, np.nan, 1e300, 0.0])).cast("B")
        result = torch.frombuffer(convert(raw, "f64", "bf16"), dtype=torch.bfloat16)
        assert result[0] == sign * (1 + 2**-7)
        assert result[1] == float("inf") and result[2].isnan() and result[3] == float("inf")
        assert result[4] == 0


def test_more_than_a_chunk() -> None:
    values = torch.randn(CHUNK * 2 + 3)
    result = torch.frombuffer(convert(as_bytes(values), "f32", "bf16"), dtype=torch.bfloat16)
    assert torch.equal(result, values.bfloat16())


def test_widening_is_inclusion() -> None:
    assert widens("bf16", "f32") and widens("f16", "f64") and widens("f32", "f32")
    assert not widens("f16", "bf16") and not widens("bf16", "f16") and not widens("f32", "bf16")
    assert not widens("i8", "f32")
