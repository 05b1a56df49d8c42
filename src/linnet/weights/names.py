"""Near names: what a checkpoint may call a tensor that was looked for in vain."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

# Comparing spellings is slow over thousands of names, so only the first few misses get it.
_SPELLINGS = 12


class NearNames:
    """Looks among `names`, the tensors that nothing else asked for."""

    def __init__(self, names: list[str]):
        self._names = names
        self._by_tail: dict[str, list[str]] = {}
        for name in names:
            for tail in _tails(name):
                self._by_tail.setdefault(tail, []).append(name)
        self._left = _SPELLINGS

    def of(self, name: str) -> str | None:
        """The name most like this one: with another prefix, or spelled a little differently."""
        moved = self._moved(name)
        if moved is not None or not self._left:
            return moved
        self._left -= 1
        # Names differ in layer numbers more than in spelling; those must agree.
        digits = _numbers(name)
        alike = [other for other in self._names if _numbers(other) == digits]
        close = get_close_matches(name, alike, n=1, cutoff=0.75)
        return close[0] if close else None

    def prefix(self, names: list[str]) -> tuple[str, str] | None:
        """The one pair (looked for, found) of prefixes that most of these names differ in."""
        pairs: Counter[tuple[str, str]] = Counter()
        for name in names:
            other = self._moved(name)
            if other is not None:
                same = _common_tail(name, other)
                pairs[name[: len(name) - same], other[: len(other) - same]] += 1
        best = pairs.most_common(1)
        if best and best[0][1] > 2 and 2 * best[0][1] > len(names):
            return best[0][0]
        return None

    def _moved(self, name: str) -> str | None:
        """The only unused name with the same last components, two or more of them."""
        numbers = _numbers(name)
        for tail in _tails(name):
            if "." not in tail:
                break
            found = self._by_tail.get(tail, [])
            if found:
                return found[0] if len(found) == 1 and _numbers(found[0]) == numbers else None
        return None


def _tails(name: str) -> list[str]:
    """The name, and what is left of it as components are dropped from the front."""
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(len(parts))]


def _numbers(name: str) -> list[str]:
    return [part for part in name.split(".") if part.isdigit()]


def _common_tail(a: str, b: str) -> int:
    """The length of the dotted components that two names end in alike."""
    ours, theirs = a.split("."), b.split(".")
    same = 0
    while same < min(len(ours), len(theirs)) and ours[-1 - same] == theirs[-1 - same]:
        same += 1
    return len(".".join(ours[len(ours) - same :]))
