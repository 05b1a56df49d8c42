"""Reasoning and tool calls: what is read, and that it does not depend on how a text is cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from linnet.serve.parsing import AnswerParser
from linnet.serve.reasoning import Thought
from linnet.serve.tools import Arguments, Call, Text

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "code": {"type": "string"},
            "days": {"type": "integer"},
            "far": {"type": "number"},
            "metric": {"type": "boolean"},
            "where": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "tags": {"type": "array"},
            "unit": {"$ref": "#/$defs/Unit"},
            "level": {"enum": [1, 2]},
        },
        "$defs": {"Unit": {"enum": ["C", "F"]}},
    },
    "clock": {},
}


def call(name: str, **values: str) -> str:
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def read(pieces: list[str], open: bool = False, tools: Any = TOOLS, complete: bool = True) -> Any:
    """(reasoning, content, [(name, arguments)]) of an answer that comes in pieces."""
    parser = AnswerParser(thinks=True, open=open, tools=tools)
    parts = [part for piece in pieces for part in parser.feed(piece)] + parser.finish(complete)
    thought = "".join(p.text for p in parts if isinstance(p, Thought))
    text = "".join(p.text for p in parts if isinstance(p, Text))
    calls: list[list[str]] = []
    for part in parts:
        if isinstance(part, Call):
            assert part.index == len(calls)
            calls.append([part.name, ""])
        elif isinstance(part, Arguments):
            calls[part.index][1] += part.text
    assert parser.calls == len(calls)
    return thought, text, [tuple(c) for c in calls]


PARIS = ("weather", '{"city": "Paris"}')
WHOLE: list[tuple[str, bool, tuple[str, str, list[tuple[str, str]]]]] = [
    # text, whether the prompt left a thought open, what it means
    ("", False, ("", "", [])),
    ("Hello.\n", False, ("", "Hello.\n", [])),
    ("<think>\nHm.\n</think>\n\nHello.", False, ("Hm.", "Hello.", [])),
    ("\n<think>Hm", False, ("Hm", "", [])),
    ("Hm.\n\nYes.\n</think>\n\nHello <think> again", True, ("Hm.\n\nYes.", "Hello <think> again", [])),
    ("<think>\nHm.\n</think>Hello", True, ("Hm.", "Hello", [])),
    ("never ends </thin", True, ("never ends </thin", "", [])),
    ("</think>\n\nQuick", True, ("", "Quick", [])),
    ("<thin", True, ("<thin", "", [])),
    ("a < b <tool", False, ("", "a < b <tool", [])),
    (call("weather", city="Paris"), False, ("", "", [PARIS])),
    ("Let me see.\n\n" + call("weather", city="Paris"), False, ("", "Let me see.", [PARIS])),
    (
        "Hm.\n</think>\n\n" + call("weather", city="Paris") + "\n" + call("clock") + "\n",
        True,
        ("Hm.", "", [PARIS, ("clock", "{}")]),
    ),
    (call("clock") + "\n\nDone.", False, ("", "\n\nDone.", [("clock", "{}")])),
    # What a value may hold.
    (call("weather", code="02134"), False, ("", "", [("weather", '{"code": "02134"}')])),
    (
        call("weather", days="3", far="1.5", metric="True", where="None", unit="C", level="2"),
        False,
        ("", "", [("weather", '{"days": 3, "far": 1.5, "metric": true, "where": null, '
                   '"unit": "C", "level": 2}')]),
    ),
    (
        call("weather", where='{"lat": 4.5}', tags='["a", 1]', days="many", other="7"),
        False,
        ("", "", [("weather", '{"where": {"lat": 4.5}, "tags": ["a", 1], "days": "many", '
                   '"other": "7"}')]),
    ),
    (
        call("weather", city='\n "x" \\ é 🐦\n</tool_call> <parameter= \n'),
        False,
        ("", "", [("weather", json.dumps(
            {"city": '\n "x" \\ é 🐦\n</tool_call> <parameter= \n'}, ensure_ascii=False))]),
    ),
    # Forms half kept.
    ("<tool_call>\n<function=clock>\n</tool_call>", False, ("", "", [("clock", "{}")])),
    ("<function=clock>\n</function>\n</tool_call>", False, ("", "", [("clock", "{}")])),
    ("<function=nothing>\n</function>", False, ("", "<function=nothing>\n</function>", [])),
    ("<tool_call> is a tag", False, ("", "<tool_call> is a tag", [])),
    ("<tool_call>\n<function=a b>", False, ("", "<tool_call>\n<function=a b>", [])),
    ("<tool_call>\n<function=weather>\n<parameter=city>\nPar", False, ("", "", [("weather", '{"city": "Par"}')])),
    # The form with JSON.
    (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "</tool_call>"}}\n</tool_call>',
        False,
        ("", "", [("weather", '{"city": "</tool_call>"}')]),
    ),
    ('<tool_call>{"name": 5}</tool_call>', False, ("", '<tool_call>{"name": 5}</tool_call>', [])),
    # A call within a thought.
    ("Use it.\n" + call("clock"), True, ("Use it.", "", [("clock", "{}")])),
    (
        "Use " + call("clock") + " perhaps.\n</think>\n\nNo.",
        True,
        ("Use " + call("clock") + " perhaps.", "No.", []),
    ),
    ("Use it.\n" + call("clock") + "\n</think>", True, ("Use it.", "", [("clock", "{}")])),
    (
        "Use it.\n" + call("clock") + "\n</think>\n\nLet me see.",
        True,
        ("Use it.", "Let me see.", [("clock", "{}")]),
    ),
    (  # a draft of the call that follows
        "Use it.\n" + call("clock") + "\n</think>\n\n" + call("weather", city="Paris"),
        True,
        ("Use it.\n" + call("clock"), "", [PARIS]),
    ),
    ("<tool_call> in </think>\n\nx</tool_call>", True, ("<tool_call> in ", "x</tool_call>", [])),
    ("Use " + call("unknown"), True, ("Use " + call("unknown"), "", [])),
    ("Use <tool_call>\n<function=clock>", True, ("Use <tool_call>\n<function=clock>", "", [])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "open", "want"), WHOLE, ids=range(len(WHOLE)))
def test_what_is_read(text: str, open: bool, want: Any) -> None:
    assert read([text], open) == want


@pytest.mark.parametrize(("text", "open", "want"), WHOLE, ids=range(len(WHOLE)))
def test_every_cut_reads_the_same(text: str, open: bool, want: Any) -> None:
    for at in range(len(text) + 1):
        assert read([text[:at], text[at:]], open) == want, text[:at]
    assert read(list(text), open) == want
    for size in (2, 3, 5, 7):
        assert read([text[i : i + size] for i in range(0, len(text), size)], open) == want


@pytest.mark.parametrize("seed", range(200))
def test_random_texts_at_random_cuts(seed: int) -> None:
    draw = random.Random(seed)
    marks = [
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=clock>"),
        *("<function=weather>", "</function>", "<parameter=city>", "<parameter=days>"),
        *("</parameter>", "\n", "\n\n", " ", "x", "12", "é", "<", ">", "{", '"name"', "}"),
        *('{"name": "clock"}', "</", "<tool", call("clock"), call("weather", city="a b")),
    ]
    text = "".join(draw.choice(marks) for _ in range(draw.randint(1, 25)))
    for open in (False, True):
        for complete in (False, True):
            want = read([text], open, complete=complete)
            for _ in range(20):
                cuts = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 9)))
                pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
                assert read(pieces, open, complete=complete) == want, (text, pieces)
            if complete:
                for _, arguments in want[2]:
                    assert isinstance(json.loads(arguments), dict)


def test_a_call_cut_by_a_limit_stays_cut() -> None:
    text = "<tool_call>\n<function=weather>\n<parameter=city>\nPar"
    assert read([text], complete=False)[2] == [("weather", '{"city": "Par')]


def test_without_tools_nothing_is_looked_for() -> None:
    assert read([call("clock")], tools=None) == ("", call("clock"), [])
