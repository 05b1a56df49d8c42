"""Where the turns of a conversation part: before the generation prompt.

Templates of models that think drop the thoughts of earlier turns, so the text of a turn seldom
goes on from the end of the answer before it. What the next prompt does repeat is everything up
to where this one asked for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linnet.errors import Error

if TYPE_CHECKING:
    from linnet.text.open import TextModel

_PROBE = [{"role": "user", "content": "x"}]


def generation_prompts(text: TextModel | None) -> list[tuple[int, ...]]:
    """The token sequences by which the template asks for an answer, longest first."""
    if text is None or text.template is None:
        return []
    found: set[tuple[int, ...]] = set()
    for variables in ({}, {"enable_thinking": True}, {"enable_thinking": False}):
        try:
            asked = text.chat(_PROBE, add_generation_prompt=True, **variables)
            said = text.chat(_PROBE, add_generation_prompt=False, **variables)
        except Error:  # a template that wants something else first
            continue
        if asked.startswith(said) and len(said) < len(asked):
            found.add(tuple(text.tokenizer.encode(asked[len(said) :])))
    return sorted(found, key=len, reverse=True)


def stable_length(prompt: Sequence[int], endings: list[tuple[int, ...]]) -> int | None:
    """How many tokens stand before the generation prompt, where the prompt ends with one."""
    for ending in endings:
        cut = len(prompt) - len(ending)
        if cut > 0 and tuple(prompt[cut:]) == ending:
            return cut
    return None


def stable_prefix(
    text: TextModel, messages: Sequence[Mapping[str, Any]], ids: Sequence[int], **variables: Any
) -> int | None:
    """How many of a chat prompt's tokens the next turn will repeat, by rendering it without the
    generation prompt; None where the template cannot."""
    try:
        said = text.chat(messages, add_generation_prompt=False, **variables)
    except Error:
        return None
    kept = text.tokenizer.encode(said)
    same = next((i for i, (a, b) in enumerate(zip(ids, kept)) if a != b), min(len(ids), len(kept)))
    return same if 0 < same < len(ids) else None
