"""Unary and binary operators, and the shapes that broadcasting gives."""

from __future__ import annotations

from linnet.check import expressions
from linnet.check.body import (
    LITERALS,
    Body,
    Float,
    Int,
    Operand,
    Pending,
    default_dtype,
    literals_in,
)
from linnet.check.coerce import (
    allowed,
    is_integer,
    is_numeric,
    literal,
    literal_problem,
    value_of,
)
from linnet.check.constant_numbers import as_float
from linnet.check.dimensions import arithmetic, bitwise
from linnet.check.shapes import explain_shapes, shape_text
from linnet.check.typing import ERROR
from linnet.dims import Dim
from linnet.ir.program import (
    AtValue,
    Binary,
    Call,
    Const,
    DimValue,
    Grid,
    If,
    Op,
    Region,
    Slice,
    Unary,
    Value,
    While,
)
from linnet.ir.types import (
    DTYPES,
    EnumType,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    TensorType,
    Type,
    shape_of,
    tensor,
)
from linnet.source import Span
from linnet.syntax import tree

NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or",
    "^": "xor", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
    "min": "min", "max": "max", "shl": "shl", "shr": "shr",
}  # fmt: skip
COMPARE = frozenset({"==", "!=", "<", "<=", ">", ">="})
BOOL = ScalarType("bool")


def unary(cx: Body, node: tree.Unary, expected: Type | None) -> Operand:
    if node.op == "!":
        found = expressions.value(cx, node.operand)
        if found.type is ERROR:
            return found
        if found.type != BOOL:
            logic_error(cx, "!", found.type, node.operand.span)
            return cx.poison()
        return cx.emit(Unary([Value(BOOL)], node.span, "not", found))
    operand = expressions.expression(cx, node.operand, expected)
    if isinstance(operand, Int):
        return Int(Dim.const(0) - operand.dim) if node.op == "-" else operand
    if isinstance(operand, Float):
        return Float(-operand.value) if node.op == "-" else operand
    if isinstance(operand, Pending):
        if node.op == "+":
            return operand
        inner = operand

        def negative(dtype: str) -> Value:
            x = inner.build(dtype)
            return cx.emit(Unary([Value(x.type)], node.span, "neg", x))

        return Pending(operand.literals, negative)
    found = value_of(cx, operand, node.operand.span)
    if found.type is ERROR:
        return found
    if not isinstance(found.type, (TensorType, ScalarType)) or not is_numeric(cx, found.type.dtype):
        cx.report.error("E2104", node.span, f"`{node.op}` is not defined for `{found.type}`")
        return cx.poison()
    if node.op == "+":
        return found
    return cx.emit(Unary([Value(found.type)], node.span, "neg", found))


def logic_error(cx: Body, op: str, type: Type, span: Span) -> None:
    if isinstance(type, TensorType) and type.dtype == "bool":
        help = f"for tensors of bool use `{'&' if op == '&&' else '|' if op == '||' else '^'}`"
        cx.report.error("E2116", span, f"`{op}` takes scalar bools, not `{type}`", help=help)
    else:
        cx.report.error("E2116", span, f"`{op}` takes scalar bools, not `{type}`")


def binary(cx: Body, node: tree.Binary, expected: Type | None) -> Operand:
    """A whole chain `a + b + …` without recursion on its left side."""
    chain = [node]
    while isinstance(chain[-1].left, tree.Binary):
        chain.append(chain[-1].left)
    hint = expected if isinstance(expected, (ScalarType, TensorType)) else None
    left = None
    for part in reversed(chain):
        inner = None if part.op in COMPARE else hint
        if part.op in ("&&", "||"):
            left = _logic(cx, part, left)
            continue
        if left is None:
            left = expressions.expression(cx, part.left, inner)
        right = expressions.expression(cx, part.right, inner or numbers_like(left))
        left = combine(cx, part.op, left, right, part, inner)
    assert left is not None
    return left


def numbers_like(operand: Operand) -> Type | None:
    """The dtype of an operand, as a hint for literals in its sibling."""
    if isinstance(operand, Value) and isinstance(operand.type, (TensorType, ScalarType)):
        return ScalarType(operand.type.dtype)
    return None


def _logic(cx: Body, node: tree.Binary, left: Operand | None) -> Operand:
    """`&&` and `||`: the right side runs only where the left leaves it open."""
    if left is None:
        left = expressions.expression(cx, node.left)
    a = value_of(cx, left, node.left.span)
    cx.open_region()
    b = expressions.value(cx, node.right)
    ops = cx.close_region()
    for found, side in ((a, node.left), (b, node.right)):
        if found.type is not ERROR and found.type != BOOL:
            logic_error(cx, node.op, found.type, side.span)
            return cx.poison()
    if a.type is ERROR or b.type is ERROR:
        return cx.poison()
    if all(harmless(op) for op in ops):
        cx.ops[-1].extend(ops)
        name = "and" if node.op == "&&" else "or"
        return cx.emit(Binary([Value(BOOL)], node.span, name, a, b))
    known = Value(BOOL)
    constant = Region([], [Const([known], node.span, node.op == "||")], [known])
    lazy = Region([], ops, [b])
    then, orelse = (lazy, constant) if node.op == "&&" else (constant, lazy)
    return cx.emit(If([Value(BOOL)], node.span, a, then, orelse))


def harmless(op: Op) -> bool:
    """Whether running an operation needlessly can neither fail nor have an effect."""
    if isinstance(op, (Call, Grid, While, If)) or op.regions():
        return False
    return not (isinstance(op, Slice) and any(isinstance(i, AtValue) for i in op.items))


def combine(
    cx: Body, op: str, a: Operand, b: Operand, node: tree.Binary, hint: Type | None
) -> Operand:
    """One arithmetic, comparing or bitwise operator."""
    if (isinstance(a, Value) and a.type is ERROR) or (isinstance(b, Value) and b.type is ERROR):
        return cx.poison()
    if isinstance(a, Int) and isinstance(b, Int) and op not in COMPARE:
        if op in ("&", "|", "^"):
            dim = bitwise(cx.scope, op, a.dim, b.dim, node.span)
        else:
            dim = arithmetic(cx.scope, op, a.dim, b.dim, node.right.span)
        return cx.poison() if dim is None else Int(dim)
    folded = fold(op, a, b)
    if folded is not None:
        return folded

    def build(dtype: str | None) -> Value:
        given = None if dtype is None else ScalarType(dtype)
        left, right = together(cx, a, b, node.left.span, node.right.span, given)
        if left.type is ERROR or right.type is ERROR:
            return cx.poison()
        return apply(cx, op, left, right, node)

    if op not in COMPARE and isinstance(a, LITERALS) and isinstance(b, LITERALS):
        return Pending((*literals_in(a), *literals_in(b)), build)
    return build(hint.dtype if isinstance(hint, (ScalarType, TensorType)) else None)


def fold(op: str, a: Operand, b: Operand) -> Float | None:
    """Arithmetic on two literals, one of them a float, stays a literal."""

    def number(operand: Operand) -> float | None:
        if isinstance(operand, Float):
            return operand.value
        if isinstance(operand, Int) and operand.dim.constant is not None:
            return as_float(operand.dim.constant)
        return None

    if not (isinstance(a, Float) or isinstance(b, Float)):
        return None
    x, y = number(a), number(b)
    if x is None or y is None:
        return None
    match op:
        case "+":
            return Float(x + y)
        case "-":
            return Float(x - y)
        case "*":
            return Float(x * y)
        case "/" if y != 0:
            return Float(x / y)
    return None


def together(
    cx: Body, a: Operand, b: Operand, a_span: Span, b_span: Span, hint: Type | None = None
) -> tuple[Value, Value]:
    """Both operands as values; a literal takes the dtype of the other."""
    if isinstance(a, LITERALS) and isinstance(b, LITERALS):
        if isinstance(hint, (ScalarType, TensorType)) and not any(
            literal_problem(cx, o, hint.dtype) for o in (a, b)
        ):
            dtype = hint.dtype
        else:
            dtype = default_dtype(a, b)
        return literal(cx, a, dtype, a_span), literal(cx, b, dtype, b_span)

    def follow(operand: Operand, other: Operand, span: Span) -> Value:
        if isinstance(operand, LITERALS) and isinstance(other, Value):
            type = other.type
            if isinstance(type, (TensorType, ScalarType)):
                return literal(cx, operand, type.dtype, span)
        return value_of(cx, operand, span)

    return follow(a, b, a_span), follow(b, a, b_span)


def apply(cx: Body, op: str, a: Value, b: Value, node: tree.Binary) -> Value:
    if isinstance(a.type, EnumType) and a.type == b.type and op in ("==", "!="):
        return cx.emit(Binary([Value(BOOL)], node.span, NAMES[op], a, b))
    for x in (a, b):
        if not _defined(cx, op, x.type):
            _undefined(cx, op, x, node.span)
            return cx.poison()
    return elementwise(cx, NAMES[op], a, b, node.span, f"`{op}`", op in COMPARE)


def _undefined(cx: Body, op: str, x: Value, span: Span) -> None:
    shown, help = f"`{x.type}`", None
    if isinstance(x.type, OptionalType):
        help = "take the value out: `match x { some(v) => …  none => … }`"
    elif isinstance(x.type, (TensorType, ScalarType)) and x.type.dtype not in DTYPES:
        kind = cx.scope.generics[x.type.dtype].kind
        shown += f", where `{x.type.dtype}` may be any {kind}"
        wanted = "Integer" if op in ("&", "|", "^") else "Numeric"
        help = f"constrain it: `{x.type.dtype}: {wanted}`"
    cx.report.error(
        "E2104",
        span,
        f"`{op}` is not defined for {shown}",
        related=cx.bound_at(x),
        help=help,
    )


def _defined(cx: Body, op: str, type: Type) -> bool:
    if not isinstance(type, (TensorType, ScalarType)):
        return False
    if op in ("==", "!="):
        return True
    if op in ("&", "|", "^"):
        return type.dtype == "bool" or is_integer(cx, type.dtype)
    if op in ("shl", "shr"):
        return is_integer(cx, type.dtype)
    return is_numeric(cx, type.dtype)


def elementwise(
    cx: Body, name: str, a: Value, b: Value, span: Span, shown: str, compares: bool = False
) -> Value:
    """A binary operation on two values of one dtype, broadcast together."""
    assert isinstance(a.type, (TensorType, ScalarType))
    assert isinstance(b.type, (TensorType, ScalarType))
    if a.type.dtype != b.type.dtype:
        dtypes_differ(cx, a, b, span, shown)
        return cx.poison()
    shape = broadcast(cx, [a, b], span, shown)
    if shape is None:
        return cx.poison()
    result = Value(tensor(shape, "bool" if compares else a.type.dtype))
    return cx.emit(Binary([result], span, name, a, b))


def dtypes_differ(cx: Body, a: Value, b: Value, span: Span, shown: str) -> None:
    assert isinstance(a.type, (TensorType, ScalarType))
    assert isinstance(b.type, (TensorType, ScalarType))
    cx.report.error(
        "E2103",
        span,
        f"{shown} of `{a.type.dtype}` and `{b.type.dtype}`",
        related=[*cx.bound_at(a), *cx.bound_at(b)],
        help=f"dtypes are never converted in silence: `cast<{a.type.dtype}>(…)`",
    )


def broadcast(cx: Body, values: list[Value], span: Span, shown: str) -> Shape | None:
    """The common shape, right-aligned; reports E2207 where a pair is not provably alike."""
    result: Shape = shape_of(values[0].type)
    for value in values[1:]:
        found = _pair(cx, result, shape_of(value.type))
        if found is None:
            first = next((v for v in values if shape_of(v.type) == result), values[0])
            names = ("left", "right") if len(values) == 2 else ("first", "next")
            notes, help = explain_shapes(
                cx.facts, result, shape_of(value.type), names, broadcast=True
            )
            cx.report.error(
                "E2207",
                span,
                f"{shown} of shapes {shape_text(tensor(result, 'f32'))} and"
                f" {shape_text(value.type)}, which do not broadcast",
                related=[*cx.bound_at(first), *cx.bound_at(value)],
                notes=notes,
                help=help,
            )
            return None
        result = found
    return result


def _pair(cx: Body, a: Shape, b: Shape) -> Shape | None:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    head = longer[: len(longer) - len(shorter)]
    result: list[Dim | Pack] = list(head)
    for x, y in zip(longer[len(head) :], shorter, strict=True):
        if isinstance(x, Pack) or isinstance(y, Pack):
            if x != y:
                return None
            result.append(x)
        elif x == y:
            result.append(x)
        elif cx.facts.equal(x, Dim.const(1)):
            result.append(y)
        elif cx.facts.equal(y, Dim.const(1)) or cx.facts.equal(x, y):
            result.append(x)
        else:
            return None
    if any(isinstance(d, Pack) for d in shorter) and any(isinstance(d, Pack) for d in head):
        return None
    return tuple(result)


__all__ = ["DimValue", "allowed", "binary", "broadcast", "elementwise", "together", "unary"]
