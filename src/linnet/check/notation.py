"""The state of one piece of index notation: its indices and how they are bound."""

from __future__ import annotations

from linnet.check.body import Body, Float, Int, Literal, Pending
from linnet.check.coerce import (
    literal_help,
    literal_problem,
)
from linnet.check.literals import round_float
from linnet.check.modules import PRELUDE
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    GDim,
    GExpr,
    GLit,
    Idx,
)
from linnet.ir.types import (
    DTYPES,
    FLOATS,
)
from linnet.record import dataclass, field
from linnet.source import Span
from linnet.syntax import tree


@dataclass(eq=False, slots=True)
class Bound:
    """An index in scope. `idx.extent` is None until the first access gives it."""

    idx: Idx
    pack: bool
    span: Span
    first: Span | None = None  # the access that gave the extent


@dataclass(eq=False, slots=True)
class Notation:
    """The indices of one piece of index notation, and the body it stands in."""

    cx: Body
    indices: dict[str, Bound] = field(default_factory=dict)
    # Indices that are bound nowhere, reported once each.
    unbound: set[str] = field(default_factory=set)


# A part of a scalar expression: with a dtype, or a literal that still lacks one.
Part = GExpr | Int | Float | Pending | None


def bind(gx: Notation, binder: tree.IndexBinder) -> Bound | None:
    cx = gx.cx
    if (earlier := gx.indices.get(binder.name)) is not None:
        cx.report.error(
            "E3105",
            binder.span,
            f"index `{binder.name}` is listed twice",
            related=[Label(earlier.span, "first listed here")],
        )
        return None
    if binder.name in PRELUDE:
        cx.report.error(
            "E1207",
            binder.span,
            f"`{binder.name}` is a prelude name and cannot be redeclared",
        )
    elif binder.name in cx.scope.generics:
        cx.report.error(
            "E1205",
            binder.span,
            f"`{binder.name}` is already a generic here",
            help="choose another name for the index",
        )
    bound = Bound(Idx(binder.name, None), binder.pack, binder.span)  # type: ignore[arg-type]
    gx.indices[binder.name] = bound
    return bound


def literal_part(gx: Notation, part: Literal, dtype: str, span: Span) -> GExpr | None:
    cx = gx.cx
    problem = literal_problem(cx, part, dtype)
    if problem is not None:
        cx.report.error("E2105", span, problem, help=literal_help(cx, part, dtype))
        return None
    if isinstance(part, Pending):
        made: GExpr | None = part.build(dtype)
        return made
    if isinstance(part, Float):
        return GLit(round_float(part.value, dtype) if dtype in DTYPES else part.value, dtype)
    number = part.dim.constant
    if number is None:
        return GDim(part.dim, dtype)
    return GLit(float(number) if dtype in FLOATS else number, dtype)


def mentions(gx: Notation, node: tree.Node) -> bool:
    """Whether an expression uses an index of this notation, or is a reduction."""
    match node:
        case tree.Name(text=text):
            return (text in gx.indices and gx.cx.find(text) is None) or text in gx.indices
        case tree.PackExpr(name=name):
            return name in gx.indices
        case tree.Paren(inner=inner) | tree.Some(value=inner):
            return mentions(gx, inner)
        case tree.Unary(operand=operand):
            return mentions(gx, operand)
        case tree.Binary():
            while isinstance(node, tree.Binary):
                if mentions(gx, node.right):
                    return True
                node = node.left
            return mentions(gx, node)
        case tree.Call(callee=callee, arguments=arguments):
            return mentions(gx, callee) or any(mentions(gx, a.value) for a in arguments)
        case tree.Index(object=owner, items=items):
            return mentions(gx, owner) or any(mentions(gx, item) for item in items)
        case tree.SliceItem(start=a, stop=b, step=c):
            return any(part is not None and mentions(gx, part) for part in (a, b, c))
        case tree.If(condition=c, then=a, orelse=b):
            return mentions(gx, c) or mentions(gx, a) or mentions(gx, b)
        case tree.Match(subject=subject, arms=arms):
            return mentions(gx, subject) or any(mentions(gx, arm.body) for arm in arms)
        case tree.Member(object=owner):
            return mentions(gx, owner)
        case tree.TupleExpr(items=items) | tree.ListExpr(items=items):
            return any(mentions(gx, item) for item in items)
        case tree.Reduce():
            return True
    return False
