"""One request: its bounds, its end, its failure, and that others do not notice."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from serve_models import IDS, VOCABULARY, alone, hybrid, plain, text, tokens

from linnet.errors import BackendError, InputError
from linnet.serve import (
    Constraint,
    ContextExceeded,
    Delta,
    Done,
    Engine,
    Failed,
    Finished,
    Observer,
    Prefilled,
    QueueFull,
    Request,
    RequestFailed,
    Sampling,
    Unavailable,
)

GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def model():
    return plain()


def greedy(prompt, count, **options):
    return Request(prompt, GREEDY, max_tokens=count, stop_tokens=frozenset(), **options)


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


# --- Values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, -1]}, r"prompt\[1\]"),
        ({"prompt": [True]}, r"prompt\[0\]"),
        ({"n": 0}, "n is 0"),
        ({"n": 1.5}, "n is 1.5"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": ("",)}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"logit_bias": {3: 101}}, r"logit_bias\[3\]"),
        ({"logit_bias": {3: float("nan")}}, r"logit_bias\[3\]"),
        ({"logit_bias": {-3: 1}}, "logit_bias"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_wrong_values_are_named(values, names):
    with pytest.raises(InputError, match=names):
        Request(**{"prompt": [1], **values})


def test_wrong_constraints_are_named(serve):
    for values in ({"kind": "xml"}, {"kind": "regex"}, {"kind": "choice", "value": "a"}):
        with pytest.raises(InputError):
            Constraint(**values)
    engine = serve(rows=1, text=text())
    for constraint in (
        Constraint("schema", {"type": "objekt"}),
        Constraint("schema", "{"),
        Constraint("regex", "((("),
        Constraint("lark", "begin: x"),
    ):
        with pytest.raises(InputError, match=constraint.kind):
            engine.submit(Request([1], constraint=constraint))
    assert engine.health == "ok" and engine.run(greedy([1], 2)).usage.completion_tokens == 2


def test_token_ids_out_of_the_vocabulary_are_named(serve):
    engine = serve(rows=1)
    with pytest.raises(InputError, match=rf"prompt\[2\] is {VOCABULARY}"):
        engine.submit(Request([1, 2, VOCABULARY]))
    with pytest.raises(InputError, match="logit_bias"):
        engine.submit(Request([1], logit_bias={VOCABULARY: 1.0}))
    with pytest.raises(InputError, match="tokenizer"):
        engine.submit(Request([1], stop=("a",)))


# --- Bounds -------------------------------------------------------------------------


def test_the_context_bounds_prompt_and_answer(serve, model):
    engine = serve(rows=2)
    with pytest.raises(ContextExceeded) as caught:
        engine.submit(greedy(tokens(257, 1), 1))
    assert (caught.value.found, caught.value.limit) == (257, 256)
    full = engine.run(greedy(tokens(256, 1), None)).choices[0]
    assert (full.reason, len(full.tokens)) == ("context", 1)
    long = engine.run(greedy(tokens(200, 2), None)).choices[0]
    assert (long.reason, len(long.tokens)) == ("context", 57)
    assert long.tokens == alone(model, tokens(200, 2), 57)
    nothing = engine.run(greedy(tokens(5, 3), 0))
    assert nothing.choices[0].reason == "length" and nothing.usage.completion_tokens == 0
    limited = serve(rows=1, prompt_limit=10)
    with pytest.raises(ContextExceeded, match="limit"):
        limited.submit(greedy(tokens(11, 1), 1))


def test_the_queue_is_bounded(serve):
    engine = serve(rows=1, lanes=1, max_waiting=2)
    running = engine.submit(greedy(tokens(5, 1), 200))
    next(iter(running))
    waiting = [engine.submit(greedy(tokens(5, 2), 1)) for _ in range(2)]
    with pytest.raises(QueueFull) as caught:
        engine.submit(greedy(tokens(5, 3), 1))
    assert caught.value.retry_after >= 1
    running.cancel()
    for handle in waiting:
        assert handle.result().choices[0].reason == "length"


def test_first_come_first_served(serve):
    engine = serve(rows=1)
    order: list[int] = []

    def listener(number):
        return lambda event: order.append(number) if isinstance(event, Done) else None

    handles = [engine.submit(greedy(tokens(9, i), 3), listener(i)) for i in range(8)]
    assert engine.drain(20)
    assert order == list(range(8)) and len(handles) == 8


# --- Ends ---------------------------------------------------------------------------


def test_cancelled_within_a_step(serve):
    engine = serve(rows=1)
    handle = engine.submit(greedy(tokens(5, 1), 250))
    events = iter(handle)
    assert isinstance(next(events), Prefilled)
    steps = engine.stats().steps
    handle.cancel()
    rest = list(events)
    assert isinstance(rest[-1], Done) and isinstance(rest[-2], Finished)
    assert rest[-2].reason == "cancelled"
    assert engine.stats().steps - steps < 100
    wait_for(lambda: engine.stats().running == 0)
    assert engine.stats().cancelled == 1


def test_cancelled_in_the_queue_and_in_the_prompt(serve):
    engine = serve(rows=1, lanes=1, chunk=1)
    inside = engine.submit(greedy(tokens(200, 1), 5))
    waiting = engine.submit(greedy(tokens(5, 2), 5, n=2))
    waiting.cancel()
    inside.cancel()
    for handle, count in ((inside, 1), (waiting, 2)):
        result = handle.result()
        assert [c.reason for c in result.choices] == ["cancelled"] * count
    assert not engine.runner.schedule.busy


def test_a_deadline_ends_an_answer(serve):
    engine = serve(rows=1, lanes=1)
    handles = [engine.submit(greedy(tokens(3, i), None, timeout=0.05)) for i in range(20)]
    results = [h.result() for h in handles]
    reasons = {c.reason for r in results for c in r.choices}
    assert "timeout" in reasons and reasons <= {"timeout", "context"}


def test_a_listener_that_raises_ends_its_own_request(serve, model):
    engine = serve(rows=2)

    def raises(event):
        raise RuntimeError("the socket is gone")

    engine.submit(greedy(tokens(5, 1), 200), raises)
    prompt = tokens(6, 2)
    assert engine.run(greedy(prompt, 20)).choices[0].tokens == alone(model, prompt, 20)
    wait_for(lambda: engine.stats().running == 0)
    assert engine.stats().cancelled == 1


def test_drain_finishes_what_there_is(serve):
    engine = serve(rows=2)
    handles = [engine.submit(greedy(tokens(5, i), 30)) for i in range(5)]
    assert engine.drain(30)
    assert engine.health == "draining"
    with pytest.raises(Unavailable, match="draining"):
        engine.submit(greedy([1], 1))
    assert all(h.result().choices[0].reason == "length" for h in handles)


def test_drain_with_no_time_left_cancels(serve):
    engine = serve(rows=1)
    handles = [engine.submit(greedy(tokens(5, i), None)) for i in range(6)]
    assert not engine.drain(0.0)
    assert "cancelled" in {h.result().choices[0].reason for h in handles}


def test_close_ends_everything(model):
    engine = Engine(model, rows=1)
    assert engine.health == "new"
    with pytest.raises(Unavailable):
        engine.submit(greedy([1], 1))
    engine.start()
    handles = [engine.submit(greedy(tokens(5, i), None)) for i in range(4)]
    engine.close()
    assert {h.result().choices[0].reason for h in handles} <= {"cancelled", "context"}
    assert engine.health == "closed"
    assert not [t for t in threading.enumerate() if t.name == "linnet engine"]


# --- Failures -----------------------------------------------------------------------


def test_a_prompt_that_fails_fails_alone(serve, model, monkeypatch):
    engine = serve(rows=3)
    bad = tokens(40, 66)
    prefill = engine.runner.lanes.prefill

    def fails(lane, part, position):
        if list(part) == bad[: len(part)]:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return prefill(lane, part, position)

    monkeypatch.setattr(engine.runner.lanes, "prefill", fails)
    good = [tokens(20, i) for i in range(4)]
    handles = [engine.submit(greedy(p, 10)) for p in (good[0], bad, *good[1:])]
    failed = handles.pop(1)
    *_, last = failed
    assert isinstance(last, Failed) and "memory" in str(last.error)
    for prompt, handle in zip(good, handles):
        assert handle.result().choices[0].tokens == alone(model, prompt, 10)
    assert engine.health == "ok" and engine.stats().failed == 1


def test_a_row_with_nan_fails_alone_and_leaves_nothing_behind(serve, model, monkeypatch):
    engine = serve(rows=2, lanes=1)
    step = engine.runner.rows.step
    poisoned = []

    def poison(tokens, positions):
        if not poisoned and positions[0] == 12:
            for tensor in engine.runner.rows.states.values():
                tensor[0].fill_(float("nan"))
            poisoned.append(True)
        return step(tokens, positions)

    monkeypatch.setattr(engine.runner.rows, "step", poison)
    first, second = tokens(10, 1), tokens(11, 2)
    damaged, sound = engine.submit(greedy(first, 30)), engine.submit(greedy(second, 60))
    with pytest.raises(RequestFailed, match="NaN"):
        damaged.result()
    assert engine.run(greedy(first, 20)).choices[0].tokens == alone(model, first, 20)
    assert sound.result().choices[0].tokens == alone(model, second, 60)


def test_a_step_that_fails_fails_what_ran_and_the_engine_goes_on(serve, model, monkeypatch):
    engine = serve(rows=2)
    step = engine.runner.rows.step
    calls = []

    def once(tokens, positions):
        calls.append(1)
        if len(calls) == 5:
            raise BackendError("the device is away for a moment")
        return step(tokens, positions)

    monkeypatch.setattr(engine.runner.rows, "step", once)
    with pytest.raises(RequestFailed, match="away"):
        engine.run(greedy(tokens(5, 1), 30))
    prompt = tokens(6, 2)
    assert engine.run(greedy(prompt, 10)).choices[0].tokens == alone(model, prompt, 10)
    assert engine.health == "ok"


def test_steps_that_fail_again_and_again_are_said(serve, monkeypatch):
    engine = serve(rows=1)

    def never(tokens, positions):
        raise BackendError("the device is gone")

    monkeypatch.setattr(engine.runner.rows, "step", never)
    for _ in range(3):
        with pytest.raises(RequestFailed, match="gone"):
            engine.run(greedy([1, 2], 5))
    wait_for(lambda: engine.health == "failed")
    with pytest.raises(Unavailable):
        engine.submit(greedy([1], 1))


def test_a_model_without_rows_is_refused():
    import linnet

    class Bare:
        name = "bare"
        generics: dict[str, int] = {"MaxSeq": 8}  # noqa: RUF012

    with pytest.raises(linnet.BackendError, match="Batch"):
        Engine(Bare())


# --- Sampling and text --------------------------------------------------------------


def test_every_sampling_field_acts(serve):
    engine = serve(rows=4)
    prompt = tokens(8, 5)
    plain_answer = engine.run(greedy(prompt, 12)).choices[0].tokens
    forced = engine.run(greedy(prompt, 3, logit_bias={77: 100.0})).choices[0].tokens
    assert forced == (77, 77, 77)
    never = engine.run(greedy(prompt, 12, logit_bias={plain_answer[0]: -100.0})).choices[0]
    assert plain_answer[0] not in never.tokens
    for name, value in (
        ("presence_penalty", 2.0), ("frequency_penalty", 2.0), ("repetition_penalty", 8.0)
    ):  # fmt: skip
        biased = {"logit_bias": {77: 3.0, 78: 2.9, 79: 2.8}}
        without = engine.run(greedy(prompt, 10, **biased)).choices[0].tokens
        sampling = Sampling(temperature=0.0, **{name: value})
        request = Request(prompt, sampling, max_tokens=10, stop_tokens=frozenset(), **biased)
        assert engine.run(request).choices[0].tokens != without, name

    def drawn(**options):
        request = Request(prompt, Sampling(**options), n=40, max_tokens=1)
        return {c.tokens[0] for c in engine.run(request).choices}

    assert len(drawn(seed=1)) > 10
    assert len(drawn(seed=1, top_k=2)) == 2
    assert len(drawn(seed=1, top_p=0.01)) <= 3
    assert len(drawn(seed=1, min_p=0.999)) == 1
    assert len(drawn(seed=1, temperature=0.001)) == 1


def test_logprobs_are_the_models_own(serve, model):
    prompt = tokens(9, 6)
    engine = serve(rows=2)
    request = Request(
        prompt, Sampling(temperature=2.0, seed=4, frequency_penalty=1.0), max_tokens=5,
        stop_tokens=frozenset(), logprobs=3, logit_bias={9: 50.0},
    )  # fmt: skip
    choice = engine.run(request).choices[0]
    text_ids = [*prompt, *choice.tokens]
    logits = model.forward(torch.tensor([text_ids]))[0]
    for i, told in enumerate(choice.logprobs):
        logs = torch.log_softmax(logits[len(prompt) - 1 + i], 0)
        assert told.token == choice.tokens[i]
        assert abs(told.logprob - logs[told.token].item()) < 1e-4
        best = torch.topk(logs, 3)
        assert [t for t, _ in told.top] == best.indices.tolist()
        assert [v for _, v in told.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def spelled(*parts):
    """Token ids of texts and of special tokens by name."""
    found = []
    for part in parts:
        found += [IDS[part]] if part in IDS else list(part.encode())
    return found


def scripted(engine, monkeypatch, script):
    """Makes the engine's greedy choices follow `script`, whatever the weights say; grammars
    still hold."""
    rows, lanes = engine.runner.rows, engine.runner.lanes
    step, prefill = rows.step, lanes.prefill
    state = {"at": 0}

    def logits_of():
        logits = torch.zeros(VOCABULARY)
        if state["at"] < len(script):
            logits[script[state["at"]]] = 10.0
        state["at"] += 1
        return logits

    def fake_step(tokens, positions):
        step(tokens, positions)
        return logits_of().unsqueeze(0)

    def fake_prefill(lane, part, position):
        prefill(lane, part, position)
        state["at"] = 0
        return logits_of()

    monkeypatch.setattr(rows, "step", fake_step)
    monkeypatch.setattr(lanes, "prefill", fake_prefill)


def test_text_streams_in_whole_characters_and_stops_before_stop_strings(serve, monkeypatch):
    engine = serve(rows=1, text=text(), snapshot_bytes=0)
    said = "Grüße aus 東京 🗼 END and more"
    scripted(engine, monkeypatch, spelled(said, "<|im_end|>"))
    handle = engine.submit(Request([1], GREEDY, stop=("END",)))
    events = list(handle)
    pieces = [e.text for e in events if isinstance(e, Delta)]
    assert "".join(pieces) == "Grüße aus 東京 🗼 "
    assert all("\ufffd" not in p and not p.endswith("E") for p in pieces)
    finished = next(e for e in events if isinstance(e, Finished))
    assert (finished.reason, finished.stopped_by) == ("stop", "END")
    whole = engine.run(Request([1], GREEDY))
    assert (whole.choices[0].text, whole.choices[0].stopped_by) == (said, IDS["<|im_end|>"])
    cut = engine.run(Request([1], GREEDY, max_tokens=3, logprobs=0)).choices[0]
    assert (cut.text, cut.reason, len(cut.logprobs)) == ("Gr\ufffd", "length", 3)
    special = engine.run(Request([1], GREEDY, stop_tokens=frozenset(), special=True, max_tokens=42))
    assert "<|im_end|>" in special.choices[0].text


def test_a_grammar_sleeps_until_the_thought_is_over(serve, monkeypatch):
    """JSON does not land in the reasoning: whatever the model thinks is free."""
    engine = serve(rows=1, text=text(), snapshot_bytes=0)
    thought = spelled("Well, {not json", "</think>")
    scripted(engine, monkeypatch, [*thought, *spelled("\n\nSure! ", "<|im_end|>")])
    schema = {
        "type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
        "additionalProperties": False,
    }  # fmt: skip
    constraint = Constraint("schema", schema, after=(IDS["</think>"],))
    choice = engine.run(Request([1], GREEDY, constraint=constraint, max_tokens=160)).choices[0]
    reasoning, _, answer = choice.text.partition("</think>")
    assert reasoning == "Well, {not json"
    import json

    assert json.loads(answer) == {"a": 1} and choice.reason == "stop"


def test_a_grammar_that_leaves_nothing_ends_its_answer_alone(serve, monkeypatch):
    engine = serve(rows=2, text=text())
    request = Request([1], GREEDY, constraint=Constraint("choice", ["yes", "no"]), n=2)
    done = engine.run(request)
    assert all(c.text in ("yes", "no") and c.reason == "stop" for c in done.choices)

    def broken(self):
        raise BackendError("the grammar failed: too complex")

    monkeypatch.setattr("linnet.serve.constraint.Matcher.mask", broken)
    with pytest.raises(RequestFailed, match="complex"):
        engine.run(request)
    assert engine.run(greedy([1], 2)).usage.completion_tokens == 2


# --- What is measured ---------------------------------------------------------------


def test_the_observer_is_told():
    seen: list[tuple] = []

    class Watch(Observer):
        def first_token(self, seconds):
            seen.append(("first", seconds))

        def between_tokens(self, seconds):
            seen.append(("between", seconds))

        def finished(self, reason, seconds, prompt_tokens, cached_tokens, new_tokens):
            seen.append(("finished", reason, prompt_tokens, cached_tokens, new_tokens))

    with Engine(hybrid(), rows=2, observer=Watch()) as engine:
        engine.run(greedy(tokens(10, 1), 4))
        assert "2 rows of 256 tokens" in str(engine.memory())
    assert [s[0] for s in seen] == ["first", "between", "between", "between", "finished"]
    assert seen[-1][1:] == ("length", 10, 0, 4)


def test_an_answer_of_no_tokens_ends_also_where_its_time_runs_out_in_the_queue(model):
    """Its reason is known from the start; its client still waits to be told."""
    with Engine(model, rows=1) as engine:
        busy = engine.submit(greedy(tokens(40, 1), 60))
        short = [engine.submit(greedy(tokens(4, i), 0, timeout=1e-6)) for i in range(3)]
        for handle in short:
            assert [c.reason for c in handle.result().choices] == ["length"]
        busy.result()
