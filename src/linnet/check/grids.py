"""Index notation: `let c[m, n] = sum[k] a[m, k] * b[k, n]`, and reductions anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.check import expressions
from linnet.check.body import Body, Float, Int, Operand
from linnet.check.calls import match_arguments
from linnet.check.coerce import (
    is_integer,
    is_numeric,
    literal_problem,
    value_of,
)
from linnet.check.declare import FunctionDecl, ModuleAlias
from linnet.check.dimensions import arithmetic, bitwise
from linnet.check.infer import Inference, free_names, same_shape
from linnet.check.literals import round_float
from linnet.check.operators import COMPARE, NAMES, fold, logic_error
from linnet.check.prelude import MATH, USAGE
from linnet.check.slices import proven_index
from linnet.check.typing import ERROR, constraint_error, dtype_allowed, dtype_argument, dtype_of_expr
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim
from linnet.ir.program import (
    Axis,
    GApply,
    GBinary,
    GCast,
    GDim,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    GUnary,
    Idx,
    Value,
)
from linnet.ir.types import (
    DTYPES,
    FLOATS,
    Pack,
    ScalarType,
    Shape,
    TensorType,
    Type,
    substitute,
    tensor,
)
from linnet.source import Span
from linnet.syntax import tree

SMALL_FLOATS = frozenset({"f16", "bf16"})


@dataclass(eq=False, slots=True)
class Bound:
    """An index in scope. `idx.extent` is None until the first access gives it."""

    idx: Idx
    pack: bool
    span: Span
    first: Span | None = None  # the access that gave the extent
    source: str = ""


@dataclass(eq=False, slots=True)
class Notation:
    """The indices of one piece of index notation, and the body it stands in."""

    cx: Body
    indices: dict[str, Bound] = field(default_factory=dict)


# A part of a scalar expression: with a dtype, or a literal that still lacks one.
Part = GExpr | Int | Float | None


def indexed_let(cx: Body, node: tree.LetIndexed, hint: Type | None) -> Value:
    """The grid of an indexed `let`."""
    gx = Notation(cx)
    bounds: list[Bound] = []
    for binder in node.indices:
        bound = _bind(gx, binder)
        if bound is None:
            return cx.poison()
        bounds.append(bound)
    dtype = hint.dtype if isinstance(hint, (TensorType, ScalarType)) else None
    body = _finish(gx, node.value, dtype)
    if body is None:
        return cx.poison()
    for bound in bounds:
        if bound.first is None:
            cx.report.error(
                "E3103",
                bound.span,
                f"output index `{bound.idx.name}` indexes nothing",
                help="an index takes its extent from the axes it indexes",
            )
            return cx.poison()
    shape: list[Dim | Pack] = []
    for bound in bounds:
        if bound.pack:
            assert isinstance(bound.idx.extent, tuple)
            shape.extend(bound.idx.extent)
        else:
            assert isinstance(bound.idx.extent, Dim)
            shape.append(bound.idx.extent)
    result = Value(tensor(tuple(shape), body.dtype), node.name.text)
    return cx.emit(Grid([result], node.span, tuple(b.idx for b in bounds), body))


def reduction(cx: Body, node: tree.Reduce, expected: Type | None) -> Operand:
    """A reduction outside of an indexed `let`: a grid without output indices."""
    gx = Notation(cx)
    dtype = expected.dtype if isinstance(expected, ScalarType) else None
    body = _finish(gx, node, dtype)
    if body is None:
        return cx.poison()
    result = Value(ScalarType(body.dtype))
    return cx.emit(Grid([result], node.span, (), body))


def _finish(gx: Notation, node: tree.Expr, dtype: str | None) -> GExpr | None:
    part = scalar(gx, node, dtype)
    if isinstance(part, Int):
        return _literal(gx, part, dtype or "i64", node.span)
    if isinstance(part, Float):
        return _literal(gx, part, dtype or "f64", node.span)
    return part


def _bind(gx: Notation, binder: tree.IndexBinder) -> Bound | None:
    cx = gx.cx
    if (earlier := gx.indices.get(binder.name)) is not None:
        cx.report.error(
            "E3105",
            binder.span,
            f"index `{binder.name}` is listed twice",
            related=[Label(earlier.span, "first listed here")],
        )
        return None
    bound = Bound(Idx(binder.name, None), binder.pack, binder.span)  # type: ignore[arg-type]
    gx.indices[binder.name] = bound
    return bound


def _literal(gx: Notation, part: Int | Float, dtype: str, span: Span) -> GExpr | None:
    cx = gx.cx
    problem = literal_problem(cx, part, dtype)
    if problem is not None:
        cx.report.error("E2105", span, problem)
        return None
    if isinstance(part, Float):
        return GLit(round_float(part.value, dtype) if dtype in DTYPES else part.value, dtype)
    number = part.dim.constant
    if number is None:
        return GDim(part.dim, dtype)
    return GLit(float(number) if dtype in FLOATS else number, dtype)


def _mentions(gx: Notation, node: tree.Node) -> bool:
    """Whether an expression uses an index of this notation, or is a reduction."""
    match node:
        case tree.Name(text=text):
            return text in gx.indices and gx.cx.find(text) is None or text in gx.indices
        case tree.PackExpr(name=name):
            return name in gx.indices
        case tree.Paren(inner=inner) | tree.Some(value=inner):
            return _mentions(gx, inner)
        case tree.Unary(operand=operand):
            return _mentions(gx, operand)
        case tree.Binary():
            while isinstance(node, tree.Binary):
                if _mentions(gx, node.right):
                    return True
                node = node.left
            return _mentions(gx, node)
        case tree.Call(callee=callee, arguments=arguments):
            return _mentions(gx, callee) or any(_mentions(gx, a.value) for a in arguments)
        case tree.Index(object=owner, items=items):
            return _mentions(gx, owner) or any(_mentions(gx, item) for item in items)
        case tree.SliceItem(start=a, stop=b, step=c):
            return any(part is not None and _mentions(gx, part) for part in (a, b, c))
        case tree.If(condition=c, then=a, orelse=b):
            return _mentions(gx, c) or _mentions(gx, a) or _mentions(gx, b)
        case tree.Match(subject=subject, arms=arms):
            return _mentions(gx, subject) or any(_mentions(gx, arm.body) for arm in arms)
        case tree.Member(object=owner):
            return _mentions(gx, owner)
        case tree.TupleExpr(items=items) | tree.ListExpr(items=items):
            return any(_mentions(gx, item) for item in items)
        case tree.Reduce():
            return True
    return False


def scalar(gx: Notation, node: tree.Expr, dtype: str | None = None) -> Part:
    """A scalar expression over indices. None after an error was reported."""
    cx = gx.cx
    if isinstance(node, tree.Paren):
        return scalar(gx, node.inner, dtype)
    if isinstance(node, tree.Name) and node.text in gx.indices:
        cx.report.error(
            "E3104",
            node.span,
            f"index `{node.text}` is not a value",
            help=f"`iota(N)[{node.text}]` is its number",
        )
        gx.indices[node.text].first = gx.indices[node.text].first or node.span
        return None
    if not _mentions(gx, node):
        return _outside(gx, node, dtype)
    match node:
        case tree.Index():
            return access(gx, node)
        case tree.Unary():
            return _unary(gx, node, dtype)
        case tree.Binary():
            return _binary(gx, node, dtype)
        case tree.Call():
            return _call(gx, node, dtype)
        case tree.If():
            return _choice(
                gx, node, node.condition, node.then, node.orelse, dtype, lazy=True
            )
        case tree.Reduce():
            return _reduce(gx, node, dtype)
    cx.report.error("E3104", node.span, "this has no meaning in index notation")
    return None


def _outside(gx: Notation, node: tree.Expr, dtype: str | None) -> Part:
    """A part that uses no index: computed once, before the grid."""
    cx = gx.cx
    hint = ScalarType(dtype) if dtype is not None else None
    operand = expressions.expression(cx, node, hint)
    if isinstance(operand, (Int, Float)):
        return operand
    value = value_of(cx, operand, node.span, hint)
    if value.type is ERROR:
        return None
    if isinstance(value.type, TensorType):
        cx.report.error(
            "E3104",
            node.span,
            f"in index notation every axis is indexed, and this is `{value.type}`",
            related=cx.bound_at(value),
        )
        return None
    if not isinstance(value.type, ScalarType):
        cx.report.error("E3104", node.span, f"`{value.type}` is no element of index notation")
        return None
    return GRead(value, (), value.type.dtype, node.span)


# --- accesses -------------------------------------------------------------------


def access(gx: Notation, node: tree.Index) -> Part:
    cx = gx.cx
    if _mentions(gx, node.object):
        cx.report.error(
            "E3104",
            node.object.span,
            "an accessed expression cannot itself use indices",
            help="name it first in a `let` of its own",
        )
        return None
    value = expressions.value(cx, node.object)
    if value.type is ERROR:
        _quiet(gx, node)
        return None
    if not isinstance(value.type, TensorType):
        cx.report.error("E2104", node.object.span, f"`{value.type}` cannot be indexed")
        return None
    shape = value.type.shape
    packs = [
        i for i, item in enumerate(node.items)
        if isinstance(item, tree.PackExpr) or _is_pack(gx, item)
    ]
    if len(packs) > 1:
        cx.report.error("E3106", node.items[packs[1]].span, "one access takes one pack")
        return None
    spread = len(shape) - len(node.items) + 1 if packs else 1
    if (not packs and len(node.items) != len(shape)) or spread < 0:
        cx.report.error(
            "E2204",
            node.span,
            f"{len(node.items)} indices for the {len(shape)} axes of `{value.type}`",
            related=cx.bound_at(value),
            help="in index notation every axis is indexed",
        )
        _quiet(gx, node)
        return None
    axes: list[Axis] = []
    position = 0
    failed = False
    for at, item in enumerate(node.items):
        if packs and at == packs[0]:
            covered = shape[position : position + spread]
            position += spread
            found: Axis | None = _pack_axis(gx, item, covered, value)
        else:
            extent = shape[position]
            position += 1
            if isinstance(extent, Pack):
                cx.report.error(
                    "E3106",
                    item.span,
                    f"an axis of `{value.type}` is the pack `{extent}`: index it by a pack",
                )
                failed = True
                continue
            found = _axis(gx, item, extent, value)
        if found is None:
            failed = True
        else:
            axes.append(found)
    if failed:
        return None
    return GRead(value, tuple(axes), value.type.dtype, node.span)


def _is_pack(gx: Notation, item: tree.Node) -> bool:
    return isinstance(item, tree.Name) and item.text in gx.indices and gx.indices[item.text].pack


def _quiet(gx: Notation, node: tree.Index) -> None:
    """Count the indices of a failed access as used, so that none is reported as unused."""
    for item in node.items:
        if isinstance(item, (tree.Name, tree.PackExpr)):
            name = item.text if isinstance(item, tree.Name) else item.name
            bound = gx.indices.get(name)
            if bound is not None and bound.first is None:
                bound.first = item.span


def _pack_axis(gx: Notation, item: tree.Node, covered: Shape, value: Value) -> Idx | None:
    cx = gx.cx
    name = item.name if isinstance(item, tree.PackExpr) else ""
    if isinstance(item, tree.Name):
        cx.report.error("E3106", item.span, f"a pack of indices is written `*{item.text}`")
        return None
    bound = gx.indices.get(name)
    if bound is None:
        cx.report.error(
            "E3101", item.span, f"pack `*{name}` is neither an output index nor bound here"
        )
        return None
    if not bound.pack:
        cx.report.error("E3106", item.span, f"`{name}` is one index, not a pack")
        return None
    idx = bound.idx
    if bound.first is None:
        idx.extent = tuple(covered)
        bound.first, bound.source = item.span, str(value.type)
        return idx
    if idx.extent is None:
        return None
    assert isinstance(idx.extent, tuple)
    if not same_shape(cx.facts, idx.extent, tuple(covered)):
        _two_extents(gx, bound, tensor(tuple(covered), "f32"), item.span, value)
        return None
    return idx


def _two_extents(gx: Notation, bound: Bound, other: Type | Dim, span: Span, value: Value) -> None:
    cx = gx.cx

    def text(extent: object) -> str:
        if isinstance(extent, tuple):
            return f"[{', '.join(map(str, extent))}]"
        if isinstance(extent, TensorType):
            return f"[{', '.join(map(str, extent.shape))}]"
        return "[]" if isinstance(extent, ScalarType) else str(extent)

    notes: list[str] = []
    help = None
    if isinstance(other, Dim) and isinstance(bound.idx.extent, Dim):
        from linnet.check.coerce import explain_shapes

        notes, help = explain_shapes(cx, (bound.idx.extent,), (other,))
        notes = [note.replace("axis 0: ", "") for note in notes]
    related = [Label(bound.first, f"here it is `{text(bound.idx.extent)}`")] if bound.first else []
    cx.report.error(
        "E2201",
        span,
        f"index `{bound.idx.name}` has two extents: `{text(bound.idx.extent)}` and `{text(other)}`",
        f"here it is `{text(other)}`",
        related=[*related, *cx.bound_at(value)],
        notes=notes,
        help=help,
    )


def _axis(gx: Notation, item: tree.Node, extent: Dim, value: Value) -> Axis | None:
    cx = gx.cx
    while isinstance(item, tree.Paren):
        item = item.inner
    if isinstance(item, tree.Name) and (bound := gx.indices.get(item.text)) is not None:
        if bound.first is None:
            bound.idx.extent = extent
            bound.first, bound.source = item.span, str(value.type)
            return bound.idx
        if bound.idx.extent is None:
            return None
        assert isinstance(bound.idx.extent, Dim)
        if not cx.facts.equal(bound.idx.extent, extent):
            _two_extents(gx, bound, extent, item.span, value)
            return None
        return bound.idx
    if isinstance(item, (tree.SliceItem, tree.RestItem)):
        cx.report.error(
            "E3104",
            item.span,
            "slices do not stand in index notation",
            help="slice in a `let` of its own, then index the result",
        )
        return None
    assert isinstance(item, tree.Expr)
    if isinstance(item, tree.Name) and _unbound(gx, item.text):
        cx.report.error(
            "E3101",
            item.span,
            f"index `{item.text}` is neither an output index nor bound by a reduction",
            help=f"list it on the left, or reduce over it: `sum[{item.text}] …`",
        )
        return None
    part = scalar(gx, item)
    if part is None:
        return None
    if isinstance(part, Int):
        return part.dim if proven_index(cx, part.dim, extent, item.span, value) else None
    if isinstance(part, Float) or not is_integer(cx, part.dtype):
        shown = "float" if isinstance(part, Float) else part.dtype
        cx.report.error("E2209", item.span, f"an index is an integer, not `{shown}`")
        return None
    return part


def _unbound(gx: Notation, name: str) -> bool:
    cx = gx.cx
    if cx.find(name) is not None or name in cx.scope.generics:
        return False
    if cx.block is not None and name in cx.checker.members(cx.block):
        return False
    return cx.scope.module.lookup(name) is None


# --- operators ------------------------------------------------------------------


def _typed_part(gx: Notation, part: Part, dtype: str, span: Span) -> GExpr | None:
    return _literal(gx, part, dtype, span) if isinstance(part, (Int, Float)) else part


def _together(
    gx: Notation, a: Part, b: Part, a_span: Span, b_span: Span, dtype: str | None
) -> tuple[GExpr, GExpr] | None:
    if a is None or b is None:
        return None
    if isinstance(a, (Int, Float)) and isinstance(b, (Int, Float)):
        default = "f64" if isinstance(a, Float) or isinstance(b, Float) else "i64"
        chosen = dtype if dtype and not any(literal_problem(gx.cx, p, dtype) for p in (a, b)) else default
        x, y = _literal(gx, a, chosen, a_span), _literal(gx, b, chosen, b_span)
    elif isinstance(a, (Int, Float)):
        assert not isinstance(b, (Int, Float))
        x, y = _literal(gx, a, b.dtype, a_span), b
    else:
        x, y = a, _typed_part(gx, b, a.dtype, b_span)
    return None if x is None or y is None else (x, y)


def _unary(gx: Notation, node: tree.Unary, dtype: str | None) -> Part:
    cx = gx.cx
    part = scalar(gx, node.operand, dtype)
    if part is None:
        return None
    if node.op == "!":
        if isinstance(part, (Int, Float)) or part.dtype != "bool":
            shown = "a number" if isinstance(part, (Int, Float)) else f"`{part.dtype}`"
            cx.report.error("E2116", node.operand.span, f"`!` takes a `bool`, not {shown}")
            return None
        return GUnary("not", part, "bool")
    if isinstance(part, Int):
        return Int(0 - part.dim) if node.op == "-" else part
    if isinstance(part, Float):
        return Float(-part.value) if node.op == "-" else part
    if not is_numeric(cx, part.dtype):
        cx.report.error("E2104", node.span, f"`{node.op}` is not defined for `{part.dtype}`")
        return None
    return GUnary("neg", part, part.dtype) if node.op == "-" else part


def _binary(gx: Notation, node: tree.Binary, dtype: str | None) -> Part:
    chain = [node]
    while isinstance(chain[-1].left, tree.Binary):
        chain.append(chain[-1].left)
    left: Part = None
    for position, part in enumerate(reversed(chain)):
        hint = None if part.op in COMPARE or part.op in ("&&", "||") else dtype
        if position == 0:
            left = scalar(gx, part.left, hint)
        right = scalar(gx, part.right, hint)
        left = _combine(gx, part, left, right, hint)
    return left


def _combine(gx: Notation, node: tree.Binary, a: Part, b: Part, dtype: str | None) -> Part:
    cx = gx.cx
    op = node.op
    if a is None or b is None:
        return None
    if op in ("&&", "||"):
        for part, side in ((a, node.left), (b, node.right)):
            if isinstance(part, (Int, Float)) or part.dtype != "bool":
                type = ScalarType("i64" if isinstance(part, Int) else "f64")
                if not isinstance(part, (Int, Float)):
                    type = ScalarType(part.dtype)
                logic_error(cx, op, type, side.span)
                return None
        assert not isinstance(a, (Int, Float)) and not isinstance(b, (Int, Float))
        return GBinary("and" if op == "&&" else "or", a, b, "bool")
    if isinstance(a, Int) and isinstance(b, Int) and op not in COMPARE:
        if op in ("&", "|", "^"):
            dim = bitwise(cx.scope, op, a.dim, b.dim, node.span)
        else:
            dim = arithmetic(cx.scope, op, a.dim, b.dim, node.right.span)
        return None if dim is None else Int(dim)
    if not isinstance(a, GExpr) and not isinstance(b, GExpr):
        folded = fold(op, a, b)
        if folded is not None:
            return folded
    pair = _together(gx, a, b, node.left.span, node.right.span, dtype)
    return None if pair is None else _apply(gx, op, *pair, node)


def _apply(gx: Notation, op: str, x: GExpr, y: GExpr, node: tree.Binary) -> Part:
    cx = gx.cx
    if x.dtype != y.dtype:
        cx.report.error(
            "E2103",
            node.span,
            f"`{op}` of `{x.dtype}` and `{y.dtype}`",
            related=[
                Label(node.left.span, f"this is `{x.dtype}`"),
                Label(node.right.span, f"this is `{y.dtype}`"),
            ],
            help=f"dtypes are never converted in silence: `cast<{x.dtype}>(…)`",
        )
        return None
    if op in ("==", "!="):
        defined = True
    elif op in ("&", "|", "^"):
        defined = x.dtype == "bool" or is_integer(cx, x.dtype)
    else:
        defined = is_numeric(cx, x.dtype)
    if not defined:
        cx.report.error("E2104", node.span, f"`{op}` is not defined for `{x.dtype}`")
        return None
    return GBinary(NAMES[op], x, y, "bool" if op in COMPARE else x.dtype)


def _choice(
    gx: Notation,
    node: tree.Expr,
    test_node: tree.Expr,
    then: tree.Expr,
    orelse: tree.Expr,
    dtype: str | None,
    lazy: bool,
) -> Part:
    cx = gx.cx
    test = scalar(gx, test_node)
    a, b = scalar(gx, then, dtype), scalar(gx, orelse, dtype)
    pair = _together(gx, a, b, then.span, orelse.span, dtype)
    if test is None or pair is None:
        return None
    if isinstance(test, (Int, Float)) or test.dtype != "bool":
        shown = "a number" if isinstance(test, (Int, Float)) else f"`{test.dtype}`"
        cx.report.error("E2114", test_node.span, f"a condition is a `bool`, not {shown}")
        return None
    x, y = pair
    if x.dtype != y.dtype:
        code = "E2115" if lazy else "E2103"
        cx.report.error(code, node.span, f"the branches differ: `{x.dtype}` and `{y.dtype}`")
        return None
    return GSelect(test, x, y, x.dtype, lazy)


# --- calls ------------------------------------------------------------------------


def _call(gx: Notation, node: tree.Call, dtype: str | None) -> Part:
    cx = gx.cx
    callee = node.callee
    name = callee.text if isinstance(callee, tree.Name) else ""
    plain = [a.value for a in node.arguments if a.name is None]
    if name in USAGE or name in MATH:
        arity = {"select": 3, "min": 2, "max": 2, "shl": 2, "shr": 2}.get(name, 1)
        if name not in MATH | {"cast", "abs", "min", "max", "shl", "shr", "select"}:
            cx.report.error(
                "E3104",
                node.span,
                f"`{name}` is not element by element",
                help="call it in a `let` of its own, then index the result",
            )
            return None
        if len(plain) != arity or len(plain) != len(node.arguments):
            cx.report.error(
                "E2102", node.span, f"wrong arguments for `{name}`",
                help=f"it is called as `{USAGE.get(name, f'{name}(x)')}`",
            )  # fmt: skip
            return None
        if node.generics and name != "cast":
            cx.report.error("E2111", node.span, f"`{name}` takes no generic arguments")
            return None
        return _prelude(gx, node, name, plain, dtype)
    decl: object = None
    if isinstance(callee, tree.Name) and cx.find(name) is None:
        if cx.block is not None and name in cx.block.methods:
            decl = cx.block.methods[name]
        else:
            decl = cx.scope.module.lookup(name)
            if decl is None:
                expressions.unknown(cx, callee.span, name)
                return None
    elif isinstance(callee, tree.Member) and isinstance(callee.object, tree.Name):
        alias = cx.scope.module.lookup(callee.object.text)
        if isinstance(alias, ModuleAlias):
            decl = cx.checker.through_alias(alias, callee.name, callee.span)
    if not isinstance(decl, FunctionDecl) or decl.block is not None:
        cx.report.error(
            "E3104",
            node.span,
            "only free functions of scalars are called on elements",
            help="call it in a `let` of its own, then index the result",
        )
        return None
    return _scalar_function(gx, node, decl)


def _prelude(
    gx: Notation, node: tree.Call, name: str, parts: list[tree.Expr], dtype: str | None
) -> Part:
    cx = gx.cx
    if name == "select":
        return _choice(gx, node, parts[0], parts[1], parts[2], dtype, lazy=False)
    if name == "cast":
        if not node.generics or len(node.generics) != 1:
            cx.report.error("E2110", node.span, "`cast` needs a dtype", help="write `cast<T>(x)`")
            return None
        target = dtype_argument(cx.scope, node.generics[0])
        part = scalar(gx, parts[0])
        if target is None or part is None:
            return None
        if isinstance(part, (Int, Float)):
            return _literal(gx, part, target, node.span)
        return GCast(part, target)
    if name in ("min", "max", "shl", "shr"):
        a, b = scalar(gx, parts[0], dtype), scalar(gx, parts[1], dtype)
        pair = _together(gx, a, b, parts[0].span, parts[1].span, dtype)
        if pair is None:
            return None
        x, y = pair
        if x.dtype != y.dtype:
            cx.report.error(
                "E2103", node.span, f"`{name}` of `{x.dtype}` and `{y.dtype}`",
                help=f"`cast<{x.dtype}>(…)`",
            )  # fmt: skip
            return None
        defined = is_numeric if name in ("min", "max") else is_integer
        if not defined(cx, x.dtype):
            cx.report.error("E2104", node.span, f"`{name}` is not defined for `{x.dtype}`")
            return None
        return GBinary(name, x, y, x.dtype)
    part = scalar(gx, parts[0], dtype)
    if part is None:
        return None
    if isinstance(part, (Int, Float)):
        part = _literal(gx, part, dtype or "f64", parts[0].span)
        if part is None:
            return None
    from linnet.check.coerce import is_float

    defined = is_float(cx, part.dtype) if name in MATH else is_numeric(cx, part.dtype)
    if not defined:
        help = "`cast<f32>(…)` first" if name in MATH else None
        cx.report.error(
            "E2104", parts[0].span, f"`{name}` is not defined for `{part.dtype}`", help=help
        )
        return None
    return GUnary(name, part, part.dtype)


def _scalar_function(gx: Notation, node: tree.Call, decl: FunctionDecl) -> Part:
    """A free function of scalars, on elements: `sigmoid(x[i])`."""
    cx = gx.cx
    cx.checker.signature(decl)
    cx.checker.reach(decl)
    given = match_arguments(cx, node, [p.name for p in decl.params], decl.name, decl.span)
    if given is None:
        return None
    if len(given) < len(decl.params):
        cx.report.error(
            "E3104", node.span, f"on elements, `{decl.name}` needs all of its arguments"
        )
        return None
    inference = Inference(decl.generics, {})
    parts: list[tuple[Part, Span]] = []
    for parameter in decl.params:
        source = given[parameter.name].value
        part = scalar(gx, source)
        if part is None:
            return None
        if isinstance(part, GExpr):
            inference.unify(parameter.type, ScalarType(part.dtype))
        parts.append((part, source.span))
    for parameter, (part, _) in zip(decl.params, parts, strict=True):
        for name in free_names(parameter.type):
            if inference.open(name):
                kind = inference.kinds[name]
                if kind == "Shape":
                    inference.bindings[name] = ()
                elif kind != "Dim":
                    inference.bindings[name] = "i64" if isinstance(part, Int) else "f64"
    for generic in decl.generics:
        argument = inference.bindings.get(generic.name)
        if argument is None:
            cx.report.error("E2110", node.span, f"cannot infer `{generic.name}` of `{decl.name}`")
            return None
        if isinstance(argument, str) and not dtype_allowed(cx.scope, generic, argument):
            constraint_error(cx.scope, generic, argument, node.span, [Label(decl.span, "declared here")])
            return None
    args: list[GExpr] = []
    for parameter, (part, span) in zip(decl.params, parts, strict=True):
        want = substitute(parameter.type, inference.bindings)
        if not isinstance(want, ScalarType):
            cx.report.error(
                "E3104",
                span,
                f"`{decl.name}` takes `{parameter.type}` here, not one element",
                related=[Label(parameter.node.span, "declared here")],
                help="call it in a `let` of its own, then index the result",
            )
            return None
        typed = _typed_part(gx, part, want.dtype, span)
        if typed is None:
            return None
        if typed.dtype != want.dtype:
            cx.report.error(
                "E2103",
                span,
                f"argument `{parameter.name}` has dtype `{typed.dtype}`, expected `{want.dtype}`",
                related=[Label(parameter.node.span, "declared here")],
            )
            return None
        args.append(typed)
    assert decl.result is not None
    result = substitute(decl.result, inference.bindings)
    if not isinstance(result, ScalarType):
        cx.report.error("E3104", node.span, f"`{decl.name}` does not give a scalar here")
        return None
    if not cx.checker.prove_where(cx.scope, decl, inference.bindings, node.span):
        return None
    generics = tuple(inference.bindings[g.name] for g in decl.generics)
    return GApply(decl.id, generics, tuple(args), result.dtype)


# --- reductions -------------------------------------------------------------------


def _reduce(gx: Notation, node: tree.Reduce, dtype: str | None) -> Part:
    cx = gx.cx
    bounds: list[Bound] = []
    hidden: dict[str, Bound] = {}
    for binder in node.indices:
        earlier = gx.indices.get(binder.name)
        if earlier is not None:
            cx.report.error(
                "E3105",
                binder.span,
                f"index `{binder.name}` is listed twice",
                related=[Label(earlier.span, "first listed here")],
            )
            return None
        bound = _bind(gx, binder)
        assert bound is not None
        bounds.append(bound)
    accumulate = None
    if node.accumulator is not None:
        accumulate = dtype_of_expr(cx.scope, node.accumulator)
        if accumulate is None:
            return None
    hint = accumulate or (dtype if node.kind in ("sum", "prod", "max", "min") else None)
    part = scalar(gx, node.body, hint)
    if isinstance(part, (Int, Float)):
        default = "i64" if isinstance(part, Int) else "f64"
        part = _literal(gx, part, hint or default, node.body.span)
    for bound in bounds:
        gx.indices.pop(bound.idx.name, None)
    gx.indices.update(hidden)
    if part is None:
        return None
    for bound in bounds:
        if bound.first is None:
            cx.report.error(
                "E3102",
                bound.span,
                f"index `{bound.idx.name}` indexes nothing in this `{node.kind}`",
                help="an index takes its extent from the axes it indexes",
            )
            return None
    return _reduced(gx, node, part, tuple(b.idx for b in bounds), accumulate)


def _reduced(
    gx: Notation, node: tree.Reduce, part: GExpr, indices: tuple[Idx, ...], stated: str | None
) -> Part:
    cx = gx.cx
    kind = node.kind
    if kind in ("any", "all"):
        if part.dtype != "bool":
            cx.report.error("E2104", node.span, f"`{kind}` takes `bool`, not `{part.dtype}`")
            return None
        return GReduce(kind, indices, part, "bool", "bool")
    if not is_numeric(cx, part.dtype):
        cx.report.error(
            "E2104", node.span, f"`{kind}` is not defined for `{part.dtype}`",
            help="`sum<i32>[k] cast<i32>(…)` counts" if kind == "sum" else None,
        )  # fmt: skip
        return None
    if stated is not None and part.dtype != stated:
        cx.report.error(
            "E2103",
            node.body.span,
            f"`{kind}<{stated}>` takes `{stated}`, and this is `{part.dtype}`",
            help=f"convert it: `cast<{stated}>(…)`",
        )
        return None
    accumulate = part.dtype
    if stated is None and kind in ("sum", "prod") and part.dtype in SMALL_FLOATS:
        accumulate = "f32"
    return GReduce(kind, indices, part, accumulate, part.dtype, stated is not None)
