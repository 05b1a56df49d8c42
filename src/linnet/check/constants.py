"""Constants: integers that act as literals, scalars of a stated dtype, variants of enums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.check.constant_numbers import constant_bool, constant_float, kind, module_item
from linnet.check.declare import AliasDecl, ConstDecl, EnumDecl
from linnet.check.dimensions import Scope, dimension
from linnet.check.literals import float_fits, integer_fits, round_float
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, value_type
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Facts
from linnet.ir.types import DTYPES, INTEGERS, EnumType, ScalarType
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker


def resolve_constant(checker: Checker, decl: ConstDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.Const)
    scope = Scope(checker, decl.module, {}, Facts())
    decl.failed = True
    if _resolve_enum(checker, scope, decl, node):
        return
    if node.type is None:
        found = kind(scope, node.value)
        if found == "int":
            decl.dim = dimension(scope, node.value)
            decl.failed = decl.dim is None
            return
        decl.dtype = "bool" if found == "bool" else None
    else:
        type = value_type(scope, node.type)
        if type is ERROR:
            return
        if not isinstance(type, ScalarType) or type.dtype not in DTYPES:
            checker.reporter.error("E2101", node.type.span, f"a `const` is a scalar, not `{type}`")
            return
        decl.dtype = type.dtype
    if decl.dtype == "bool":
        decl.value = constant_bool(scope, node.value)
        decl.failed = decl.value is None
    elif decl.dtype in INTEGERS:
        _integer(scope, decl, node.value)
    else:
        _float(scope, decl, node.value)


def _integer(scope: Scope, decl: ConstDecl, node: tree.Expr) -> None:
    assert decl.dtype is not None
    dim = dimension(scope, node)
    if dim is None:
        return
    value = dim.constant
    assert value is not None  # no generics in scope
    if not integer_fits(value, decl.dtype):
        scope.report.error("E2105", node.span, f"{value} does not fit `{decl.dtype}`")
        return
    decl.dim, decl.value, decl.failed = dim, value, False


def _float(scope: Scope, decl: ConstDecl, node: tree.Expr) -> None:
    """Without an annotation the dtype is that of the constants it is made of, or `f64`."""
    stated = decl.dtype
    number = constant_float(scope, node, stated)
    if number is None:
        decl.dtype = stated or "f64"
        return
    decl.dtype = stated or number.dtype or "f64"
    if number.dtype is not None and number.dtype != decl.dtype:
        scope.report.error(
            "E2103",
            node.span,
            f"`{decl.name}` has dtype `{number.dtype}`, expected `{decl.dtype}`",
            help="constants are not converted in silence: state the number again",
        )
        return
    if not float_fits(number.value, decl.dtype):
        scope.report.error("E2105", node.span, f"{number.value} overflows `{decl.dtype}`")
        return
    decl.value, decl.failed = round_float(number.value, decl.dtype), False


def _resolve_enum(checker: Checker, scope: Scope, decl: ConstDecl, node: tree.Const) -> bool:
    """A constant whose value is a variant of an enum; False for any other."""
    found = enum_constant(scope, node.value)
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


def enum_constant(scope: Scope, node: tree.Expr) -> tuple[EnumType, int | None] | None:
    """The variant that an expression names, directly or by a const; its position is None after
    an error. None for what is no enum."""
    while isinstance(node, tree.Paren):
        node = node.inner
    item = module_item(scope, node)
    if isinstance(item, ConstDecl):
        scope.checker.signature(item)
        if item.enum is not None and isinstance(item.value, int):
            return item.enum, item.value
        return None
    if not isinstance(node, tree.Member):
        return None
    owner = module_item(scope, node.object)
    if not isinstance(owner, (EnumDecl, AliasDecl)):
        return None
    scope.checker.signature(owner)
    if not isinstance(owner.type, EnumType):
        return None
    variants = owner.type.variants
    if node.name.text in variants:
        return owner.type, variants.index(node.name.text)
    scope.report.error(
        "E2107",
        node.name.span,
        f"enum `{owner.type}` has no variant `{node.name.text}`",
        related=[Label(owner.span, "declared here")],
        help=did_you_mean(node.name.text, variants),
    )
    return owner.type, None
