"""The intrinsics: operations that passes put in place of others, and what each means.

The table is what backends implement and what the verifier checks operand counts against.
"""

from __future__ import annotations

from linnet.record import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    args: tuple[int, int]  # fewest and most operands
    results: int
    attrs: tuple[str, ...]  # those that must be there
    text: str


INTRINSICS: dict[str, Meaning] = {
    "constant": Meaning(
        (0, 0), 1, ("key", "dims"),
        "The result of `Bound.constants[key]` at these dimensions. It depends on nothing else: "
        "computed once for each set of dimensions, shared by all, never written to.",
    ),
    "copy": Meaning((1, 1), 1, (), "The operand in memory of its own."),
    "causal_mask": Meaning(
        (0, 1), 1, ("axes", "offset"),
        "bool. `axes` names the result's axes, of `b q k`: key k is seen by query q (0 without "
        "that axis) iff `k <= q + at + offset`. `at` is the operand, 0 where there is none: an "
        "integer scalar, or a vector along axis b. `offset` is a dimension, possibly negative.",
    ),
    "rank": Meaning(
        (1, 1), 1, ("descending",),
        "The position that each element of the last axis has in sorted order, equal elements in "
        "the order of their indices. Any integer dtype.",
    ),
    "top_k": Meaning(
        (1, 1), 2, ("k", "descending"),
        "The first `k` elements of the last axis in that order: values, and indices (i64). `k` is "
        "at most the extent.",
    ),
    "take_along": Meaning(
        (2, 2), 1, (),
        "`x[.., E]` and `index[.., K]` give `[.., K]`: `x[.., index[.., k]]`, indices in range.",
    ),
    "softmax": Meaning((1, 1), 1, (), "`std.nn.softmax::softmax`, over the last axis."),
    "einsum": Meaning(
        (2, 99), 1, ("inputs", "output", "accumulate"),
        "The sum over all labels not in `output` of the product of the operands, whose axes have "
        "the labels `inputs`; added in `accumulate`, rounded once to the result's dtype.",
    ),
    **{
        name: Meaning(
            (2, 4), 0, ("state", "callee", "generics"),
            f"`state = {name}(state, operands)` in place, on a state of the own block. `callee` is "
            "the instance of the op and `generics` its dimensions, should the body be wanted.",
        )
        for name in
        ("write_at", "write_span", "write_rows", "write_slots", "write_slot", "write_tokens")
    },
}  # fmt: skip
