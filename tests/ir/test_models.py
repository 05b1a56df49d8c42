"""The passes on whole models: verified after each, and equal in value to no passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib
import torch

from linnet.check import check_package
from linnet.ir.bound import Bound
from linnet.ir.manifest import manifest, root_block
from linnet.ir.parse import parse_program
from linnet.ir.passes import tables
from linnet.ir.print import program_text
from linnet.ir.program import Program
from linnet.ir.specialize import specialize
from linnet.ir.types import count, shape_of
from linnet.ir.verify import verify_program
from linnet.package import open_package

from .meaning import Machine
from .programs import checked, entry, intrinsics

ROOT = Path(__file__).resolve().parent.parent.parent
FOUNDING = ROOT.parent / "shared" / "seed" / "qwen3.6-35b-a3b"
QWEN = ROOT / "models" / "qwen3.6-35b-a3b"
LLAMA = ROOT / "models" / "smollm2-135m-instruct"
SMALL: dict[str, dict[str, int | str]] = {
    "qwen": {
        "Vocab": 50, "H": 24, "Heads": 4, "KvHeads": 2, "HeadDim": 16, "KeyHeads": 2,
        "ValueHeads": 4, "KeyDim": 6, "ValueDim": 5, "Conv": 44, "Width": 4, "Experts": 6,
        "TopK": 2, "ExpertInner": 8, "SharedInner": 8, "Groups": 2, "Batch": 2, "MaxSeq": 16,
        "T": "f32",
    },
    "llama": {
        "Vocab": 50, "H": 24, "Inner": 20, "Heads": 4, "KvHeads": 2, "HeadDim": 6, "Layers": 2,
        "Batch": 2, "MaxSeq": 16, "T": "f32",
    },
}  # fmt: skip
PACKAGES = {"founding": (FOUNDING, "qwen"), "qwen": (QWEN, "qwen"), "llama": (LLAMA, "llama")}


@pytest.fixture(scope="module", params=list(PACKAGES))
def package(request: pytest.FixtureRequest) -> tuple[Program, Path, dict[str, int | str]]:
    path, family = PACKAGES[request.param]
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    result = check_package(open_package(path))
    assert result.program is not None, result.diagnostics[:3]
    return result.program, path, SMALL[family]


@pytest.fixture(scope="module")
def small(package: tuple[Program, Path, dict[str, int | str]]) -> Bound:
    program, _, sizes = package
    return specialize(program, root_block(program), sizes)


def test_program_verifies_and_round_trips(package: Any) -> None:
    program = package[0]
    verify_program(program)
    text = program_text(program)
    assert program_text(parse_program(text)) == text


def test_card_sizes(package: Any) -> None:
    """At the card's sizes: every pass verified, and nothing that grows with the context."""
    program, path, _ = package
    with open(path / "nest.toml", "rb") as file:
        generics = tomllib.load(file)["generics"]
    root = root_block(program)
    bound = checked(specialize(program, root, generics))
    assert len(bound.kinds) < 30
    for name in ("decode", "decode_rows", "prefill"):
        seen = _reached(bound, entry(bound, name).id)
        masks = [op for f in seen for op in intrinsics(bound.functions[f], "causal_mask")]
        assert masks, name
        writes = [op for f in seen for op in intrinsics(bound.functions[f]) if "state" in op.attrs]
        assert writes, name
        assert not [op for f in seen for op in intrinsics(bound.functions[f], "copy")], name
        kept = {op.attrs["key"] for f in seen for op in intrinsics(bound.functions[f], "constant")}
        for key in kept:
            size = count(shape_of(bound.constants[str(key)].result))
            assert "place" in str(key) or size.constant is None or size.constant < 1 << 20, key
    if "Experts" in generics:
        found = [op for f in bound.functions.values() for op in intrinsics(f, "top_k")]
        assert found
        assert not [op for f in bound.functions.values() for op in intrinsics(f, "rank")]
    assert len(manifest(program, root, generics)) > 500


def _reached(bound: Bound, start: str) -> set[str]:
    from linnet.ir.print import reachable

    return reachable(bound, [start])


def _steps(rng: torch.Generator, vocab: int) -> list[tuple[str, list[Any], dict[str, int]]]:
    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(0, vocab, shape, generator=rng, dtype=torch.int32)

    def numbers(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    at = torch.tensor
    return [
        ("forward", [tokens(3, 5)], {"B": 3, "S": 5}),
        ("forward", [tokens(1, 1)], {"B": 1, "S": 1}),
        ("next_token", [tokens(2, 4)], {"B": 2, "S": 4}),
        ("prefill", [tokens(2, 3), at(0, dtype=torch.int32)], {"S": 3}),
        ("prefill", [tokens(2, 2), at(3, dtype=torch.int32)], {"S": 2}),
        ("decode", [tokens(2, 1), at(5, dtype=torch.int32)], {}),
        ("prefill_slots", [tokens(1, 4), numbers(1), numbers(2)], {"M": 1, "S": 4}),
        ("decode_rows", [tokens(2, 1), numbers(6, 2)], {}),
        ("prefill_slots", [tokens(2, 3), numbers(1, 0), numbers(3, 1)], {"M": 2, "S": 3}),
        ("decode_rows", [tokens(2, 1), numbers(1, 3)], {}),
        ("prefill", [tokens(2, 1), at(4, dtype=torch.int32)], {"S": 1}),
    ]


@pytest.mark.parametrize(
    ("numerics", "in_place", "kept"),
    [("exact", True, tables.KEPT), ("fast", True, 0), ("fast", False, tables.KEPT)],
)
def test_passes_keep_values(
    small: Bound, numerics: str, in_place: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kept` 0: no table is kept, every row is computed where it is read."""
    monkeypatch.setattr(tables, "KEPT", kept)
    plain, passed = Machine(small), Machine(checked(small, numerics, in_place))
    rng = torch.Generator().manual_seed(1)
    for name, args, dims in _steps(rng, 50):
        wanted = plain.run(name, args, dims, live=False)
        got = passed.run(name, args, dims, live=in_place)
        close(got, wanted, numerics, name)
        before, after = plain.state(), passed.state()
        for path in before:
            close(after[path], before[path], numerics, f"{path} after {name}")


def close(got: torch.Tensor, wanted: torch.Tensor, numerics: str, what: str) -> None:
    if numerics == "exact":
        assert torch.equal(got, wanted), what
    else:
        scale = float(wanted.abs().max())
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4 * scale + 1e-7, msg=what)
