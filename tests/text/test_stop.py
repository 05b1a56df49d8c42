"""Stop strings: what is shown does not depend on how the text comes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.errors import InputError
from linnet.text.stop import StopStrings


def oracle(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The first place where a stop string stands; of those there, the longest."""
    for i in range(len(text)):
        here = [s for s in stops if text.startswith(s, i)]
        if here:
            return text[:i], max(here, key=len)
    return text, None


def run(parts: list[str], stops: list[str]) -> tuple[str, str | None]:
    watch = StopStrings(stops)
    shown = []
    for part in parts:
        text, found = watch.feed(part)
        shown.append(text)
        if found is not None:
            assert watch.feed("more") == ("", found)
            return "".join(shown), found
    text, found = watch.finish()
    return "".join([*shown, text]), found


@given(
    st.lists(st.text("ab", max_size=4), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_any_cut_gives_what_the_whole_gives(parts: list[str], stops: list[str]) -> None:
    assert run(parts, stops) == oracle("".join(parts), stops)


def test_only_what_may_become_a_stop_is_held_back() -> None:
    watch = StopStrings(["</s>", "User:"])
    assert watch.feed("hello <") == ("hello ", None)
    assert watch.feed("b> U") == ("<b> ", None)
    assert watch.feed("ser") == ("", None)
    assert watch.feed("!") == ("User!", None)
    assert watch.feed("</s> rest") == ("", "</s>")


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(InputError, match="at least one character"):
        StopStrings(["a", ""])
