"""What people meet when they run this family elsewhere, as far as loading and numbers go. Each
test is a failure that somebody had in production."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time

import pytest
import torch
from oracle import share_of_scale

import linnet


@pytest.fixture
def ours(models):
    return models / "qwen3.6-35b-a3b"


def test_padding_changes_nothing(package, checkpoint, load):
    """Whatever stands behind a prompt's end, alone or beside others, its logits and state are the
    same."""
    reference = checkpoint("text")
    model = load(package, reference, Batch=3)
    text = reference.tokens(1, 9, seed=50)
    slot, length = torch.tensor([1]), torch.tensor([9])
    bare = model.prefill_slots(text, slot, length).clone()
    recurrent = [n for n in model.state if "recurrent" in n or "history" in n]
    assert recurrent
    states = {name: model.state[name][1].clone() for name in recurrent}
    for fill in (0, 5, 96):
        padded = torch.cat([text, torch.full((1, 70), fill)], 1)
        model.reset_state()
        logits = model.prefill_slots(padded, slot, length)
        assert share_of_scale(logits, bare) < 1e-5
        for name in recurrent:
            assert share_of_scale(model.state[name][1], states[name]) < 1e-5, name
    beside = torch.cat([torch.cat([text, reference.tokens(1, 61, seed=51)], 1)] * 2)
    model.reset_state()
    logits = model.prefill_slots(beside, torch.tensor([1, 0]), torch.tensor([9, 70]))
    assert share_of_scale(logits[:1], bare) < 1e-5


def test_chunked_and_recurrent_forms_agree_at_every_length(package, checkpoint, load):
    """The delta rule by chunks (a prompt) and token by token (steps), each length 1 … 200."""
    reference = checkpoint("text", Groups=1)
    model = load(package, reference)
    tokens = reference.tokens(1, 200, seed=52)
    truth = reference.logits(tokens)
    steps = torch.stack([model.decode(tokens[:, p : p + 1], pos=p) for p in range(200)], 1)
    assert share_of_scale(steps, truth) < 1e-4
    for length in range(1, 201):
        logits = model.prefill(tokens[:, :length], pos=0)
        assert share_of_scale(logits, steps[:, length - 1]) < 1e-4, length


def test_a_decay_stored_in_f32_is_never_narrowed_in_silence(package, checkpoint, load):
    reference = checkpoint("text", dtype="bf16", f32_decay=True, Groups=1)
    with pytest.raises(linnet.WeightsError, match="A_log") as caught:
        load(package, reference)
    assert len([p for p in caught.value.problems if "A_log" in p]) == 3
    model = load(package, reference, cast=True)
    assert model.forward(reference.tokens(1, 5)).isfinite().all()


def test_a_bf16_checkpoint_runs_in_f32(package, checkpoint, load):
    """Widening is exact and needs no word."""
    reference = checkpoint("text", dtype="bf16", Groups=1)
    model = load(package, reference, T="f32")
    tokens = reference.tokens(1, 40, seed=53)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4


def test_decay_is_f32_whatever_the_model_is(package, checkpoint, load):
    """2,000 steps in bf16 stay as near to the truth as the first hundred: the state does not
    drift."""
    reference = checkpoint("text", dtype="bf16", Groups=1, Experts=3, TopK=3, H=96)
    model = load(package, reference, MaxSeq=2048)
    tokens = reference.tokens(1, 2000, seed=54)
    truth = reference.logits(tokens)
    logits = torch.stack([model.decode(tokens[:, p : p + 1], pos=p) for p in range(2000)], 1)
    error = (logits.float() - truth).pow(2).mean(-1).sqrt()[0]
    assert error[-100:].mean() < 2 * error[:100].mean()
    assert all(
        state.dtype == torch.float32 for name, state in model.state.items() if "recurrent" in name
    )


def test_ties_choose_the_lower_expert(package, checkpoint, load):
    """Two experts with the same router row score the same: of the two the lower number works."""
    reference = checkpoint("text", Groups=1, TopK=1, seed=9)
    model = load(package, reference, MaxSeq=64)
    tokens = reference.tokens(1, 50, seed=55)

    def change(part: str, expert: int, by: float) -> None:
        with torch.inference_mode():
            for name, parameter in model.state_dict().items():
                if name.endswith(part):
                    parameter[expert] *= by

    with torch.inference_mode():
        for name, parameter in model.state_dict().items():
            if name.endswith("mlp.gate.weight"):
                parameter[5] = parameter[2]
    usual = model.forward(tokens).clone()
    change("mlp.down_proj", 5, 2.0)
    assert torch.equal(model.forward(tokens), usual)
    change("mlp.down_proj", 2, 2.0)
    assert not torch.equal(model.forward(tokens), usual)


def test_the_head_is_not_the_embedding(package, checkpoint, load):
    reference = checkpoint("text", Groups=1)
    model = load(package, reference)
    parameters = model.state_dict()
    assert not torch.equal(parameters["lm_head.weight"], parameters["embed_tokens.weight"])


def test_vision_tensors_are_ignored_and_counted(package, checkpoint, tmp_path):
    from linnet.weights.checkpoint import open_checkpoint

    reference = checkpoint("vision")
    names = set(open_checkpoint(reference.folder).tensors)
    assert any("visual" in name for name in names)
    assert {n for n in names if "visual" not in n} == set(reference.bindings.values())


def test_a_missing_expert_tensor_is_an_error(ours, checkpoint, tmp_path):
    """Nothing is left random: a tensor that is not there stops the load, and is named."""
    from safetensors.torch import load_file, save_file

    reference = checkpoint("text", Groups=1)
    tensors = load_file(reference.folder / "model.safetensors")
    gone = "model.layers.2.mlp.experts.down_proj"
    tensors.pop(gone)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(linnet.WeightsError, match=re.escape(gone)):
        linnet.load(
            ours,
            weights=tmp_path,
            bindings=reference.bindings,
            generics={**reference.generics, "Batch": 1, "MaxSeq": 64},
        )


def test_shards_equal_one_file(package, checkpoint, load):
    whole = checkpoint("text", Groups=1)
    parts = checkpoint("text", Groups=1, shard="60KB")
    assert len(list(parts.folder.glob("*.safetensors"))) > 3
    one, many = (load(package, reference).state_dict() for reference in (whole, parts))
    assert one.keys() == many.keys()
    assert all(torch.equal(many[path], one[path]) for path in one)


def test_a_copy_of_the_founding_package_loads_from_anywhere(founding_package, checkpoint, tmp_path):
    reference = checkpoint("text", Groups=1)
    copy = tmp_path / "elsewhere"
    shutil.copytree(founding_package, copy)
    model = linnet.load(
        copy,
        weights=reference.folder,
        bindings=reference.bindings,
        generics={**reference.generics, "Batch": 1, "MaxSeq": 64},
    )
    tokens = reference.tokens(1, 20, seed=57)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4


def test_a_step_costs_the_same_at_any_context(package, checkpoint, load):
    """No table, mask or copy grows with `MaxSeq`: a step at 2**18 positions takes what it takes at
    2**9. Twice as much is allowed for a busy machine; anything that grew would take 512 times."""
    reference = checkpoint("text", Groups=1)
    token = torch.tensor([[1]])
    fastest = []
    for positions in (2**9, 2**18):
        model = load(package, reference, MaxSeq=positions)
        model.prefill(reference.tokens(1, 20), pos=0)
        times = []
        for pos in range(20, 60):
            start = time.perf_counter()
            model.decode(token, pos=pos)
            times.append(time.perf_counter() - start)
        fastest.append(min(times))
    assert fastest[1] < 2 * fastest[0]


def test_memory_is_linear_in_the_prompt(package, checkpoint):
    """A prompt of 12,000 tokens through 4 heads: scores of every pair would be 2.3 GB a layer."""
    reference = checkpoint("text", Groups=1)
    code = f"""
import resource
import torch
import linnet

torch.set_num_threads(1)
model = linnet.load(
    {str(package)!r},
    weights={str(reference.folder)!r},
    bindings={reference.bindings!r},
    generics={ {**reference.generics, "Batch": 1, "MaxSeq": 12000}!r},
)
model.prefill(torch.ones(1, 100, dtype=torch.long), pos=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.prefill(torch.ones(1, 12000, dtype=torch.long), pos=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 700_000, "KiB"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda m: m.prefill(torch.zeros(2, 60, dtype=torch.long), pos=10), "pos"),
        (lambda m: m.decode(torch.zeros(2, 1, dtype=torch.long), pos=64), "pos"),
        (lambda m: m.decode(torch.zeros(2, 1, dtype=torch.long), pos=-1), "pos"),
        (lambda m: m.decode(torch.full((2, 1), 97), pos=0), "token"),
        (lambda m: m.forward(torch.full((1, 3), -1)), "tokens"),
        (lambda m: m.decode_rows(torch.zeros(2, 1), torch.tensor([0, 64])), "tokens"),
        (
            lambda m: m.decode_rows(torch.zeros(2, 1, dtype=torch.long), torch.tensor([0, 64])),
            "positions",
        ),
        (
            lambda m: m.prefill_slots(
                torch.zeros(2, 5, dtype=torch.long), torch.tensor([1, 1]), torch.tensor([5, 5])
            ),
            "slots",
        ),
        (
            lambda m: m.prefill_slots(
                torch.zeros(1, 5, dtype=torch.long), torch.tensor([2]), torch.tensor([5])
            ),
            "slots",
        ),
        (
            lambda m: m.prefill_slots(
                torch.zeros(1, 5, dtype=torch.long), torch.tensor([0]), torch.tensor([6])
            ),
            "lengths",
        ),
        (
            lambda m: m.prefill_slots(
                torch.zeros(1, 5, dtype=torch.long), torch.tensor([0]), torch.tensor([0])
            ),
            "lengths",
        ),
    ],
)
def test_a_wrong_argument_is_named_and_the_state_stays(package, checkpoint, load, call, named):
    reference = checkpoint("text", Groups=1)
    model = load(package, reference, Batch=2, MaxSeq=64)
    model.prefill(reference.tokens(2, 5, seed=58), pos=0)
    before = {name: state.clone() for name, state in model.state.items()}
    with pytest.raises(linnet.InputError, match=rf"\b{named}\b"):
        call(model)
    assert all(torch.equal(state, before[name]) for name, state in model.state.items())
