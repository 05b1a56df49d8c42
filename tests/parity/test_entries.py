"""Any split of a text into `prefill`, `decode`, `prefill_slots` and `decode_rows` gives the logits
that transformers gives for the whole text."""

from __future__ import annotations

import pytest
import torch
from oracle import share_of_scale

LIMIT = 1e-4


@pytest.fixture(params=["founding", "ours", "llama"])
def case(request, models, checkpoint, load):
    """A function from a batch size and other options to a loaded model and its reference."""
    if request.param == "founding":
        package, kind = request.getfixturevalue("founding_package"), "text"
    elif request.param == "ours":
        package, kind = models / "qwen3.6-35b-a3b", "text"
    else:
        package, kind = models / "smollm2-135m-instruct", "llama"
    options = {"tied": False} if kind == "llama" else {}
    reference = checkpoint(kind, **options)
    return lambda batch, **options: (load(package, reference, Batch=batch, **options), reference)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return share_of_scale(ours, theirs) < LIMIT


@pytest.mark.parametrize(
    "chunks", [[70], [1, 69], [2, 3, 65], [63, 1, 6], [64, 6], [65, 5], [1, 1, 1, 67]]
)
def test_prefill_in_chunks_then_decode(case, chunks):
    model, reference = case(2)
    tokens = reference.tokens(2, 80, seed=4)
    truth = reference.logits(tokens)
    pos = 0
    for chunk in chunks:
        logits = model.prefill(tokens[:, pos : pos + chunk], pos=pos)
        pos += chunk
        assert close(logits, truth[:, pos - 1]), (chunk, pos)
    for at in range(pos, 80):
        assert close(model.decode(tokens[:, at : at + 1], pos=at), truth[:, at]), at


def test_decode_from_the_first_token(case):
    model, reference = case(1)
    tokens = reference.tokens(1, 12, seed=6)
    truth = reference.logits(tokens)
    for pos in range(12):
        assert close(model.decode(tokens[:, pos : pos + 1], pos=pos), truth[:, pos]), pos


def test_prefill_at_zero_starts_again(case):
    model, reference = case(1)
    model.prefill(reference.tokens(1, 40, seed=8), pos=0)
    tokens = reference.tokens(1, 9, seed=9)
    assert close(model.prefill(tokens, pos=0), reference.logits(tokens)[:, -1])


@pytest.mark.parametrize(
    ("slots", "lengths"),
    [([2, 0], [7, 19]), ([3, 1, 0, 2], [1, 2, 3, 19]), ([1], [19]), ([0, 3, 2], [19, 19, 1])],
)
def test_slots_then_rows(case, slots, lengths):
    """Padded prompts of different lengths into any slots, then each row at its own position."""
    model, reference = case(4)
    longest, more = max(lengths), 6
    texts = reference.tokens(len(slots), longest + more, seed=sum(lengths))
    truth = reference.logits(texts)
    padded = texts[:, :longest].clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = 3
    logits = model.prefill_slots(padded, torch.tensor(slots), torch.tensor(lengths))
    for row, length in enumerate(lengths):
        assert close(logits[row], truth[row, length - 1]), row
    for step in range(more):
        tokens = torch.zeros(4, 1, dtype=torch.long)
        positions = torch.zeros(4, dtype=torch.long)
        for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            tokens[slot, 0] = texts[row, length + step]
            positions[slot] = length + step
        logits = model.decode_rows(tokens, positions)
        for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            assert close(logits[slot], truth[row, length + step]), (row, step)


def test_a_slot_used_again(case):
    """A row's next text knows nothing of the text before, nor do the rows beside it."""
    model, reference = case(3)
    kept = reference.tokens(1, 30, seed=20)
    first = reference.tokens(1, 25, seed=21)
    second = reference.tokens(1, 30, seed=22)
    truth_kept, truth_second = reference.logits(kept), reference.logits(second)
    both = torch.cat([kept[:, :20], first[:, :20]])
    model.prefill_slots(both, torch.tensor([0, 2]), torch.tensor([20, 20]))
    model.decode_rows(
        torch.stack([kept[0, 20:21], torch.tensor([0]), first[0, 20:21]]),
        torch.tensor([20, 0, 20]),
    )
    logits = model.prefill_slots(second[:, :5], torch.tensor([2]), torch.tensor([5]))
    assert close(logits[0], truth_second[0, 4])
    for step in range(5):
        logits = model.decode_rows(
            torch.stack([kept[0, 21 + step :][:1], torch.tensor([0]), second[0, 5 + step :][:1]]),
            torch.tensor([21 + step, 0, 5 + step]),
        )
        assert close(logits[0], truth_kept[0, 21 + step])
        assert close(logits[2], truth_second[0, 5 + step])


def test_rows_go_on_after_a_common_prefill(case):
    model, reference = case(2)
    tokens = reference.tokens(2, 20, seed=30)
    truth = reference.logits(tokens)
    model.prefill(tokens[:, :15], pos=0)
    for pos in range(15, 20):
        logits = model.decode_rows(tokens[:, pos : pos + 1], torch.tensor([pos, pos]))
        assert close(logits, truth[:, pos])


def test_reset_state_forgets(case):
    model, reference = case(1)
    model.prefill(reference.tokens(1, 10, seed=31), pos=0)
    model.reset_state()
    assert all(not state.any() for state in model.state.values())


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_every_entry_under_every_policy(case, numerics):
    """`fast` is what all other tests here run."""
    model, reference = case(2, numerics=numerics, MaxSeq=32)
    tokens = reference.tokens(2, 12, seed=33)
    truth = reference.logits(tokens)
    assert close(model.forward(tokens), truth)
    assert close(model.next_token(tokens), truth[:, -1])
    assert close(model.prefill(tokens[:, :4], pos=0), truth[:, 3])
    assert close(model.prefill(tokens[:, 4:7], pos=4), truth[:, 6])
    assert close(model.decode(tokens[:, 7:8], pos=7), truth[:, 7])
    assert close(model.decode_rows(tokens[:, 8:9], torch.tensor([8, 8])), truth[:, 8])
    lengths = torch.tensor([5, 9])
    logits = model.prefill_slots(tokens[:, :9], torch.tensor([1, 0]), lengths)
    assert close(logits, truth[torch.arange(2), lengths - 1])
    crossed = torch.stack([tokens[1, 9:10], tokens[0, 5:6]])
    logits = model.decode_rows(crossed, torch.tensor([9, 5]))
    assert close(logits, torch.stack([truth[1, 9], truth[0, 5]]))
