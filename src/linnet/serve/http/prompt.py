"""Messages to a prompt: the model's template, its switches, and what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from linnet.serve.http.errors import bad
from linnet.serve.http.fields import Fields
from linnet.serve.http.formats import Thinking, ToolChoice
from linnet.serve.reasoning import CLOSE, OPEN
from linnet.serve.tool_grammar import style_of
from linnet.serve.turns import stable_prefix
from linnet.text.errors import TextError
from linnet.text.open import TextModel
from linnet.text.template import read_variables

# What `render` itself fills in.
_TAKEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True)
class Prompt:
    """A rendered chat: its tokens, how many of them later turns repeat, and its thoughts."""

    ids: list[int]
    stable: int | None
    thinking: Thinking
    style: str | None
    special: bool  # whether tags that the parser reads are special tokens


@lru_cache(maxsize=8)
def switches(source: str) -> frozenset[str]:
    """The variables that a template reads and a client may set, such as `enable_thinking`."""
    return read_variables(source) - _TAKEN


def read_switches(fields: Fields, text: TextModel) -> dict[str, Any]:
    """`chat_template_kwargs`, `enable_thinking` and `reasoning_effort` as template variables.

    Raises ApiError for one that the template does not read: it would change nothing."""
    source = text.template.source if text.template is not None else ""
    known = switches(source) - frozenset(text.template.names if text.template else ())
    variables = fields.mapping("chat_template_kwargs") or {}
    for name in variables:
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise bad(
                f"chat_template_kwargs.{name} is not read by the model's template; it has: {has}",
                f"chat_template_kwargs.{name}",
                "unknown_parameter",
            )
    thinking = fields.take("enable_thinking")
    if thinking is not None:
        if not isinstance(thinking, bool):
            raise fields.wrong("enable_thinking", thinking, "true or false")
        if "enable_thinking" not in known:
            raise bad("enable_thinking is not read by the model's template", "enable_thinking")
        variables = {"enable_thinking": thinking, **variables}
    return {**read_effort(fields, known, "reasoning_effort"), **variables}


def read_effort(fields: Fields, known: frozenset[str], name: str) -> dict[str, Any]:
    """How much to think, as far as the template has a switch for it."""
    efforts = ("none", "minimal", "low", "medium", "high", "xhigh")
    effort = fields.one_of(name, efforts)
    if effort is None:
        return {}
    if "reasoning_effort" in known:
        return {"reasoning_effort": effort}
    if "enable_thinking" not in known:
        raise fields.wrong(name, effort, "nothing: the model's template has no switch for it")
    # A template that thinks or does not can honour these alone.
    if effort not in ("none", "medium", "high"):
        raise fields.wrong(name, effort, "none (no thoughts), medium or high (thoughts)")
    return {"enable_thinking": effort != "none"}


def render(
    text: TextModel,
    messages: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    variables: Mapping[str, Any],
    field: str = "messages",
) -> Prompt:
    """`field`: the field of the request that holds the messages. Raises ApiError, TextError or
    InputError."""
    template = text.template
    if template is None:
        raise bad("the model has no chat template; use /v1/completions", field)
    style = style_of(template.source)
    values = dict(variables)
    if choice.active:
        if style is None:
            raise bad("the model's chat template has no form for tools that is known", "tools")
        values["tools"] = list(choice.shown)
    try:
        rendered = text.chat(messages, **values)
    except TextError as e:  # such as a template that wants the roles in another order
        said = str(e).removeprefix(f"{template.where}: ")  # where it lies is nobody's business
        raise bad(said, field, "invalid_value") from None
    ids = text.tokenizer.encode(rendered)
    if not ids:
        raise bad("the messages render to an empty prompt", field)
    thinks = OPEN in template.source
    end = rendered.rstrip()
    open = thinks and end.endswith(OPEN)
    closing = tuple(text.tokenizer.encode(CLOSE)) if open else ()
    thinking = Thinking(
        open=open,
        may=thinks and not open and not end.endswith(CLOSE),
        end=closing if len(closing) == 1 else (),
    )
    tags = (OPEN, CLOSE, *(("<tool_call>", "</tool_call>") if choice.active else ()))
    special = (thinks or choice.active) and any(
        text.tokenizer.id(tag) in text.tokenizer.special for tag in tags
    )
    # The engine knows the usual endings; a template with other switches may end otherwise.
    stable = None
    if set(variables) - {"enable_thinking"}:
        stable = stable_prefix(text, messages, ids, **values)
    return Prompt(ids, stable, thinking, style, special)
