"""Pace, scheduling and sampling on their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linnet.serve.answer import Answer
from linnet.serve.pace import LONGEST, Pace
from linnet.serve.request import Request
from linnet.serve.rows import sizes_up_to
from linnet.serve.sampling import Draw, draw
from linnet.serve.turns import generation_prompts, stable_length, stable_prefix
from linnet.text.sampling import Sampling, SamplingState, sample

SETTINGS = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 5},
    {"top_k": 1},
    {"top_k": 40, "top_p": 0.95, "temperature": 1.5},
    {"min_p": 0.05},
    {"min_p": 0.02, "top_p": 0.8, "top_k": 300},
    {"repetition_penalty": 1.3, "temperature": 0.8},
    {"presence_penalty": 1.0, "frequency_penalty": 0.3, "top_p": 0.5},
    {"temperature": 1e-40},
    {"temperature": 1e-3, "top_p": 0.3},
    {"top_k": 10**6},
    {"top_k": 1000, "temperature": 2.0},
    {"top_k": 30, "min_p": 0.1},
    {"top_k": 30, "min_p": 0.1, "top_p": 0.7},
    {"top_k": 7, "temperature": 1e-40},
    {"top_k": 7, "presence_penalty": 2.0},
]


def test_rows_together_draw_what_each_would_alone():
    random = np.random.default_rng(0)
    for trial in range(12):
        scale = (0.1, 1.0, 4.0)[trial % 3]
        settings = [Sampling(**s, seed=100 * trial + i) for i, s in enumerate(SETTINGS)]
        one = [SamplingState.start(s, [1, 2, 3]) for s in settings]
        many = [SamplingState.start(s, [1, 2, 3]) for s in settings]
        for _ in range(4):
            logits = (random.standard_normal((len(settings), 2000)) * scale).astype(np.float32)
            if trial % 2:
                logits = np.round(logits, 1)  # many that are equal
            expected = [sample(row, state) for row, state in zip(logits, one)]
            before = logits.copy()
            drawn = draw(torch.from_numpy(logits), [Draw(state) for state in many])
            assert [d.token for d in drawn] == expected
            assert np.array_equal(before, logits), "the logits are not changed"


def test_bf16_logits_and_rows_that_cannot_be_drawn():
    logits = torch.zeros(4, 50, dtype=torch.bfloat16)
    logits[0, 7] = 3
    logits[1, 3] = float("nan")
    logits[2] = -torch.inf
    rows = [Draw(SamplingState.start(Sampling(temperature=0.0))) for _ in range(4)]
    rows[3].mask = np.zeros(7, dtype=np.uint8)
    rows[3].mask[1] = 1 << 2
    drawn = draw(logits, rows)
    assert (drawn[0].token, drawn[0].error) == (7, None)
    assert "NaN" in drawn[1].error and "minus infinity" in drawn[2].error
    assert drawn[3].token == 10
    assert rows[1].state.counts == {}


def chunk(pace, size, waiting=1, running=4):
    return pace.fits(pace.room(size, waiting, running))


def test_a_chunk_takes_about_as_long_as_a_step():
    pace = Pace()
    assert pace.fits(pace.room(4, 1, 1)) == pace.largest  # nothing is known yet
    for tokens in (1, 16, 64, 256):
        pace.learned(tokens, 0.005 + 0.001 * tokens)
        pace.learned(tokens, 0.5)  # a slow run beside a quick one counts for nothing
    assert pace.chunk_seconds(100) == pytest.approx(0.105)
    assert pace.chunk_seconds(400) == pytest.approx(0.405)
    pace.learned_step(4, 0.100)
    pace.learned_step(2, 0.900)  # no step of two rows takes longer than one of four
    assert pace.step_seconds(2) == pace.step_seconds(8) == 0.100
    assert chunk(pace, 4) == 75
    assert 24 <= pace.fits(0.030, first=False) <= 25
    assert pace.fits(0.010, first=False) == 0, "not worth a chunk"
    for _ in range(60):  # the machine is half as fast: both take twice as long
        pace.stepped(4, 0.200)
        pace.prefilled(75, 0.160)
    assert 70 <= chunk(pace, 4) <= 80
    for _ in range(60):
        pace.stepped(4, 0.001)
    assert chunk(pace, 4) == 4, "a prompt never stands still"


def test_a_crowd_comes_in_faster():
    pace = Pace()
    pace.learned_step(4, 0.050)
    for tokens in (1, 16, 64, 256):
        pace.learned(tokens, 0.001 * tokens)
    assert pace.room(4, 1, 1) == pace.room(4, 2, 4) == pytest.approx(0.040)
    assert pace.room(4, 4, 4) == pytest.approx(0.120)
    assert pace.room(4, 1000, 1) == LONGEST
    assert chunk(pace, 4, 4) == 120
    # However many run: whoever comes in last would run on alone when the others have ended.
    assert pace.room(64, 2, 62) == pytest.approx(0.040)
    assert pace.room(64, 6, 58) == pytest.approx(0.240)


def test_tokens_that_cost_nothing_come_along():
    """Where reading the weights is what takes the time, a chunk of one token helps nobody."""
    pace = Pace()
    for tokens, seconds in ((1, 0.020), (16, 0.022), (64, 0.050)):
        pace.learned(tokens, seconds)
    for _ in range(60):
        pace.stepped(1, 0.020)
        pace.prefilled(16, 0.044)  # and one busy hour does not end in single tokens
    assert 16 <= chunk(pace, 1) <= 30


def test_one_slow_run_moves_little():
    pace = Pace()
    pace.stepped(1, 0.01)  # the first is taken as it is
    pace.stepped(1, 10.0)
    assert pace.step_seconds(1) < 0.02


def test_sizes_of_steps():
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(6) == [1, 2, 4, 6]
    assert sizes_up_to(8) == [1, 2, 4, 8]


@pytest.mark.parametrize("thinks", [None, True, False])
def test_where_a_turn_asks_for_an_answer(thinks):
    from serve_models import text

    chat = text()
    messages = [{"role": "user", "content": "Hello"}]
    variables = {} if thinks is None else {"enable_thinking": thinks}
    ids = chat.tokenizer.encode(chat.chat(messages, **variables))
    said = chat.tokenizer.encode(chat.chat(messages, add_generation_prompt=False, **variables))
    assert stable_length(ids, generation_prompts(chat)) == len(said)
    assert stable_prefix(chat, messages, ids, **variables) == len(said)
    assert stable_length(said, generation_prompts(chat)) is None
    assert generation_prompts(None) == []


def test_a_chunk_far_into_a_prompt_is_shorter():
    """Attention reads every position before it: what fits a pause shrinks along a long prompt."""
    pace = Pace()
    for tokens in (1, 16, 64):
        pace.learned(tokens, 0.001 * tokens)
    pace.learned_far(16, 1000, 0.032)  # as long again for a thousand positions
    pace.learned_step(4, 0.050)
    room = pace.room(4, 1, 1)
    assert pace.fits(room) == 40
    assert pace.fits(room, position=1000) == 20
    assert pace.chunk_seconds(10, 3000) == pytest.approx(0.040)
    for _ in range(60):  # and a chunk that takes as long as it should says nothing new
        pace.prefilled(10, 0.040, 3000)
    assert pace.chunk_seconds(10) == pytest.approx(0.010)


def test_what_is_given_to_a_chunk_that_can_be_left():
    """Its step and it take twice the usual step together, less a margin; some of it in any case."""
    pace = Pace()
    pace.learned(64, 0.1)
    pace.learned_step(4, 0.010)
    assert 0.004 <= pace.room(4, 1, 1, pauses=True) <= 0.0095
    for _ in range(60):
        pace.stepped(4, 0.014, beside=True)  # the weights are out of the caches
    assert pace.step_seconds(4) == pytest.approx(0.010)
    assert 0.001 <= pace.room(4, 1, 1, pauses=True) <= 0.006
    for _ in range(60):
        pace.stepped(4, 0.030, beside=True)
    assert 0.001 <= pace.room(4, 1, 1, pauses=True) <= 0.003
    assert pace.room(4, 4, 4, pauses=True) == pytest.approx(0.024), "many wait"
    assert pace.whole(0.0) == pace.whole(0.001, first=False) == pace.largest
    assert pace.whole(0.0001, first=False) == 0
    assert pace.slice(float("inf")) <= 0.1, "a look at who has come or gone, ten times a second"
    for _ in range(100):
        pace.left(0.004, 0.0045)
    assert pace.slice(0.004) == pytest.approx(0.0035, rel=1e-3)
    assert pace.slice(0.0001) == 0.0


def test_answers_of_one_request_share_what_they_only_read():
    """Else a request of many answers would take many times what its body did."""
    request = Request(
        list(range(200)), Sampling(repetition_penalty=1.2, seed=1), n=3,
        logit_bias=dict.fromkeys(range(200), 1.0),
    )  # fmt: skip
    answers = [Answer(request, i, None, frozenset(), 300, None) for i in range(3)]
    assert len({id(a.state.prompt) for a in answers}) == 1
    assert len({id(a.draw().bias) for a in answers}) == 1
    assert len({a.state.random.integers(1 << 60) for a in answers}) == 3
    assert answers[0].state.prompt == frozenset(range(200))
