"""Arguments and weights for a random program: common values, and the odd ones of each dtype."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from differences.value import FLOATS, Value, limits, size

TORCH = {
    "bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64,
}  # fmt: skip
ODD = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 6e-8, 65504.0, -3.4e38,
       2147483648.0, 9.3e18, 1.8446744073709552e19, -129.5, 255.5, 0.49999997, 2.5, -2.5)  # fmt: skip


def number(random: Random, dtype: str, odd: float) -> int | float | bool:
    """A value of a dtype; `odd` is the share of extreme ones."""
    if dtype == "bool":
        return random.random() < 0.5
    if dtype in FLOATS:
        if random.random() < odd:
            return random.choice(ODD)
        return random.choice((random.gauss(0, 1), random.gauss(0, 1), float(random.randint(-3, 3))))
    low, high = limits(dtype)
    if random.random() < odd:
        return random.choice((low, low + 1, high, high - 1, random.randint(low, high)))
    return random.randint(max(low, -2), 5)


def tensor(random: Random, dtype: str, shape: list[int], odd: float) -> torch.Tensor:
    count = 1
    for n in shape:
        count *= n
    numbers = [number(random, dtype, odd) for _ in range(count)]
    if dtype in FLOATS:
        return torch.tensor(numbers, dtype=torch.float64).to(TORCH[dtype]).reshape(shape)
    if dtype == "u64":
        wrapped = [n - 2**64 if n >= 2**63 else n for n in numbers]
        return torch.tensor(wrapped, dtype=torch.int64).view(torch.uint64).reshape(shape)
    if dtype == "bool":
        return torch.tensor(numbers, dtype=torch.bool).reshape(shape)
    return torch.tensor(numbers, dtype=torch.int64).to(TORCH[dtype]).reshape(shape)


def argument(random: Random, value: Value, sizes: dict[str, int], odd: float) -> Any:
    shape = [size(dim, sizes) for dim in value.dims]
    made = tensor(random, value.dtype, shape, odd)
    return made if value.dims else made.item()


def arguments(
    random: Random,
    params: list[Value],
    least: dict[str, int],
    generics: dict[str, int],
    plain: bool = False,
) -> tuple[list[Any], dict[str, int]]:
    """Arguments of one call, and the sizes that no shape tells. `plain`: no extreme values."""
    sizes = dict(generics)
    for name, low in least.items():
        sizes[name] = random.choice((low, low + 1, 3, 4, 7, random.randint(low, 20)))
    odd = random.choice((0.0, 0.0, 0.05, 0.3))
    if plain:
        odd = 0.0
    given = [argument(random, p, sizes, odd) for p in params]
    told = {dim for p in params for dim in p.dims}
    return given, {name: sizes[name] for name in least if name not in told}
