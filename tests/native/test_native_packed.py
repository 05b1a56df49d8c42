"""Packed weights: the values that each format means, one row the same as among many, bit for bit."""

from __future__ import annotations

import ctypes
import os
import random as random_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linnet.check.path import check_path
from linnet.ir.passes.pipeline import optimize
from linnet.ir.specialize import specialize
from linnet.native import compiler
from linnet.native.module import NativeModule

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

PROGRAM = """module packed

use std.nn.decoding::{top_k}
use std.nn.embedding::{embedding}
use std.nn.linear::{linear}
use std.nn.moe::{linear_experts_shared}

pub block Packed {
    param weight: Tensor[OUT, IN; f32]
    param experts: Tensor[6, OUT, IN; f32]

    pub entry apply<N: Dim>(x: Tensor[N, IN; f32]) -> Tensor[N, OUT; f32] {
        return linear(x, weight)
    }
    pub entry chosen<N: Dim>(
        x: Tensor[N, IN; f32], score: Tensor[N, 6; f32],
    ) -> Tensor[N, 2, OUT; f32] {
        let (_, who) = top_k<2>(score)
        return linear_experts_shared(x, experts, who)
    }
    pub entry rows<N: Dim>(ids: Tensor[N; i32]) -> Tensor[N, IN; f32] {
        return embedding(ids, weight)
    }
}
"""


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16)


def nibbles(q: np.ndarray, group: int) -> np.ndarray:
    """Byte j of a group: element j low, element j + group / 2 high."""
    parts = q.reshape(*q.shape[:-1], -1, 2, group // 2).astype(np.uint8)
    return np.ascontiguousarray(parts[..., 0, :] | (parts[..., 1, :] << 4)).reshape(
        *q.shape[:-1], -1
    )


def blocks(*parts: np.ndarray) -> np.ndarray:
    """Blocks `[rows, n, …]` of several fields as bytes, one block after another."""
    views = [np.ascontiguousarray(p).view(np.uint8).reshape(*p.shape[:2], -1) for p in parts]
    return np.ascontiguousarray(np.concatenate(views, -1))


def make(
    kind: str, rows: int, width: int, group: int, random: np.random.Generator
) -> dict[str, Any]:
    """A random weight of a format: its arrays, and the values `[rows, width]` that they mean."""
    if kind in ("int8", "int4", "int4 zero"):
        scale = random.uniform(0.01, 0.1, (rows, width // group)).astype(np.float32)
        zero = None
        if kind == "int8":
            q = random.integers(-127, 128, (rows, width)).astype(np.int8)
            data, centred = q, q.astype(np.float32)
        else:
            q = random.integers(0, 16, (rows, width))
            zeros = np.full_like(scale, 8)
            if kind == "int4 zero":
                zero = random.integers(0, 16, scale.shape).astype(np.uint8)
                zeros = zero.astype(np.float32)
            data, centred = nibbles(q, group), q - np.repeat(zeros, group, -1)
        return {
            "data": data,
            "scale": scale,
            "zero": zero,
            "values": centred * np.repeat(scale, group, -1),
        }
    n = width // 32
    d = half(random.uniform(0.01, 0.1, (rows, n, 1)))
    wide = d.astype(np.float32)
    if kind in ("q4_0", "q4_1"):
        q = random.integers(0, 16, (rows, n, 32))
        if kind == "q4_0":
            return {
                "data": blocks(d, nibbles(q, 32)),
                "values": ((q - 8) * wide).reshape(rows, width),
            }
        m = half(random.normal(0, 0.3, (rows, n, 1)))
        return {"data": blocks(d, m, nibbles(q, 32)),
                "values": (q * wide + m.astype(np.float32)).reshape(rows, width)}  # fmt: skip
    if kind == "q8_0":
        q = random.integers(-127, 128, (rows, n, 32)).astype(np.int8)
        return {"data": blocks(d, q), "values": (q * wide).reshape(rows, width)}
    n = width // 256
    d = half(random.uniform(0.001, 0.01, (rows, n, 1)))
    wide = d.astype(np.float32)
    if kind == "q6_k":
        q = random.integers(0, 64, (rows, n, 2, 4, 32))
        scales = random.integers(-100, 100, (rows, n, 16)).astype(np.int8)
        low, high = q & 15, q >> 4
        ql = np.stack(
            [low[..., 0, :] | low[..., 2, :] << 4, low[..., 1, :] | low[..., 3, :] << 4], -2
        )
        qh = high[..., 0, :] | high[..., 1, :] << 2 | high[..., 2, :] << 4 | high[..., 3, :] << 6
        data = blocks(
            ql.reshape(rows, n, 128).astype(np.uint8),
            qh.reshape(rows, n, 64).astype(np.uint8),
            scales,
            d,
        )
        each = np.repeat(scales.astype(np.float32), 16, -1).reshape(q.shape)
        return {
            "data": data,
            "values": ((q - 32) * each * wide[..., None, None]).reshape(rows, width),
        }
    assert kind == "q4_k"
    dmin = half(random.uniform(0.001, 0.01, (rows, n, 1)))
    s, m = random.integers(0, 64, (rows, n, 8)), random.integers(0, 64, (rows, n, 8))
    packed = np.zeros((rows, n, 12), np.uint8)
    packed[..., 0:4] = s[..., :4] | (s[..., 4:] >> 4) << 6
    packed[..., 4:8] = m[..., :4] | (m[..., 4:] >> 4) << 6
    packed[..., 8:12] = (s[..., 4:] & 15) | (m[..., 4:] & 15) << 4
    q = random.integers(0, 16, (rows, n, 4, 2, 32))
    qs = (q[..., 0, :] | q[..., 1, :] << 4).reshape(rows, n, 128).astype(np.uint8)
    scales = (wide * s).reshape(rows, n, 4, 2, 1)
    least = (dmin.astype(np.float32) * m).reshape(rows, n, 4, 2, 1)
    return {
        "data": blocks(d, dmin, packed, qs),
        "values": (q * scales - least).reshape(rows, width),
    }


FORMATS = [
    ("int8", 32), ("int8", 128), ("int8", 512), ("int4", 32), ("int4", 64), ("int4", 128),
    ("int4 zero", 64), ("int4 zero", 128), ("q4_0", 32), ("q4_1", 32), ("q8_0", 32), ("q4_k", 256),
    ("q6_k", 256),
]  # fmt: skip
LEVELS = [
    name for name, (needs, _) in compiler.LEVELS.items() if set(needs) <= compiler.cpu_features()
]
OUT, IN, ROWS, CHOICES = 37, 512, 33, 50
# `make fuzz` runs this file again and again with sizes of its own.
if "LINNET_TEST_SEED" in os.environ:
    _random = random_module.Random(int(os.environ["LINNET_TEST_SEED"]))
    OUT, IN = _random.randint(1, 260), 512 * _random.randint(1, 4)
    ROWS, CHOICES = _random.randint(12, 200), _random.randint(8, 200)


def compiled(folder: Path, width: int) -> Any:
    file = folder / "packed.linnet"
    file.write_text(PROGRAM.replace("OUT", str(OUT)).replace("IN", str(width)))
    program = check_path(file)
    root = next(b for b in program.blocks if b.endswith("::Packed"))
    return optimize(specialize(program, root, {}, None), "fast")


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled(tmp_path_factory.mktemp("packed"), IN)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Rows whose last block of 256 elements is not whole."""
    return compiled(tmp_path_factory.mktemp("uneven"), IN + 64)


def address(array: np.ndarray | None) -> int:
    return 0 if array is None else array.ctypes.data_as(ctypes.c_void_p).value or 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("kind", "group"), FORMATS)
def test_packed_linear(
    kind: str, group: int, level: str, optimized: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_linear(kind, group, level, optimized, monkeypatch, IN)


def check_linear(
    kind: str, group: int, level: str, optimized: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    module = NativeModule(optimized, None, None, 2)
    random = np.random.default_rng(group)
    made = make(kind, OUT, width, group, random)
    module.bind("weight", address(made["data"]), kind.split()[0], address(made.get("scale")),
                address(made.get("zero")), group)  # fmt: skip
    x = random.normal(size=(ROWS, width)).astype(np.float32)
    y = np.zeros((ROWS, OUT), np.float32)
    module.entries["apply"]([address(x)], {"N": ROWS}, [address(y)])
    expected = x @ made["values"].astype(np.float32).T
    # Activations are rounded to 8 bits: about 1 / 250 of the largest of 32, at random signs.
    bound = 0.012 * np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(made["values"], axis=1)
    assert (np.abs(y - expected) <= bound / 8 + 1e-4).all(), np.abs(y - expected).max()
    for n in (1, 2, 3, 4, 5, 7):
        alone = np.zeros((n, OUT), np.float32)
        part = np.ascontiguousarray(x[5 : 5 + n])
        module.entries["apply"]([address(part)], {"N": n}, [address(alone)])
        assert np.array_equal(alone, y[5 : 5 + n])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kind", "group"),
    [("int8", 32), ("int8", 64), ("int4", 32), ("int4", 64), ("int4 zero", 32), ("int4 zero", 64),
     ("q4_0", 32), ("q4_1", 32), ("q8_0", 32)],
)  # fmt: skip
def test_packed_tail(
    kind: str, group: int, level: str, uneven: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_linear(kind, group, level, uneven, monkeypatch, IN + 64)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kind", "group"),
    [("int8", 32), ("int8", 128), ("int4", 64), ("int4", 128), ("int4 zero", 128), ("q4_1", 32),
     ("q6_k", 256)],
)  # fmt: skip
def test_packed_experts(
    kind: str, group: int, level: str, optimized: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    module = NativeModule(optimized, None, None, 2)
    assert "chosen" in module.entries and "k_experts" in {
        c.kernel for c in module.choices["chosen"]
    }
    random = np.random.default_rng(group)
    made = make(kind, 6 * OUT, IN, group, random)
    module.bind("experts", address(made["data"]), kind.split()[0], address(made.get("scale")),
                address(made.get("zero")), group)  # fmt: skip
    x = random.normal(size=(CHOICES, IN)).astype(np.float32)
    score = random.normal(size=(CHOICES, 6)).astype(np.float32)
    score[:, :3] += 2  # the others get a row or a few
    y = np.zeros((CHOICES, 2, OUT), np.float32)
    module.entries["chosen"]([address(x), address(score)], {"N": CHOICES}, [address(y)])
    values = made["values"].reshape(6, OUT, IN).astype(np.float32)
    who = np.argsort(-score, axis=1)[:, :2]
    expected = np.einsum("ni,nkoi->nko", x, values[who])
    size = np.linalg.norm(x, axis=1)[:, None, None] * np.linalg.norm(values[who], axis=-1)
    assert (np.abs(y - expected) <= 0.0015 * size + 1e-4).all()
    one = np.zeros((1, 2, OUT), np.float32)
    part, its = np.ascontiguousarray(x[7:8]), np.ascontiguousarray(score[7:8])
    module.entries["chosen"]([address(part), address(its)], {"N": 1}, [address(one)])
    assert np.array_equal(one[0], y[7])


@pytest.mark.parametrize(("kind", "group"), FORMATS)
def test_packed_rows(kind: str, group: int, optimized: Any) -> None:
    module = NativeModule(optimized, None, {"rows": everything(optimized)}, 1)
    made = make(kind, OUT, IN, group, np.random.default_rng(3))
    module.bind("weight", address(made["data"]), kind.split()[0], address(made.get("scale")),
                address(made.get("zero")), group)  # fmt: skip
    ids = np.array([min(4, OUT - 1), 0, OUT - 1, min(4, OUT - 1)], np.int32)
    y = np.zeros((4, IN), np.float32)
    module.entries["rows"]([address(ids)], {"N": 4}, [address(y)])
    assert np.allclose(y, made["values"][ids], rtol=1e-5, atol=1e-4)


def everything(optimized: Any) -> frozenset[int]:
    from linnet.torch.ranges import analyze

    return analyze(optimized, optimized.entries["rows"]).unchecked
