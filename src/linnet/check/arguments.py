"""Arguments of calls and of struct literals: to which parameter each belongs, what they say
of the generics."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.check.body import (
    LITERALS,
    Body,
    Float,
    Int,
    Literal,
    NoneOperand,
    Operand,
    Pending,
    default_dtype,
    literals_in,
)
from linnet.check.coerce import literal, literal_problem
from linnet.check.constant_numbers import module_item
from linnet.check.constants import enum_constant
from linnet.check.declare import ConstDecl, FunctionDecl, StructDecl
from linnet.check.dimensions import Scope
from linnet.check.infer import Inference
from linnet.check.report import did_you_mean
from linnet.check.typing import (
    ERROR,
    constraint_error,
    dtype_allowed,
    generic_argument,
)
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Const, Value
from linnet.ir.types import (
    DTYPES,
    ScalarType,
    TensorType,
    Type,
    substitute_arg,
    substitute_dtype,
)
from linnet.source import Span
from linnet.syntax import tree


def match_arguments(
    cx: Body, node: tree.Call, names: list[str], owner: str, declared: Span
) -> dict[str, tree.Argument] | None:
    """Positional arguments, then named ones, each parameter at most once."""
    given: dict[str, tree.Argument] = {}
    fine = True
    named = False
    for position, argument in enumerate(node.arguments):
        if argument.name is None:
            if named:
                cx.report.error(
                    "E2102", argument.span, "a positional argument cannot follow a named one"
                )
                fine = False
                continue
            if position >= len(names):
                takes = "1 argument" if len(names) == 1 else f"{len(names)} arguments"
                cx.report.error(
                    "E2102",
                    argument.span,
                    f"`{owner}` takes {takes}, {len(node.arguments)} given",
                    related=[Label(declared, "declared here")],
                )
                return None
            given[names[position]] = argument
            continue
        named = True
        name = argument.name.text
        if name not in names:
            cx.report.error(
                "E2102",
                argument.name.span,
                f"`{owner}` has no parameter `{name}`",
                related=[Label(declared, "declared here")],
                help=did_you_mean(name, names),
            )
            fine = False
        elif name in given:
            cx.report.error("E2102", argument.name.span, f"`{name}` is given twice")
            fine = False
        else:
            given[name] = argument
    return given if fine else None


def listed(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def written_generics(
    cx: Body, node: tree.Call, decl: FunctionDecl | StructDecl, inference: Inference
) -> bool:
    written = node.generics or []
    if len(written) > len(decl.generics):
        names = ", ".join(g.name for g in decl.generics)
        cx.report.error(
            "E2111",
            written[len(decl.generics)].span,
            f"too many generic arguments: `{decl.name}` takes {names or 'none'}",
            related=[Label(decl.span, "declared here")],
        )
        return False
    fine = True
    for generic, argument in zip(decl.generics, written, strict=False):
        found = generic_argument(cx.scope, generic, argument, decl)
        if found is None:
            fine = False
        else:
            inference.bindings[generic.name] = found
    return fine


def default_value(cx: Body, decl: FunctionDecl, node: tree.Expr, span: Span) -> Operand:
    """A default: a literal, `none` or a const, read in the callee's module."""
    from linnet.check import expressions

    match node:
        case tree.Paren(inner=inner):
            return default_value(cx, decl, inner, span)
        case tree.NoneLit():
            return NoneOperand()
        case tree.IntLit() | tree.FloatLit() | tree.BoolLit():
            return expressions.expression(cx, node)
        case tree.Unary(op="-", operand=operand):
            found = default_value(cx, decl, operand, span)
            if isinstance(found, Float):
                return Float(-found.value)
            if isinstance(found, Int):
                return Int(-1 * found.dim)
            if isinstance(found, Value) and found.type is ERROR:
                return found
        case tree.Name(text=text):
            item = decl.module.lookup(text)
            if isinstance(item, ConstDecl):
                return expressions.item_value(cx, item, span, text)
        case tree.Member():
            scope = Scope(cx.checker, decl.module, {}, cx.facts)
            found_enum = enum_constant(scope, node)
            if found_enum is not None:
                enum, position = found_enum
                if position is None:
                    return cx.poison()
                return cx.emit(Const([Value(enum)], span, position))
            item = module_item(scope, node)
            if isinstance(item, ConstDecl):
                return expressions.item_value(cx, item, span, node.name.text)
    cx.report.error(
        "E2102",
        node.span,
        "a default is a literal, `none` or a const",
        help="give the argument at each call instead",
    )
    return cx.poison()


def literals_bind(
    cx: Body,
    inference: Inference,
    types: Sequence[Type],
    operands: list[tuple[Operand, Span]],
) -> None:
    """A dtype generic that only literals could determine takes their default dtype.
    `types` are as declared, one for each operand."""
    found: dict[str, list[Literal]] = {}
    for type, (operand, _) in zip(types, operands, strict=True):
        if isinstance(type, (ScalarType, TensorType)) and isinstance(operand, LITERALS):
            if inference.open(type.dtype):
                found.setdefault(type.dtype, []).append(operand)
    for name, literals in found.items():
        # A default that can hold them all comes first.
        default = inference.defaults.get(name)
        if isinstance(default, str):
            default = substitute_dtype(default, inference.bindings)
            fits = default in DTYPES or default in cx.scope.generics
            parts = [part for one in literals for part in literals_in(one)]
            if fits and not any(literal_problem(cx, part, default) for part in parts):
                inference.bindings[name] = default
                continue
        is_float = inference.kinds[name] == "Float"
        inference.bindings[name] = "f64" if is_float else default_dtype(*literals)
    for at, (type, (operand, span)) in enumerate(zip(types, operands, strict=True)):
        if isinstance(type, TensorType):
            if isinstance(operand, Pending):
                dtype = substitute_dtype(type.dtype, inference.bindings)
                made = literal(cx, operand, dtype, span)
                operands[at] = (made, span)
                inference.unify(type, made.type)
            elif isinstance(operand, LITERALS):
                # A number for `Tensor[*S; T]`: no dimensions.
                inference.unify(TensorType(type.shape, "f32"), ScalarType("f32"))


def complete(
    cx: Body, node: tree.Call, decl: FunctionDecl | StructDecl, inference: Inference
) -> bool:
    """Whether all generics are known, defaults taken, and meet their constraints."""
    for generic in decl.generics:
        argument = inference.bindings.get(generic.name)
        if argument is None:
            if generic.default is not None:
                inference.bindings[generic.name] = substitute_arg(
                    generic.default, inference.bindings
                )
                continue
            names = ", ".join(g.name for g in decl.generics)
            cx.report.error(
                "E2110",
                node.callee.span,
                f"cannot infer `{generic.name}` of `{decl.name}`",
                related=[Label(decl.generic_spans[generic.name], "declared here")],
                help=f"write it: `{decl.name}<{names}>(…)`",
            )
            return False
        if isinstance(argument, str) and not dtype_allowed(cx.scope, generic, argument):
            related = [Label(decl.generic_spans[generic.name], "constrained here")]
            constraint_error(cx.scope, generic, argument, node.span, related)
            return False
    return True
