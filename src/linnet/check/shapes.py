"""Two shapes that differ, explained: aligned under each other, with what is known of each axis."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.check.dimensions import clause_help, proof_notes, witness_text
from linnet.check.report import plural
from linnet.dims import Dim, Fact, Facts
from linnet.ir.types import Pack, Shape, Type, shape_of

MAX_AXIS_NOTES = 3
MAX_WIDTH = 66  # of a row, so that it fits into 80 columns; longer shapes are not drawn

# The axes of the two shapes, in pairs; None where one of them has none.
Pairs = list[tuple["int | None", "int | None"]]


def shape_text(type: Type) -> str:
    shape = shape_of(type)
    return f"`[{', '.join(map(str, shape))}]`" if shape else "of a scalar"


def explain_shapes(
    facts: Facts,
    expected: Shape,
    actual: Shape,
    names: tuple[str, str] = ("expected", "found"),
    *,
    broadcast: bool = False,
) -> tuple[list[str], str | None]:
    """Notes that show both shapes and the axes that differ, and the help line.

    `names` are what the rows are called. For `broadcast` the shapes are aligned at the right,
    and an axis of 1, or one that the other shape lacks, is no difference.
    """
    pairs = _right(expected, actual) if broadcast else _pairs(facts, expected, actual)
    differing = [
        i for i, (a, b) in enumerate(pairs) if not _agree(facts, expected, actual, a, b, broadcast)
    ]
    notes: list[str] = []
    if expected and actual:
        notes += _drawing(expected, actual, pairs, differing, names)
    help = None
    told = 0
    for i in differing:
        a, b = pairs[i]
        if a is None or b is None or told == MAX_AXIS_NOTES:
            continue
        want, have = expected[a], actual[b]
        if isinstance(want, Dim) and isinstance(have, Dim):
            goal = Fact("==", have, want)
            proof = facts.prove(goal)
            if proof.answer == "refuted":
                notes.append(f"axis {b}: `{have}` is not `{want}`{witness_text(proof.witness)}")
            else:
                notes.append(f"axis {b}: `{have}` is not provably `{want}`")
                notes += proof_notes(facts, goal, proof)[1:]
            if len(differing) == 1:
                help = clause_help(facts, proof)
        elif broadcast:
            notes.append(f"axis {b}: `{have}` against `{want}`; a pack meets only itself")
        else:
            notes.append(f"axis {b}: `{have}` is not `{want}`")
        told += 1
    if len(expected) != len(actual) and not broadcast:
        notes.append(
            f"{plural(len(actual), 'axis')} where {plural(len(expected), 'axis')} are expected"
        )
        help = None
    return notes, help


def _same(facts: Facts, a: Dim | Pack, b: Dim | Pack) -> bool:
    if isinstance(a, Pack) or isinstance(b, Pack):
        return a == b
    return facts.equal(a, b)


def _agree(
    facts: Facts, expected: Shape, actual: Shape, a: int | None, b: int | None, broadcast: bool
) -> bool:
    if a is None or b is None:
        return broadcast
    want, have = expected[a], actual[b]
    if _same(facts, want, have):
        return True
    one = Dim.const(1)
    return broadcast and any(isinstance(d, Dim) and facts.equal(d, one) for d in (want, have))


def _right(expected: Shape, actual: Shape) -> Pairs:
    size = max(len(expected), len(actual))

    def axis(shape: Shape, i: int) -> int | None:
        at = i - (size - len(shape))
        return at if at >= 0 else None

    return [(axis(expected, i), axis(actual, i)) for i in range(size)]


def _pairs(facts: Facts, expected: Shape, actual: Shape) -> Pairs:
    """The alignment with the most axes alike (longest common subsequence), the others in turn."""
    if len(expected) == len(actual):
        return [(i, i) for i in range(len(expected))]
    rows, columns = len(expected), len(actual)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    alike = [[_same(facts, want, have) for have in actual] for want in expected]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            best[i][j] = (
                best[i + 1][j + 1] + 1 if alike[i][j] else max(best[i + 1][j], best[i][j + 1])
            )
    pairs: Pairs = []
    i = j = 0
    while i < rows or j < columns:
        if i < rows and j < columns and alike[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif j == columns or (i < rows and best[i + 1][j] >= best[i][j + 1]):
            pairs.append((i, None))
            i += 1
        else:
            pairs.append((None, j))
            j += 1
    return _joined(pairs)


def _joined(pairs: Pairs) -> Pairs:
    """An axis of one shape next to an axis of the other stand under each other."""
    result: Pairs = []
    for pair in pairs:
        if result and (result[-1][0] is None) != (result[-1][1] is None):
            last = result[-1]
            if (pair[0] is None) != (pair[1] is None) and (pair[0] is None) != (last[0] is None):
                result[-1] = (
                    last[0] if pair[0] is None else pair[0],
                    last[1] if pair[1] is None else pair[1],
                )
                continue
        result.append(pair)
    return result


def _drawing(
    expected: Shape,
    actual: Shape,
    pairs: Pairs,
    differing: Sequence[int],
    names: tuple[str, str],
) -> list[str]:
    """One note of three rows: both shapes, and marks under the axes that differ."""
    upper = [str(expected[a]) if a is not None else "" for a, _ in pairs]
    lower = [str(actual[b]) if b is not None else "" for _, b in pairs]
    widths = [max(len(x), len(y)) for x, y in zip(upper, lower, strict=True)]
    label = max(map(len, names))
    if label + sum(widths) + 2 * len(widths) > MAX_WIDTH:
        return []

    def row(name: str, cells: list[str]) -> str:
        last = max((i for i, cell in enumerate(cells) if cell), default=-1)
        text = ""
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            comma = ", " if cell and i < last else "  "
            text += f"{cell + comma:<{width + 2}}"
        lead = len(text) - len(text.lstrip())
        return f"{name:<{label}}  {' ' * lead}[{text.strip()}]"

    marks = "".join(
        ("^" * width if i in differing else " " * width) + "  " for i, width in enumerate(widths)
    )
    rows = [row(names[0], upper), row(names[1], lower)]
    return ["\n".join([*rows, f"{' ' * label}   {marks}".rstrip()])]
