"""Constants: integers that act as literals, scalars of a stated dtype, variants of enums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from linnet.check.declare import AliasDecl, ConstDecl, Decl, EnumDecl, ModuleAlias
from linnet.check.dimensions import Scope, dimension
from linnet.check.literals import float_fits, integer_fits, round_float
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, value_type
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Facts
from linnet.ir.types import FLOATS, INTEGERS, EnumType, ScalarType
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker
    from linnet.check.modules import Import, ModuleScope


def resolve_constant(checker: Checker, decl: ConstDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.Const)
    scope = Scope(checker, decl.module, {}, Facts())
    decl.failed = True
    if _resolve_enum(checker, scope, decl, node):
        return
    if node.type is None:
        if _is_float(checker, scope, node.value):
            decl.dtype = "f64"
        elif isinstance(node.value, tree.BoolLit):
            decl.dtype = "bool"
        else:
            decl.dim = dimension(scope, node.value)
            decl.failed = decl.dim is None
            return
    else:
        type = value_type(scope, node.type)
        if type is ERROR:
            return
        if not isinstance(type, ScalarType) or type.dtype not in FLOATS | INTEGERS | {"bool"}:
            checker.reporter.error("E2101", node.type.span, f"a `const` is a scalar, not `{type}`")
            return
        decl.dtype = type.dtype
    if decl.dtype == "bool":
        if isinstance(node.value, tree.BoolLit):
            decl.value, decl.failed = node.value.value, False
        else:
            checker.reporter.error("E2101", node.value.span, "expected `true` or `false`")
        return
    assert decl.dtype is not None
    if decl.dtype in INTEGERS:
        dim = dimension(scope, node.value)
        if dim is None:
            return
        value = dim.constant
        assert value is not None  # no generics in scope
        if not integer_fits(value, decl.dtype):
            checker.reporter.error("E2105", node.value.span, f"{value} does not fit `{decl.dtype}`")
            return
        decl.dim, decl.value, decl.failed = dim, value, False
        return
    number = constant_float(checker, scope, node.value)
    if number is None:
        return
    if not float_fits(number, decl.dtype):
        checker.reporter.error("E2105", node.value.span, f"{number} overflows `{decl.dtype}`")
        return
    decl.value, decl.failed = round_float(number, decl.dtype), False


def as_float(value: int) -> float:
    """The nearest f64; infinite where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _resolve_enum(checker: Checker, scope: Scope, decl: ConstDecl, node: tree.Const) -> bool:
    """A constant whose value is a variant of an enum; False for any other."""
    found = enum_constant(checker, decl.module, node.value)
    if found is None:
        return False
    enum, value = found
    if node.type is not None:
        type = value_type(scope, node.type)
        if type != enum:
            if type is not ERROR and value is not None:
                checker.reporter.error(
                    "E2101", node.value.span, f"`{decl.name}` is `{enum}`, expected `{type}`"
                )
            return True
    if value is not None:
        decl.enum, decl.value, decl.failed = enum, value, False
    return True


def module_item(
    checker: Checker, module: ModuleScope, node: tree.Expr
) -> Decl | ModuleAlias | Import | None:
    """The item that `name` or `module.name` means outside of bodies."""
    if isinstance(node, tree.Name):
        return module.lookup(node.text)
    if isinstance(node, tree.Member) and isinstance(node.object, tree.Name):
        owner = module.lookup(node.object.text)
        if isinstance(owner, ModuleAlias):
            return checker.through_alias(owner, node.name, node.span)
    return None


def enum_constant(
    checker: Checker, module: ModuleScope, node: tree.Expr
) -> tuple[EnumType, int | None] | None:
    """The variant that an expression names, directly or by a const; its position is None after
    an error. None for what is no enum."""
    while isinstance(node, tree.Paren):
        node = node.inner
    item = module_item(checker, module, node)
    if isinstance(item, ConstDecl):
        checker.signature(item)
        if item.enum is not None and isinstance(item.value, int):
            return item.enum, item.value
        return None
    if not isinstance(node, tree.Member):
        return None
    owner = module_item(checker, module, node.object)
    if not isinstance(owner, (EnumDecl, AliasDecl)):
        return None
    checker.signature(owner)
    if not isinstance(owner.type, EnumType):
        return None
    variants = owner.type.variants
    if node.name.text in variants:
        return owner.type, variants.index(node.name.text)
    checker.reporter.error(
        "E2107",
        node.name.span,
        f"enum `{owner.type}` has no variant `{node.name.text}`",
        related=[Label(owner.span, "declared here")],
        help=did_you_mean(node.name.text, variants),
    )
    return owner.type, None


def _is_float(checker: Checker, scope: Scope, node: tree.Expr) -> bool:
    match node:
        case tree.FloatLit():
            return True
        case tree.Paren(inner=inner):
            return _is_float(checker, scope, inner)
        case tree.Unary(operand=operand):
            return _is_float(checker, scope, operand)
        case tree.Binary(left=left, right=right):
            return _is_float(checker, scope, left) or _is_float(checker, scope, right)
        case tree.Name(text=text):
            found = scope.module.lookup(text)
            if isinstance(found, ConstDecl):
                checker.signature(found)
                return found.dtype in FLOATS
    return False


def constant_float(checker: Checker, scope: Scope, node: tree.Expr) -> float | None:
    """A float constant expression, computed in f64."""
    match node:
        case tree.FloatLit(value=value) if math.isinf(value):
            checker.reporter.error("E2105", node.span, "this number overflows every float dtype")
            return None
        case tree.FloatLit(value=value) | tree.IntLit(value=value):
            return float(value)
        case tree.Paren(inner=inner):
            return constant_float(checker, scope, inner)
        case tree.Unary(op="-" | "+" as op, operand=operand):
            inner_value = constant_float(checker, scope, operand)
            return inner_value if inner_value is None or op == "+" else -inner_value
        case tree.Binary(op="+" | "-" | "*" | "/" as op, left=left, right=right):
            a = constant_float(checker, scope, left)
            b = constant_float(checker, scope, right)
            if a is None or b is None:
                return None
            try:
                return {
                    "+": lambda: a + b,
                    "-": lambda: a - b,
                    "*": lambda: a * b,
                    "/": lambda: a / b,
                }[op]()
            except ZeroDivisionError:
                return math.nan if a == 0 else math.copysign(math.inf, a)
        case tree.Name(text=text):
            found = scope.module.lookup(text)
            if isinstance(found, ConstDecl):
                checker.signature(found)
                if found.failed:
                    return None
                if found.dim is not None:
                    return as_float(found.dim.constant or 0)
                if isinstance(found.value, float):
                    return found.value
            elif found is None:
                checker.reporter.error("E1201", node.span, f"unknown name `{text}`")
                return None
        case tree.ErrorExpr():
            return None
    checker.reporter.error("E2101", node.span, "expected a constant number")
    return None
