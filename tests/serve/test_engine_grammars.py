"""Answers held to JSON schemas, patterns and grammars: at a temperature at which a model babbles,
every finished one is valid."""

from __future__ import annotations

import json
import random
import re

import pytest
from serve_models import IDS, plain, text

from linnet.errors import InputError
from linnet.serve import Constraint, Engine, Request, Sampling
from linnet.serve.constraint import Grammars

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

COUNT = 200


def schema(seed):
    """A random schema, small enough that a babbling model comes to its end."""
    random_ = random.Random(seed)

    def one(depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
        if depth < 3:
            kinds += ["object"] * 4 + ["array"] * 3 + ["anyOf"] * 2
        match random_.choice(kinds):
            case "string":
                low = random_.randint(0, 3)
                return {
                    "type": "string",
                    "minLength": low,
                    "maxLength": low + random_.randint(0, 9),
                }
            case "integer":
                low = random_.randint(-300, 300)
                return {"type": "integer", "minimum": low, "maximum": low + random_.randint(0, 900)}
            case "number":
                return {"type": "number", "minimum": 0, "maximum": random_.randint(1, 50)}
            case "enum":
                return {"enum": random_.sample(["a", "ß", 1, 2.5, None, True, "x y"], 3)}
            case "const":
                return {"const": random_.choice(["yes", 7, [1, {"b": None}]])}
            case "pattern":
                return {"type": "string", "pattern": r"^[A-Z]{2}-\d{1,4}$"}
            case "object":
                names = random_.sample(
                    ["name", "age", "été", "tags", "x-y", "a b"], random_.randint(1, 4)
                )
                needed = [n for n in names if random_.random() < 0.6]
                return {
                    "type": "object",
                    "properties": {n: one(depth + 1) for n in names},
                    "required": needed,
                    "additionalProperties": False,
                }
            case "array":
                low = random_.randint(0, 2)
                return {
                    "type": "array",
                    "items": one(depth + 1),
                    "minItems": low,
                    "maxItems": low + 2,
                }
            case "anyOf":
                return {"anyOf": [one(depth + 1), one(depth + 1)]}
            case kind:
                return {"type": kind}

    return one(0)


def test_every_finished_answer_validates():
    schemas = [schema(seed) for seed in range(COUNT)]
    assert len({json.dumps(s) for s in schemas}) > COUNT * 0.7
    with Engine(plain(2048), text(), rows=16, max_waiting=COUNT) as engine:
        handles = [
            engine.submit(
                Request(
                    [1, 2, 3], Sampling(temperature=1.5, seed=seed), max_tokens=900,
                    constraint=Constraint("schema", schema),
                )
            )
            for seed, schema in enumerate(schemas)
        ]  # fmt: skip
        finished = 0
        for schema_, handle in zip(schemas, handles):
            choice = handle.result().choices[0]
            if choice.reason == "stop":
                finished += 1
                jsonschema.validate(json.loads(choice.text), schema_)
    assert finished >= COUNT * 0.95


def test_patterns_choices_and_grammars():
    with Engine(plain(), text(), rows=4) as engine:

        def answers(kind, value, n=8):
            request = Request(
                [5], Sampling(temperature=1.5, seed=1), n=n, max_tokens=100,
                constraint=Constraint(kind, value),
            )  # fmt: skip
            return [c.text for c in engine.run(request).choices if c.reason == "stop"]

        for found in answers("regex", r"(ab|c){1,5}-[0-9]{2}"):
            assert re.fullmatch(r"(ab|c){1,5}-[0-9]{2}", found)
        said = answers("choice", ['say "x"', "東京", "no\nline"], 20)
        assert set(said) == {'say "x"', "東京", "no\nline"}
        for found in answers("lark", 'start: "<" /[a-z]{1,4}/ ("," /[a-z]{1,4}/)* ">"'):
            assert re.fullmatch(r"<[a-z]{1,4}(,[a-z]{1,4})*>", found)
        for found in answers("json", None):
            assert isinstance(json.loads(found), dict)


def test_choices_of_one_request_have_matchers_of_their_own():
    grammars = Grammars(text().tokenizer, 262, frozenset([IDS["<|im_end|>"]]))
    first = grammars.matcher(Constraint("choice", ["aa", "ab"]))
    second = first.copy()
    assert not first.add(ord("a"))
    assert first.add(ord("b"))
    assert not second.add(ord("a"))
    mask = second.mask()
    allowed = {i for i in range(262) if mask[i // 8] >> (i % 8) & 1}
    assert allowed == {ord("a"), ord("b")}


def test_a_model_without_an_end_holds_to_no_form():
    grammars = Grammars(text().tokenizer, 262, frozenset())
    with pytest.raises(InputError, match="schema cannot be used: the model names no token"):
        grammars.matcher(Constraint("schema", {"type": "object"}))
