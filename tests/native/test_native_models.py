"""Zoo models on both backends: every entry, its states, and rows that do not depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.native import compiler

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

GENERICS: dict[str, Any] = {
    "Vocab": 97, "H": 64, "Groups": 2, "HeadDim": 32, "Heads": 4, "KvHeads": 2, "KeyHeads": 2,
    "KeyDim": 16, "ValueHeads": 4, "ValueDim": 16, "Width": 4, "Conv": 128, "TopK": 2, "Experts": 6,
    "ExpertInner": 32, "SharedInner": 48, "Batch": 3, "MaxSeq": 150,
}  # fmt: skip
FLOOR = {"f32": 1e-4, "bf16": 1e-2}
# In bf16 a near tie between two experts may go either way, and then the whole row does.
EVERY = {"TopK": GENERICS["Experts"]}


def pair(models: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    made = []
    for backend in ("native", "torch"):
        monkeypatch.setenv("LINNET_BACKEND", backend)
        generics = {**GENERICS, **(EVERY if dtype == "bf16" else {}), "T": dtype}
        numerics = "exact" if (backend, dtype) == ("torch", "bf16") else "fast"
        made.append(
            linnet.load(
                models / "qwen3.6-35b-a3b", weights="random", generics=generics, numerics=numerics
            )
        )
    return made[0], made[1]


def close(a: torch.Tensor, b: torch.Tensor, dtype: str) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape
    scale = b.double().abs().max().clamp_min(0.1)
    gap = (a.double() - b.double()).abs()
    assert (gap.max() if dtype == "f32" else gap.mean()) <= FLOOR[dtype] * scale


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_all_entries(dtype: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native, torch_model = pair(models, dtype, monkeypatch)
    random = torch.Generator().manual_seed(2)

    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(0, 97, shape, generator=random)

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("forward", (tokens(2, 9),), {}),
        ("forward", (tokens(1, 70),), {}),
        ("next_token", (tokens(3, 5),), {}),
        ("prefill", (tokens(3, 66),), {"pos": 0}),
        ("prefill", (tokens(3, 4),), {"pos": 66}),
        ("decode", (tokens(3, 1),), {"pos": 70}),
        ("decode", (tokens(3, 1),), {"pos": 71}),
        ("prefill_slots", (tokens(2, 6), [2, 0], [6, 3]), {}),
        ("decode_rows", (tokens(3, 1), [3, 72, 6]), {}),
    ]
    for name, args, keywords in calls:
        close(getattr(native, name)(*args, **keywords),
              getattr(torch_model, name)(*args, **keywords), dtype)  # fmt: skip
        for path, state in native.state.items():
            close(state, torch_model.state[path], dtype)
    assert native.native.module is not None and not native.native.refused
    assert torch_model.native.module is None


# The code is the same for all forms of weights: it tells them apart when it runs.
FORMS = [(dtype, quantize) for dtype in ("f32", "bf16") for quantize in (None, "int8", "int4")]


@pytest.mark.parametrize(("dtype", "quantize"), FORMS)
def test_rows_do_not_depend_on_each_other(
    dtype: str, quantize: str | None, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_BACKEND", "native")
    generics = {**GENERICS, "T": dtype}
    model = linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics=generics, quantize=quantize
    )
    random = torch.Generator().manual_seed(5)
    texts = torch.randint(0, 97, (5, 40), generator=random)
    together = model.forward(texts)
    for row in range(5):
        assert torch.equal(model.forward(texts[row : row + 1])[0], together[row])
    # In whatever slot, beside whatever else, a request gets the same bits.
    model.prefill_slots(texts[:1], [0], [40])
    alone = model.decode_rows([[7], [1], [2]], [40, 0, 0])[0]
    model.reset_state()
    model.prefill_slots(texts[[3, 0]], [0, 2], [31, 40])
    beside = model.decode_rows([[9], [4], [7]], [31, 0, 40])[2]
    assert torch.equal(alone, beside)


@pytest.mark.parametrize(("dtype", "quantize"), FORMS)
def test_a_prompt_cut_at_a_chunk(
    dtype: str, quantize: str | None, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_BACKEND", "native")
    generics = {**GENERICS, "T": dtype, "Batch": 1}
    model = linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics=generics, quantize=quantize
    )
    text = torch.randint(0, 97, (1, 140), generator=torch.Generator().manual_seed(6))
    whole = model.prefill(text, pos=0)
    states = {path: state.clone() for path, state in model.state.items()}
    for ends in ((64, 128), (64,), (128,)):
        model.reset_state()
        start = 0
        for end in (*ends, 140):
            found = model.prefill(text[:, start:end], pos=start)
            start = end
        assert torch.equal(found, whole), ends
        assert all(torch.equal(states[path], state) for path, state in model.state.items()), ends


def test_wrong_arguments_leave_states_alone(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_BACKEND", "native")
    model = linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics={**GENERICS, "T": "f32"}
    )
    model.prefill(torch.zeros(3, 4, dtype=torch.int64), pos=0)
    before = {path: state.clone() for path, state in model.state.items()}
    for name, args in (
        ("decode", ([[97], [0], [0]], 4)),
        ("decode", ([[1], [0], [0]], 150)),
        ("prefill_slots", ([[1, 2], [3, 4]], [1, 1], [2, 2])),
        ("prefill_slots", ([[1, 2]], [3], [2])),
        ("decode_rows", ([[1], [2], [3]], [0, 0, -1])),
    ):
        with pytest.raises(linnet.InputError):
            getattr(model, name)(*args)
    assert all(torch.equal(before[path], state) for path, state in model.state.items())


class Rounded:
    """A weight as 8-bit integers in groups of 32, and the values that they mean."""

    def __init__(self, weight: torch.Tensor):
        groups = weight.reshape(-1, weight.shape[-1] // 32, 32)
        scale = (groups.abs().amax(-1, keepdim=True) / 127).contiguous()
        q = (groups / scale).round().to(torch.int8).contiguous()
        self.packed = ("int8", q, scale, None, 32)
        self.values = (q * scale).reshape(weight.shape)


def test_packed_weights(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native, torch_model = pair(models, "f32", monkeypatch)
    for path, (block, name, _) in native._params.items():
        held = getattr(block, name)
        if path in ("lm_head.weight", "embed_tokens.weight"):
            rounded = Rounded(held)
            setattr(block, name, rounded)
            other, _, _ = torch_model._params[path]
            setattr(other, name, rounded.values)
    random = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 97, (3, 40), generator=random)
    a, b = native.prefill(tokens, pos=0), torch_model.prefill(tokens, pos=0)
    # Only the head's own rounding is left to compare: with random weights all else is chaos.
    assert ((a - b).norm() / b.norm()) < 0.02
    native.reset_state()
    native.prefill_slots(tokens[1:2], [1], [40])
    assert torch.equal(
        native.decode_rows([[1], [5], [2]], [0, 40, 0])[1], decode_alone(native, tokens)
    )


def test_memory_that_moves_under_a_tensor(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = pair(models, "f32", monkeypatch)
    tokens = torch.arange(12).view(1, 12).expand(3, 12)
    before = native.forward(tokens)
    block, name, _ = native._params["lm_head.weight"]
    head = getattr(block, name)
    head.data = head.detach() * 2
    assert torch.allclose(native.forward(tokens), 2 * before)
    assert native.native.module is not None


def test_bf16_with_few_experts_is_as_near_to_f32_as_torch_is(models: Path) -> None:
    """Where experts are chosen, single rows may differ: on average neither is farther off."""
    bf16 = {**GENERICS, "T": "bf16"}

    def load(generics: dict[str, Any], **options: str) -> Any:
        return linnet.load(
            models / "qwen3.6-35b-a3b", weights="random", generics=generics, **options
        )

    native, other = load(bf16, backend="native"), load(bf16, backend="torch", numerics="exact")
    truth = load({**GENERICS, "T": "f32"}, backend="torch")
    truth.load_state_dict({path: x.float() for path, x in other.state_dict().items()})
    gaps: dict[str, list[torch.Tensor]] = {"native": [], "torch": []}
    random = torch.Generator().manual_seed(11)
    for _ in range(3):
        for model in (native, other, truth):
            model.reset_state()
        tokens = torch.randint(0, 97, (3, 70), generator=random)
        step = torch.randint(0, 97, (3, 1), generator=random)
        for name, args, keywords in (
            ("forward", (tokens,), {}),
            ("prefill", (tokens,), {"pos": 0}),
            ("decode", (step,), {"pos": 70}),
        ):
            exact = getattr(truth, name)(*args, **keywords)
            for key, model in (("native", native), ("torch", other)):
                found = getattr(model, name)(*args, **keywords).float()
                gaps[key].append((found - exact).abs().flatten())
    ours, theirs = (float(torch.cat(gaps[key]).mean()) for key in ("native", "torch"))
    assert ours < 1.03 * theirs


def decode_alone(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    model.reset_state()
    model.prefill_slots(tokens[[1, 0]], [2, 0], [40, 17])
    return model.decode_rows([[9], [0], [5]], [17, 0, 40])[2]


def test_new_lengths_compile_nothing_new(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_BACKEND", "native")
    model = linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics={**GENERICS, "T": "f32"}
    )
    model.forward([[1, 2]])
    monkeypatch.setattr(compiler, "run", lambda command: pytest.fail("compiled again"))
    for length in range(1, 40):
        model.forward(torch.zeros(1, length, dtype=torch.int64))
