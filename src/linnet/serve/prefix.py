"""Snapshots of prompts, found by their tokens: a radix tree under a memory budget.

A node stands for a stretch of tokens after its parent's, and holds the positional states of that
stretch; where a snapshot was taken it also holds the recurrent states after its last token.
Models without recurrent states can go on from anywhere in the tree; others from snapshots only.
So three places get one: where later turns will part from this one (before the generation prompt,
since templates drop old thoughts), the end of the prompt (equal prompts), and where a new prompt
parts from one that is known (what two had in common, a third will; cf. Marconi, arXiv
2411.19379). Long prompts get some in between.

Everything here is exact: a node is found by the very tokens, never by a hash of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from torch import Tensor

from linnet.serve.layout import Layout
from linnet.serve.sequence import Segment, Snapshot


class Node:
    """`tokens` after the parent's end, `segment` their positional states; `recurrent` and
    `logits` after the last of them, or None. `used` and `revived` are times of last use; `weak`
    is set while nothing but the same text again could use the snapshot, and nothing did."""

    __slots__ = (
        "children", "logits", "parent", "recurrent", "revived", "segment", "tokens", "used",
        "weak",
    )  # fmt: skip

    def __init__(self, parent: Node | None, tokens: tuple[int, ...], segment: Segment):
        self.parent, self.tokens, self.segment = parent, tokens, segment
        self.children: dict[int, Node] = {}
        self.recurrent: Segment | None = None
        self.logits: Tensor | None = None
        self.used = self.revived = 0
        self.weak = False

    @property
    def end(self) -> int:
        return len(self.tokens) + (self.parent.end if self.parent is not None else 0)

    def path(self) -> list[Node]:
        """From the first node below the root down to this one."""
        chain: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            chain.append(node)
            node = node.parent
        return chain[::-1]


class PrefixCache:
    """Bounded by `budget` bytes; what was not used for longest goes first, and before it what
    only the same prompt again could use (segmented LRU, Karedla et al., 1994)."""

    def __init__(self, layout: Layout, budget: int):
        self.layout, self.budget = layout, budget
        self.root = Node(None, (), ())
        self.bytes = 0
        self._clock = count(1)

    # --- Finding ----------------------------------------------------------------

    def find(self, tokens: Sequence[int], whole: bool = False) -> tuple[Snapshot | None, int]:
        """The longest state held for a prefix of `tokens`, and how many tokens the tree shares.

        With `whole` a state for all of `tokens` is of use only with the logits after the last;
        otherwise, and without logits, it ends before the last token, which is then computed.
        """
        node, at, inside = self._walk(tokens)
        shared = at + inside
        last = len(tokens) - 1
        if whole and inside == 0 and at == len(tokens) and node.logits is not None:
            if node.recurrent is not None or self.layout.cuts:
                return self._use(node, at), shared
        if self.layout.cuts:
            position = min(shared, last)
            if position <= 0:
                return None, shared
            deepest = self._child(node, tokens, at) if inside else node
            return self._use(deepest, position), shared
        while node.parent is not None and (node.recurrent is None or at > last):
            at -= len(node.tokens)
            node = node.parent
        return (self._use(node, at) if at > 0 else None), shared

    def depth(self, tokens: Sequence[int]) -> int:
        """How many of the tokens `find` would spare; uses nothing."""
        node, at, inside = self._walk(tokens)
        if self.layout.cuts:
            return at + inside
        while node.parent is not None and node.recurrent is None:
            at -= len(node.tokens)
            node = node.parent
        return at

    def _walk(self, tokens: Sequence[int]) -> tuple[Node, int, int]:
        """The last node whose tokens all match, where it ends, and how many tokens of one of
        its children match beyond."""
        node, at = self.root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                break
            same = common(child.tokens, tokens, at)
            if same < len(child.tokens):
                return node, at, same
            node, at = child, at + same
        return node, at, 0

    def _child(self, node: Node, tokens: Sequence[int], at: int) -> Node:
        return node.children[tokens[at]]

    def _use(self, node: Node, position: int) -> Snapshot:
        now = next(self._clock)
        chain = node.path()
        for part in chain:
            part.used = now
        node.revived, node.weak = now, False
        whole = position == node.end
        return Snapshot(
            position,
            tuple((len(part.tokens), part.segment) for part in chain),
            node.recurrent or (),
            node.logits if whole else None,
        )

    # --- Keeping ----------------------------------------------------------------

    def keep(
        self,
        tokens: Sequence[int],
        states: dict[str, Tensor],
        row: int,
        logits: Tensor | None = None,
        weak: bool = False,
    ) -> bool:
        """Takes in the state of one row, which holds just `tokens`. Returns whether it fits.

        A `weak` one goes before all others until it was of use once.
        """
        if self.budget <= 0 or not tokens:
            return False
        tokens = tuple(tokens)
        node, at, inside = self._walk(tokens)
        need = (len(tokens) - at - inside) * self.layout.position_bytes
        if inside:  # a node is cut in two: both halves stand beside the whole for a moment
            whole = len(node.children[tokens[at]].tokens)
            need += whole * self.layout.position_bytes
        moving = self.layout.recurrent_bytes
        need += moving + (0 if logits is None else logits.numel() * 4)
        if need > self.budget:
            return False
        now = next(self._clock)
        for part in node.path():
            part.used = now
        self._shrink(self.budget - need, keep=node)
        node, at, inside = self._walk(tokens)
        if inside:
            node = self._split(node.children[tokens[at]], inside)
            at += inside
        if at < len(tokens):
            spans = self.layout.span(states, row, at, len(tokens))
            node = self._add(node, tokens[at:], tuple(t.clone() for t in spans))
        if node.recurrent is None and moving:
            node.weak = weak
            node.recurrent = tuple(t.clone() for t in self.layout.moving(states, row))
            self.bytes += moving
        elif not weak:
            node.weak = False
        if logits is not None and node.logits is None:
            node.logits = logits.float().clone()
            self.bytes += node.logits.numel() * 4
        for part in node.path():
            part.used = now
        node.revived = now
        self._shrink(self.budget, keep=node)
        return True

    def attach(self, parent: Node, tokens: tuple[int, ...], segment: Segment) -> Node:
        """Adds a node read from a file."""
        return self._add(parent, tokens, segment)

    def resume(self, time: int) -> None:
        """Goes on counting uses from `time`."""
        self._clock = count(time + 1)

    def _add(self, parent: Node, tokens: tuple[int, ...], segment: Segment) -> Node:
        node = Node(parent, tokens, segment)
        parent.children[tokens[0]] = node
        self.bytes += len(tokens) * self.layout.position_bytes
        return node

    def _split(self, node: Node, length: int) -> Node:
        """Cuts a node after `length` tokens; returns the new upper half. Both halves get memory
        of their own: a view would keep the whole alive when one of them goes."""
        assert node.parent is not None
        axes = list(self.layout.positional.values())
        rest = len(node.tokens) - length
        head = tuple(t.narrow(a, 0, length).clone() for t, a in zip(node.segment, axes))
        tail = tuple(t.narrow(a, length, rest).clone() for t, a in zip(node.segment, axes))
        upper = Node(node.parent, node.tokens[:length], head)
        upper.used = node.used
        node.parent.children[node.tokens[0]] = upper
        node.tokens, node.segment, node.parent = node.tokens[length:], tail, upper
        upper.children[node.tokens[0]] = node
        return upper

    # --- Letting go -------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """Every node, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    @property
    def snapshots(self) -> int:
        """How many nodes a text can go on from."""
        return sum(self.layout.cuts or node.recurrent is not None for node in self.nodes())

    def clear(self) -> None:
        self.root = Node(None, (), ())
        self.bytes = 0

    def _shrink(self, limit: int, keep: Node) -> None:
        """Lets go of the least recently used leaves and inner snapshots until `limit` holds."""
        if self.bytes <= limit:
            return
        kept = {id(part) for part in keep.path()}
        while self.bytes > limit:
            oldest: tuple[tuple[bool, int], Node, bool] | None = None
            for node in self.nodes():
                if not node.children:
                    if id(node) in kept:
                        continue
                    found = ((not node.weak, node.used), node, True)
                elif node.recurrent is not None and node is not keep:
                    found = ((not node.weak, node.revived), node, False)
                else:
                    continue
                if oldest is None or found[0] < oldest[0]:
                    oldest = found
            if oldest is None:
                return
            self._drop(oldest[1], oldest[2])

    def _drop(self, node: Node, whole: bool) -> None:
        if node.recurrent is not None:
            self.bytes -= self.layout.recurrent_bytes
        if node.logits is not None:
            self.bytes -= node.logits.numel() * 4
        node.recurrent = node.logits = None
        if not whole:
            return
        while node.parent is not None and not node.children:
            self.bytes -= len(node.tokens) * self.layout.position_bytes
            parent = node.parent
            del parent.children[node.tokens[0]]
            node = parent
            # Above a snapshot that went, positions that lead nowhere are of no use.
            if self.layout.cuts or node.recurrent is not None or node.parent is None:
                return


def common(stretch: Sequence[int], tokens: Sequence[int], at: int = 0) -> int:
    """How many tokens of `stretch` equal those of `tokens` from `at` on."""
    most = min(len(stretch), len(tokens) - at)
    for i in range(most):
        if stretch[i] != tokens[at + i]:
            return i
    return most
