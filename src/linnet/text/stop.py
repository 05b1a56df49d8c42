"""Stop strings in a stream of text."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.errors import InputError


class StopStrings:
    """Watches a stream of text for stop strings, and holds back what may become one.

    `feed(text)` returns the text that is safe to show and the stop string found, or None. The
    stop string itself is never shown, nor anything after it. Of several that match, the one that
    starts first wins; of those, the longest. The result does not depend on how the text is cut.
    """

    def __init__(self, stops: Iterable[str] = ()):
        self.stops = tuple(dict.fromkeys(stops))
        for s in self.stops:
            if not isinstance(s, str) or not s:
                raise InputError(f"stop is {s!r}; expected a string with at least one character")
        self._held = ""
        self._found: str | None = None

    def feed(self, text: str) -> tuple[str, str | None]:
        if self._found is not None:
            return "", self._found
        if not self.stops:
            return text, None
        self._held += text
        held = self._held
        # The first place where a stop string stands, or where one may still come to stand.
        start = self._first(held)
        if start is None:
            self._held = ""
            return held, None
        shown, rest = held[:start], held[start:]
        self._held = rest
        if any(s.startswith(rest) and s != rest for s in self.stops):
            return shown, None  # a longer one may still match here
        return shown, self._settle(rest)

    def _first(self, held: str) -> int | None:
        longest = max(map(len, self.stops))
        found = min((i for s in self.stops if (i := held.find(s)) >= 0), default=len(held))
        # A stop string can only be cut off within its own length of the end.
        for i in range(max(0, len(held) - longest + 1), found):
            rest = held[i:]
            if any(s.startswith(rest) for s in self.stops):
                return i
        return found if found < len(held) else None

    def _settle(self, rest: str) -> str | None:
        found = [s for s in self.stops if rest.startswith(s)]
        self._found = max(found, key=len) if found else None
        return self._found

    def finish(self) -> tuple[str, str | None]:
        """The end of the stream: the text still held back, and the stop string, if one stood."""
        if self._found is not None:
            return "", self._found
        rest, self._held = self._held, ""
        start = min((i for s in self.stops if (i := rest.find(s)) >= 0), default=None)
        if start is None:
            return rest, None
        return rest[:start], self._settle(rest[start:])
