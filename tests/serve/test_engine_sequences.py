"""Whoever else is served, and however a prompt comes in: the answer is that of the model alone."""

from __future__ import annotations

import pytest
import torch
from serve_models import KINDS, alone, tokens

from linnet.serve import Request, Sampling
from linnet.serve.layout import layout_of
from linnet.serve.sequence import move, snapshot

GREEDY = Sampling(temperature=0.0)


def greedy(prompt, count, **options):
    return Request(prompt, GREEDY, max_tokens=count, stop_tokens=frozenset(), **options)


def test_ragged_joins_and_leaves_equal_each_request_alone(serve, model):
    """Slot bookkeeping: seventeen requests of all lengths through four rows."""
    lengths = [(1 + (37 * i) % 90, 1 + (23 * i) % 30) for i in range(17)]
    prompts = [tokens(n, i) for i, (n, _) in enumerate(lengths)]
    expected = [alone(model, p, n) for p, (_, n) in zip(prompts, lengths)]
    engine = serve(rows=4, chunk=16)
    handles = [engine.submit(greedy(p, n)) for p, (_, n) in zip(prompts, lengths)]
    for i, (handle, tokens_alone) in enumerate(zip(handles, expected)):
        assert handle.result().choices[0].tokens == tokens_alone, i
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.prefilling) == (0, 0, 0)


@pytest.mark.parametrize("chunk", [1, 2, 3, 63, 64, 65])
def test_a_prompt_in_chunks_beside_running_steps_equals_one_shot(serve, model, chunk):
    """Steps of others between two chunks move no state of the prompt that waits; convolution
    history and recurrent state go from chunk to chunk."""
    prompt, other = tokens(130, 1), tokens(7, 2)
    expected, beside = alone(model, prompt, 12), alone(model, other, 150)
    engine = serve(rows=2, chunk=chunk, snapshot_bytes=0)
    running = engine.submit(greedy(other, 150))
    next(iter(running))  # its prompt is in: it runs from here on
    steps = engine.stats().steps
    assert engine.run(greedy(prompt, 12)).choices[0].tokens == expected
    assert engine.stats().steps > steps
    assert running.result().choices[0].tokens == beside


def test_two_prompts_come_in_by_turns(serve, model):
    """A short prompt does not wait for a long one to be finished, and both are right."""
    long, short = tokens(200, 3), tokens(9, 4)
    expected = alone(model, long, 8), alone(model, short, 8)
    engine = serve(rows=2, chunk=4, snapshot_bytes=0)
    first = engine.submit(greedy(long, 8))
    second = engine.submit(greedy(short, 8))
    assert second.result().choices[0].tokens == expected[1]
    assert first.result().choices[0].tokens == expected[0]


def test_answers_compute_their_prompt_once(serve, model):
    """More answers than rows: those that wait go on from a snapshot."""
    prompt = tokens(50, 5)
    engine = serve(rows=2)
    done = engine.run(greedy(prompt, 10, n=7))
    assert {c.tokens for c in done.choices} == {alone(model, prompt, 10)}
    assert engine.stats().prompt_tokens == 50
    again = serve(rows=2, snapshot_bytes=0)  # with nowhere to keep it, too
    assert again.run(greedy(prompt, 10, n=7)).choices == done.choices
    assert again.stats().prompt_tokens == 50
    assert done.usage.completion_tokens == 70


def test_a_row_moves_to_make_the_step_smaller(serve, model):
    """The last row goes on in a freed one."""
    prompts = [tokens(20 + i, 60 + i) for i in range(4)]
    counts = [5, 5, 5, 60]
    expected = [alone(model, p, n) for p, n in zip(prompts, counts)]
    engine = serve(rows=4)
    handles = [engine.submit(greedy(p, n)) for p, n in zip(prompts, counts)]
    assert [h.result().choices[0].tokens for h in handles] == expected


def test_every_numerics(serve, model, kind):
    """The interpreter replaces states instead of writing them."""
    if kind == "plain":
        pytest.skip("one architecture is enough")
    slow = type(model)(model.bound, model.manifest, numerics="exact")
    slow.present = model.present
    for path, (block, name, _) in slow._params.items():
        owner, held, _ = model._params[path]
        setattr(block, name, getattr(owner, held))
    prompts = [tokens(5, 70), tokens(3, 71)]
    engine = serve(of=slow, rows=2)
    handles = [engine.submit(greedy(p, 3)) for p in prompts]
    for prompt, handle in zip(prompts, handles):
        assert handle.result().choices[0].tokens == alone(model, prompt, 3)


def test_the_native_backend(serve, model, kind):
    """Its code works on tensors lent to it, lanes and the first rows of more."""
    from linnet.native.compiler import why_not

    if why_not() is not None:
        pytest.skip(f"no native backend: {why_not()}")
    native = KINDS[kind](backend="native")
    prompts = [tokens(20 + 3 * i, 80 + i) for i in range(5)]
    engine = serve(of=native, rows=2, chunk=7)
    handles = [engine.submit(greedy(p, 8)) for p in prompts]
    for prompt, handle in zip(prompts, handles):
        assert handle.result().choices[0].tokens == alone(model, prompt, 8)


def test_a_snapshot_is_a_value(model):
    """Saved, restored into another row, forked: the model goes on alike from each."""
    layout = layout_of(model)
    two = model.rebind({"Batch": 2})
    two.allocate()
    states = two.held_state()
    prompt = tokens(30, 6)
    two.prefill(torch.tensor([prompt, prompt[::-1]]), pos=0)
    saved = snapshot(layout, states, 0, 30)
    rows = torch.tensor([30, 30])
    expected = two.decode_rows(torch.tensor([[5], [5]]), rows)[0].clone()

    def again():
        return two.decode_rows(torch.tensor([[7], [5]]), rows)[1]

    for _ in range(2):
        saved.restore(layout, states, 1)
        assert torch.allclose(again(), expected, atol=1e-5)
    saved.restore(layout, states, 0)
    move(layout, states, 0, states, 1, 30)
    assert torch.allclose(again(), expected, atol=1e-5)


def test_sizes_of_the_state(model, kind):
    layout = layout_of(model)
    assert layout.cuts == (kind == "plain")
    total = sum(t.numel() * t.element_size() for t in model.state.values())
    assert layout.row_bytes == total


def test_the_answer_does_not_depend_on_the_seed_of_others(serve, model):
    """Each request has its own random stream; a further choice follows from seed and number."""
    prompt = tokens(12, 8)
    sampling = Sampling(temperature=1.3, top_p=0.95, seed=11)
    request = Request(prompt, sampling, n=3, max_tokens=25, stop_tokens=frozenset())
    engine = serve(rows=4)
    solo = engine.run(request)
    noise = [
        engine.submit(Request(tokens(9, s), Sampling(seed=s), max_tokens=40)) for s in range(5)
    ]
    crowded = engine.run(request)
    assert [c.tokens for c in crowded.choices] == [c.tokens for c in solo.choices]
    assert len({c.tokens for c in solo.choices}) == 3
    for handle in noise:
        handle.result()


def test_sampling_is_that_of_generate(serve, model):
    """One stream, one order of filters, in `linnet generate` and here."""
    from serve_models import text

    from linnet.text.generation import generate
    from linnet.text.settings import Settings

    prompt = tokens(10, 9)
    sampling = Sampling(
        temperature=1.1, top_k=50, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.5, seed=3
    )
    settings = Settings(sampling=sampling, max_new_tokens=40)
    *_, last = generate(model, text().tokenizer, prompt, settings)
    request = Request(prompt, sampling, max_tokens=40, stop_tokens=frozenset())
    assert serve(rows=2).run(request).choices[0].tokens == last.tokens
