"""The values of constant floats and `bool`s. Integers are dimensions, and are computed there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from linnet.check.declare import ConstDecl, Decl, ModuleAlias
from linnet.check.dimensions import COMPARISONS, Scope, dimension
from linnet.check.literals import float_fits, round_float
from linnet.check.report import did_you_mean
from linnet.ir.types import FLOATS
from linnet.record import dataclass
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.modules import Import

LOGIC = frozenset({"&&", "||"})


@dataclass(frozen=True, slots=True)
class Number:
    """A float; `dtype` is None for one made of literals alone."""

    value: float
    dtype: str | None


def as_float(value: int) -> float:
    """The nearest f64; infinite where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def module_item(scope: Scope, node: tree.Expr) -> Decl | ModuleAlias | Import | None:
    """The item that `name` or `module.name` means outside of bodies."""
    if isinstance(node, tree.Name):
        return scope.module.lookup(node.text)
    if isinstance(node, tree.Member) and isinstance(node.object, tree.Name):
        owner = scope.module.lookup(node.object.text)
        if isinstance(owner, ModuleAlias):
            return scope.checker.through_alias(owner, node.name, node.span)
    return None


def kind(scope: Scope, node: tree.Expr) -> str:
    """Whether a constant expression is an "int", a "float" or a "bool"."""
    match node:
        case tree.FloatLit():
            return "float"
        case tree.BoolLit() | tree.Unary(op="!"):
            return "bool"
        case tree.Paren(inner=inner) | tree.Unary(operand=inner):
            return kind(scope, inner)
        case tree.Binary():
            while isinstance(node, tree.Binary):
                if node.op in COMPARISONS or node.op in LOGIC:
                    return "bool"
                if (right := kind(scope, node.right)) != "int":
                    return right
                node = node.left
            return kind(scope, node)
        case tree.Name() | tree.Member():
            found = module_item(scope, node)
            if isinstance(found, ConstDecl):
                scope.checker.signature(found)
                if found.dtype in FLOATS:
                    return "float"
                return "bool" if found.dtype == "bool" else "int"
    return "int"


def constant_float(scope: Scope, node: tree.Expr, hint: str | None = None) -> Number | None:
    """A float constant expression. Literals take the dtype beside them, or `hint`; every step is
    rounded in it, as it would be in the body of a function. None after an error."""
    report = scope.report
    if kind(scope, node) == "int":  # compile-time integers take any dtype
        dim = dimension(scope, node)
        if dim is None or dim.constant is None:
            return None
        return _rounded(scope, Number(as_float(dim.constant), hint), node)
    match node:
        case tree.FloatLit(value=value):
            if math.isinf(value):
                report.error("E2105", node.span, "this number overflows every float dtype")
                return None
            return _rounded(scope, Number(value, hint), node)
        case tree.Paren(inner=inner):
            return constant_float(scope, inner, hint)
        case tree.Unary(op="-" | "+" as op, operand=operand):
            found = constant_float(scope, operand, hint)
            if found is None or op == "+":
                return found
            return Number(-found.value, found.dtype)
        case tree.Binary(op="+" | "-" | "*" | "/" as op, left=left, right=right):
            a, b = constant_float(scope, left), constant_float(scope, right)
            if a is None or b is None:
                return None
            return _combine(scope, node, op, a, b, hint)
        case tree.Name() | tree.Member():
            item = module_item(scope, node)
            if isinstance(item, ConstDecl):
                scope.checker.signature(item)
                if item.failed:
                    return None
                if isinstance(item.value, float):
                    # An unannotated one is `f64`, as it is as a value.
                    return Number(item.value, item.dtype)
        case tree.ErrorExpr():
            return None
    report.error("E2101", node.span, "expected a constant number")
    return None


def _combine(
    scope: Scope, node: tree.Binary, op: str, a: Number, b: Number, hint: str | None
) -> Number | None:
    if a.dtype and b.dtype and a.dtype != b.dtype:
        scope.report.error(
            "E2103", node.span, f"`{op}` of the constants' dtypes `{a.dtype}` and `{b.dtype}`"
        )
        return None
    dtype = a.dtype or b.dtype or hint
    x, y = (value if dtype is None else round_float(value, dtype) for value in (a.value, b.value))
    match op:
        case "+":
            value = x + y
        case "-":
            value = x - y
        case "*":
            value = x * y
        case _ if y != 0:
            value = x / y
        case _:
            value = math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x)
    return Number(value if dtype is None else round_float(value, dtype), dtype)


def _rounded(scope: Scope, number: Number, node: tree.Expr) -> Number | None:
    if number.dtype is None:
        return number
    if not float_fits(number.value, number.dtype) or math.isinf(number.value):
        scope.report.error("E2105", node.span, f"{number.value} overflows `{number.dtype}`")
        return None
    return Number(round_float(number.value, number.dtype), number.dtype)


def constant_bool(scope: Scope, node: tree.Expr) -> bool | None:
    """A constant `bool`: a literal, a const, `! && ||`, a comparison. None after an error."""
    match node:
        case tree.BoolLit(value=value):
            return value
        case tree.Paren(inner=inner):
            return constant_bool(scope, inner)
        case tree.Unary(op="!", operand=operand):
            found = constant_bool(scope, operand)
            return None if found is None else not found
        case tree.Binary(op="&&" | "||" as op, left=left, right=right):
            a, b = constant_bool(scope, left), constant_bool(scope, right)
            if a is None or b is None:
                return None
            return (a and b) if op == "&&" else (a or b)
        case tree.Binary(op=op, left=left, right=right) if op in COMPARISONS:
            return _compare(scope, node, op, left, right)
        case tree.Name() | tree.Member():
            item = module_item(scope, node)
            if isinstance(item, ConstDecl):
                scope.checker.signature(item)
                if item.failed:
                    return None
                if isinstance(item.value, bool):
                    return item.value
            elif item is None and isinstance(node, tree.Name):
                help = did_you_mean(node.text, scope.module.names())
                scope.report.error("E1201", node.span, f"unknown name `{node.text}`", help=help)
                return None
        case tree.ErrorExpr():
            return None
    scope.report.error("E2101", node.span, "expected a constant `bool`")
    return None


def _compare(
    scope: Scope, node: tree.Expr, op: str, left: tree.Expr, right: tree.Expr
) -> bool | None:
    kinds = {kind(scope, left), kind(scope, right)}
    x: float | int | bool | None
    y: float | int | bool | None
    if kinds == {"bool"} and op in ("==", "!="):
        x, y = constant_bool(scope, left), constant_bool(scope, right)
    elif "bool" in kinds:
        scope.report.error("E2104", node.span, f"`{op}` is not defined for these constants")
        return None
    elif "float" in kinds:
        a, b = constant_float(scope, left), constant_float(scope, right)
        x, y = (a.value if a else None), (b.value if b else None)
    else:
        p, q = dimension(scope, left), dimension(scope, right)
        x, y = (p.constant if p else None), (q.constant if q else None)
    if x is None or y is None:
        return None
    return {
        "==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y,
    }[op]  # fmt: skip
