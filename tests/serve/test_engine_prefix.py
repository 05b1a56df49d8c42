"""Prefix reuse: cold equals cached at every cut, what a second turn computes, and the budget."""

from __future__ import annotations

import random
import shutil

import pytest
import torch
from serve_models import IDS, alone, hybrid, text, tokens

from linnet.errors import InputError
from linnet.serve import Engine, Request, Sampling
from linnet.serve.layout import Layout, layout_of
from linnet.serve.prefix import PrefixCache
from linnet.serve.store import read
from linnet.serve.turns import generation_prompts, stable_length

GREEDY = Sampling(temperature=0.0)


def greedy(prompt, count, **options):
    return Request(prompt, GREEDY, max_tokens=count, stop_tokens=frozenset(), **options)


def near(a, b):
    return a.tokens == b.tokens and all(
        abs(x.logprob - y.logprob) < 1e-4 for x, y in zip(a.logprobs, b.logprobs)
    )


def test_cold_equals_cached_at_every_cut(serve, model, kind):
    prompt = tokens(70, 20)
    engine = serve(rows=2)
    cold = engine.run(greedy(prompt, 6, logprobs=0)).choices[0]
    assert cold.tokens == alone(model, prompt, 6)
    for cut in range(1, 70):
        engine.runner.cache.clear()
        engine.run(greedy(prompt[:cut], 0))
        before = engine.stats().prompt_tokens
        warm = engine.run(greedy(prompt, 6, logprobs=0))
        assert warm.usage.cached_tokens == cut
        assert engine.stats().prompt_tokens - before == 70 - cut
        assert near(warm.choices[0], cold), cut


def test_equal_prompts_are_computed_once(serve, model):
    """Also when they come together, and with none of it computed again."""
    prompt = tokens(60, 21)
    engine = serve(rows=4, chunk=8)
    with engine._wake:
        handles = [engine.submit(greedy(prompt, 5)) for _ in range(6)]
    results = [h.result() for h in handles]
    assert {r.choices[0].tokens for r in results} == {alone(model, prompt, 5)}
    assert engine.stats().prompt_tokens == 60


def test_a_common_beginning_is_computed_once_when_prompts_come_together(serve, model):
    system = tokens(64, 27)
    prompts = [[*system, *tokens(10 + i, 70 + i)] for i in range(5)]
    engine = serve(rows=4, chunk=8)
    with engine._wake:  # together: the engine looks at its queue when all are in it
        handles = [engine.submit(greedy(p, 5)) for p in prompts]
    for prompt, handle in zip(prompts, handles):
        assert handle.result().choices[0].tokens == alone(model, prompt, 5)
    assert engine.stats().prompt_tokens == 64 + sum(10 + i for i in range(5))


@pytest.mark.parametrize("thinks", [True, False])
def test_a_second_turn_computes_the_visible_answer_and_the_message(serve, model, thinks):
    """The template drops old thoughts, so that the turn before never matches to its end."""
    chat = text()
    chunk = 16
    engine = serve(rows=2, chunk=chunk, text=chat)
    messages = [
        {"role": "system", "content": "You answer with few words. " * 2},
        {"role": "user", "content": "Where does the river rise?"},
    ]
    first = chat.tokenizer.encode(chat.chat(messages, enable_thinking=thinks))
    engine.run(Request(first, GREEDY, max_tokens=20))
    thought = "<think>\nIn the hills, I am sure of it.\n</think>\n\n"
    visible = "In the hills."
    messages += [
        {"role": "assistant", "content": thought + visible},
        {"role": "user", "content": "And where does it end?"},
    ]
    second = chat.tokenizer.encode(chat.chat(messages, enable_thinking=thinks))
    before = engine.stats().prompt_tokens
    warm = engine.run(Request(second, GREEDY, max_tokens=12, stop_tokens=frozenset()))
    computed = engine.stats().prompt_tokens - before
    new = len(chat.tokenizer.encode(visible + messages[-1]["content"]))
    framing = 30  # roles and marks round the two messages, and the generation prompt
    assert computed <= new + framing + chunk
    assert warm.usage.cached_tokens == len(second) - computed
    assert warm.choices[0].tokens == alone(model, second, 12)


def test_what_two_prompts_share_serves_a_third(serve, model):
    system = tokens(60, 22)
    prompts = [[*system, *tokens(20, 23 + i)] for i in range(3)]
    engine = serve(rows=2)
    results = [engine.run(greedy(p, 5)) for p in prompts]
    assert [r.choices[0].tokens for r in results] == [alone(model, p, 5) for p in prompts]
    assert results[2].usage.cached_tokens == 60


def test_the_budget_holds(serve, model, kind):
    prompts = [tokens(40 + i, 30 + i) for i in range(12)]
    need = serve(rows=2).runner.layout
    budget = 3 * (60 * need.position_bytes + need.recurrent_bytes + 4 * 300)
    engine = serve(rows=2, snapshot_bytes=budget)
    for prompt in prompts * 2:
        assert engine.run(greedy(prompt, 3)).choices[0].tokens == alone(model, prompt, 3)
        assert 0 < engine.stats().snapshot_bytes <= budget
    assert engine.run(greedy(prompts[-1], 3)).usage.cached_tokens > 0, "the last one is kept"
    assert serve(rows=2, snapshot_bytes=0).run(greedy(prompts[0], 3)).usage.cached_tokens == 0


def test_snapshots_outlive_a_restart(serve, model, tmp_path):
    prompt = [*tokens(50, 40)]
    first = serve(rows=2, snapshot_folder=tmp_path / "kept")
    cold = first.run(greedy(prompt, 5, logprobs=0))
    first.close()
    second = serve(rows=4, snapshot_folder=tmp_path / "kept")
    warm = second.run(greedy(prompt, 5, logprobs=0))
    assert warm.usage.cached_tokens == 50
    assert near(warm.choices[0], cold.choices[0])
    assert second.stats().snapshot_bytes == first.stats().snapshot_bytes
    second.close()
    other = type(model)(model.bound, model.manifest)
    other.present = model.present
    for path, tensor in model.state_dict().items():
        other.set_parameter(path, tensor * 1.01)
    third = serve(of=other, rows=2, snapshot_folder=tmp_path / "kept")
    assert third.stats().snapshot_count == 0, "those of other weights are not read"


def test_damaged_snapshot_files_are_left_out(serve, model, tmp_path):
    """With a word; nothing of them is used."""
    engine = serve(rows=2, snapshot_folder=tmp_path)
    engine.run(greedy(tokens(30, 41), 2))
    engine.close()
    index, data = tmp_path / "snapshots.json", tmp_path / "snapshots" / "model.safetensors"
    whole, written = index.read_text(), data.read_bytes()
    again = serve(rows=2)

    def taken_in(word):
        said = []
        again.runner.cache.clear()
        count = read(again.runner.cache, model, tmp_path, said.append)
        assert again.stats().snapshot_bytes == 0 or count > 0
        assert len(said) == 1 and str(tmp_path) in said[0] and word in said[0]
        return count

    assert taken_in("taken in") > 0
    for damaged in (
        "",
        "[]",
        "[" * 100_000,
        whole[: len(whole) // 2],
        whole.replace('"tokens": [', '"tokens": ["x", '),
        whole.replace('"tokens": [', '"tokens": [3, '),
        whole.replace('"file": "', '"file": "../'),
        whole.replace('"nodes": [', '"nodes": [[], '),
    ):
        index.write_text(damaged)
        if damaged == whole.replace('"file": "', '"file": "../'):
            assert taken_in("taken in") > 0, "a name alone counts"
        else:
            assert taken_in("damaged, and left out") == 0
    index.write_text(whole.replace('"version": 2', '"version": 1'))
    assert taken_in("another model or version") == 0
    index.write_text(whole)
    flipped = bytearray(written)
    flipped[-5] ^= 1
    for bad in (bytes(flipped), written[:-1], written + b"x", b""):
        data.write_bytes(bad)
        assert taken_in("damaged, and left out") == 0
    data.unlink()
    assert taken_in("damaged, and left out") == 0


def test_a_folder_of_weights_is_left_as_it_is(serve, tmp_path):
    """`--cache-folder` may name any folder: nothing but ours is written or removed there."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"more")
    engine = serve(rows=1, snapshot_folder=tmp_path)
    engine.run(greedy(tokens(30, 41), 2))
    engine.close()
    assert (tmp_path / "model.safetensors").read_bytes() == b"weights"
    assert (tmp_path / "model-00001-of-00002.safetensors").read_bytes() == b"more"
    assert (tmp_path / "snapshots.json").exists()


def test_a_folder_that_cannot_be_written(serve, tmp_path):
    """Is said at the start; where it comes later, the engine ends all the same."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="snapshots cannot be written"):
        serve(rows=1, snapshot_folder=tmp_path / "file")
    said = []
    engine = serve(rows=1, snapshot_folder=tmp_path / "kept", progress=said.append)
    engine.run(greedy(tokens(30, 41), 2))
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "kept").write_text("")
    engine.close()
    assert engine._phase == "closed" and "snapshots cannot be written" in said[-1]


def test_long_prompts_get_snapshots_within(serve, monkeypatch):
    """A prompt that parts from a long one in its middle does not start from nothing."""
    monkeypatch.setattr("linnet.serve.runner.STRIDE", 64)
    engine = serve(rows=1, of=hybrid())
    long = tokens(200, 50)
    engine.run(greedy(long, 1))
    parted = [*long[:150], *tokens(30, 51)]
    result = engine.run(greedy(parted, 5))
    assert result.usage.cached_tokens == 128
    assert result.choices[0].tokens == alone(hybrid(), parted, 5)


def test_where_a_turn_goes_on_outlives_what_only_the_same_prompt_could_use():
    """Of many conversations the snapshots before the generation prompt are kept, not the ends of
    prompts and answers that never come again."""
    chat, model = text(), hybrid()

    def prompt(i):
        return chat.tokenizer.encode(chat.chat([{"role": "user", "content": f"{i}. What now?"}]))

    layout = layout_of(model)
    length = len(prompt(0))
    budget = 10 * (length * layout.position_bytes + layout.recurrent_bytes + 1200)
    with Engine(model, chat, rows=1, snapshot_bytes=budget) as engine:
        for i in range(8):
            engine.run(greedy(prompt(i), 3))
        for i in range(8):
            stable = stable_length(prompt(i), generation_prompts(chat))
            other = [*prompt(i)[:stable], 65, 66]
            assert engine.run(greedy(other, 1)).usage.cached_tokens == stable, i


# --- The tree against a plain list of prefixes --------------------------------------


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_tree_finds_what_was_kept(recurrent, seed):
    """Positional states are the tokens themselves and the recurrent one is their sum, so that
    what is restored can be read. Without evictions the tree must find the longest there is."""
    random_ = random.Random(seed)
    length = 24
    layout = Layout({"k": 1}, ("r",) if recurrent else (), length, 16, 8 if recurrent else 0)
    states = {"k": torch.zeros(1, 2, length, dtype=torch.int64), "r": torch.zeros(1, 1)}
    budget = random_.choice([400, 900, 10**6])
    cache = PrefixCache(layout, budget)
    kept: set[tuple[int, ...]] = set()
    logits: set[tuple[int, ...]] = set()
    for _ in range(150):
        prompt = tuple(random_.choices((1, 2), (3, 1), k=random_.randint(1, length)))
        whole = random_.random() < 0.5
        if random_.random() < 0.5:
            states["k"][0, :, : len(prompt)] = torch.tensor(prompt)
            states["r"][0] = sum(prompt)
            if cache.keep(prompt, states, 0, torch.zeros(1) if whole else None):
                kept.add(prompt)
                logits |= {prompt} if whole else set()
        else:
            found, _ = cache.find(prompt, whole=whole)
            at = 0 if found is None else found.position
            if found is not None:
                assert (prompt[:at] in kept) or not recurrent
                fresh = {"k": torch.zeros(1, 2, length, dtype=torch.int64), "r": torch.zeros(1, 1)}
                found.restore(layout, fresh, 0)
                assert fresh["k"][0, 0].tolist() == [*prompt[:at], *[0] * (length - at)]
                assert not recurrent or fresh["r"].item() == sum(prompt[:at])
            if budget == 10**6:
                assert at == _longest(prompt, kept, logits if whole else set(), recurrent)
        assert cache.bytes <= budget
        held = sum(
            16 * len(n.tokens) + (8 if n.recurrent is not None else 0)
            + (4 if n.logits is not None else 0)
            for n in cache.nodes()
        )  # fmt: skip
        assert cache.bytes == held


def _longest(prompt, kept, logits, recurrent):
    if prompt in logits and prompt in kept:
        return len(prompt)
    best = 0
    for one in kept:
        if recurrent:
            same = len(one) if prompt[: len(one)] == one else 0
        else:
            same = next(
                (i for i, (a, b) in enumerate(zip(one, prompt)) if a != b),
                min(len(one), len(prompt)),
            )
        if not recurrent:
            same = min(same, len(prompt) - 1)
        best = max(best, same if same < len(prompt) else 0)
    return best


def test_the_special_tokens_of_the_fixture():
    ids = text().tokenizer.encode("<think>a</think><|im_end|>")
    assert ids == [IDS["<think>"], 97, IDS["</think>"], IDS["<|im_end|>"]]
