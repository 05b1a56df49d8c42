"""The tokens of a file without white space, and where the comments stand between them."""

from __future__ import annotations

from itertools import accumulate

from linnet.syntax.tree import Token, Tree


class Trivia:
    """Tokens by position, each with the comments around it.

    `trail[i]` follow token `i` on its line, and that line ends after them. `own[i]` stand on
    lines of their own before token `i`, each with whether an empty line precedes it.
    `inline[i]` stand right before token `i` on its line. `blank[i]` tells whether an empty
    line stands between token `i` (or its inline comments) and what comes before.
    """

    def __init__(self, tree: Tree):
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.trail: list[list[str]] = []
        self.own: list[list[tuple[str, bool]]] = []
        self.inline: list[list[str]] = []
        self.blank: list[bool] = []
        self.comments: list[str] = []
        found: list[tuple[str, int]] = []  # comments, with the line breaks before each
        breaks = 0
        for token in tree.tokens:
            if token.kind == "space":
                breaks += token.text.count("\n")
            elif token.kind == "comment" or token.kind == "doc":
                text = comment_text(token)
                self.comments.append(text)
                found.append((text, breaks))
                breaks = 0
            else:
                self._add(token, found, breaks)
                found, breaks = [], 0
        # How many comments stand before token `i` and how many after it, summed up.
        self.own_until = [0, *accumulate(map(len, self.own))]
        self.trail_until = [0, *accumulate(map(len, self.trail))]

    def _add(self, token: Token, found: list[tuple[str, int]], breaks: int) -> None:
        first = not self.texts
        after = [*[count for _, count in found[1:]], breaks]  # line breaks after each comment
        # The comments on the line of the token before, if that line ends after them.
        trailing = 0
        if not first:
            while trailing < len(found) and found[trailing][1] == 0:
                trailing += 1
            if trailing and not after[trailing - 1] and token.kind != "end":
                trailing = 0
            self.trail[-1] = [text for text, _ in found[:trailing]]
        rest = found[trailing:]
        after = after[trailing:]
        inline = len(rest)
        if token.kind != "end":
            while inline and not after[inline - 1]:
                inline -= 1
        self.texts.append(token.text)
        self.starts.append(token.start)
        self.trail.append([])
        self.own.append([(text, count > 1) for text, count in rest[:inline]])
        self.inline.append([text for text, _ in rest[inline:]])
        self.blank.append((rest[inline][1] if inline < len(rest) else breaks) > 1)

    def inside(self, first: int, last: int) -> bool:
        """Whether comments that end a line stand between the tokens `first` and `last`."""
        return (
            self.own_until[last + 1] > self.own_until[first + 1]
            or self.trail_until[last] > self.trail_until[first]
        )

    def skeleton(self) -> str:
        """What formatting keeps: all tokens but commas, whose places follow from the tree.

        Joined, since `::` and `: :`, `>=` and `> =` mean the same where both may stand.
        """
        return "".join([text for text in self.texts if text != ","])


def comment_text(token: Token) -> str:
    """A comment as it is printed: no white space at the ends of its lines."""
    text = token.text
    if text.startswith("//"):
        return text.rstrip()
    return "\n".join([line.rstrip() for line in text.split("\n")])
