"""Calls on the elements of index notation: the prelude, and functions of scalars."""

from __future__ import annotations

from linnet.check import elements, expressions, grids, prelude
from linnet.check.arguments import default_value, match_arguments, written_generics
from linnet.check.body import LITERALS, Pending, default_dtype, literals_in
from linnet.check.coerce import (
    is_integer,
    is_numeric,
    value_of,
)
from linnet.check.declare import FunctionDecl, ModuleAlias
from linnet.check.infer import Inference, free_names
from linnet.check.modules import RESERVED_FUNCTIONS, Import
from linnet.check.notation import Notation, Part, literal_part
from linnet.check.typing import (
    ERROR,
    constraint_error,
    dtype_allowed,
    dtype_argument,
)
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    GApply,
    GBinary,
    GCast,
    GExpr,
    GRead,
    GUnary,
)
from linnet.ir.types import (
    ScalarType,
    substitute,
    substitute_arg,
)
from linnet.source import Span
from linnet.syntax import tree


def call(gx: Notation, node: tree.Call, dtype: str | None) -> Part:
    cx = gx.cx
    callee = node.callee
    name = callee.text if isinstance(callee, tree.Name) else ""
    plain = [a.value for a in node.arguments if a.name is None]
    if name in prelude.USAGE or name in prelude.MATH:
        arity = {"select": 3, "min": 2, "max": 2, "shl": 2, "shr": 2}.get(name, 1)
        if name not in prelude.MATH | {"cast", "abs", "min", "max", "shl", "shr", "select"}:
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
                help=f"it is called as `{prelude.USAGE.get(name, f'{name}(x)')}`",
            )  # fmt: skip
            return None
        if node.generics and name != "cast":
            cx.report.error("E2111", node.span, f"`{name}` takes no generic arguments")
            return None
        return _prelude(gx, node, name, plain, dtype)
    if name in RESERVED_FUNCTIONS:
        cx.report.error("E1103", callee.span, f"`{name}` is reserved for a later version")
        return None
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
            if decl is None:
                return None
        elif isinstance(alias, Import):
            return None
    if isinstance(decl, Import):
        return None
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
        return elements.choice(gx, node, parts[0], parts[1], parts[2], dtype, lazy=False)
    if name == "cast":
        if not node.generics or len(node.generics) != 1:
            cx.report.error("E2110", node.span, "`cast` needs a dtype", help="write `cast<T>(x)`")
            return None
        target = dtype_argument(cx.scope, node.generics[0])
        part = grids.scalar(gx, parts[0])
        if target is None or part is None:
            return None
        if isinstance(part, LITERALS):
            return literal_part(gx, part, target, node.span)
        return GCast(part, target)
    if name in ("min", "max", "shl", "shr"):
        a = grids.scalar(gx, parts[0], dtype)
        b = grids.scalar(gx, parts[1], dtype or (a.dtype if isinstance(a, GExpr) else None))
        if a is None or b is None:
            return None

        def build(wanted: str | None) -> GExpr | None:
            return _pairwise(gx, node, name, a, b, parts, wanted)

        if isinstance(a, LITERALS) and isinstance(b, LITERALS):
            return Pending((*literals_in(a), *literals_in(b)), build)
        return build(dtype)
    part = grids.scalar(gx, parts[0], dtype)
    if part is None:
        return None
    if isinstance(part, LITERALS):
        part = literal_part(gx, part, dtype or "f64", parts[0].span)
        if part is None:
            return None
    from linnet.check.coerce import is_float

    fine = is_float(cx, part.dtype) if name in prelude.MATH else is_numeric(cx, part.dtype)
    if not fine:
        help = "`cast<f32>(…)` first" if name in prelude.MATH else None
        cx.report.error(
            "E2104", parts[0].span, f"`{name}` is not defined for `{part.dtype}`", help=help
        )
        return None
    return GUnary(name, part, part.dtype)


def _pairwise(
    gx: Notation,
    node: tree.Call,
    name: str,
    a: Part,
    b: Part,
    parts: list[tree.Expr],
    dtype: str | None,
) -> GExpr | None:
    cx = gx.cx
    pair = elements.together(gx, a, b, parts[0].span, parts[1].span, dtype)
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


def _default(gx: Notation, decl: FunctionDecl, node: tree.Expr, span: Span) -> Part:
    operand = default_value(gx.cx, decl, node, span)
    if isinstance(operand, LITERALS):
        return operand
    value = value_of(gx.cx, operand, span)
    if not isinstance(value.type, ScalarType):
        if value.type is not ERROR:
            gx.cx.report.error("E3104", span, f"`{decl.name}` takes more than scalars")
        return None
    return GRead(value, (), value.type.dtype, span)


def _scalar_function(gx: Notation, node: tree.Call, decl: FunctionDecl) -> Part:
    """A free function of scalars, on elements: `sigmoid(x[i])`."""
    cx = gx.cx
    cx.checker.signature(decl)
    cx.checker.reach(decl)
    if decl.broken:
        return None
    given = match_arguments(cx, node, [p.name for p in decl.params], decl.name, decl.span)
    if given is None:
        return None
    inference = Inference(decl.generics, {})
    if not written_generics(cx, node, decl, inference):
        return None
    parts: list[tuple[Part, Span]] = []
    failed = False
    for parameter in decl.params:
        argument = given.get(parameter.name)
        if argument is None and parameter.node.default is None:
            cx.report.error(
                "E2102",
                node.span,
                f"`{decl.name}` needs `{parameter.name}`",
                related=[Label(parameter.node.span, "declared here")],
            )
            return None
        part: Part
        if argument is None:
            assert parameter.node.default is not None
            part = _default(gx, decl, parameter.node.default, node.span)
        else:
            part = grids.scalar(gx, argument.value)
        if isinstance(part, GExpr):
            inference.unify(parameter.type, ScalarType(part.dtype))
        failed |= part is None
        parts.append((part, node.span if argument is None else argument.value.span))
    if failed:
        return None
    for parameter, (part, _) in zip(decl.params, parts, strict=True):
        for name in free_names(parameter.type):
            if inference.open(name):
                kind = inference.kinds[name]
                if kind == "Shape":
                    inference.bindings[name] = ()
                elif kind != "Dim":
                    literals = [part] if isinstance(part, LITERALS) else []
                    is_float = kind == "Float"
                    inference.bindings[name] = "f64" if is_float else default_dtype(*literals)
    for generic in decl.generics:
        bound = inference.bindings.get(generic.name)
        if bound is None and generic.default is not None:
            bound = substitute_arg(generic.default, inference.bindings)
            inference.bindings[generic.name] = bound
        if bound is None:
            cx.report.error("E2110", node.span, f"cannot infer `{generic.name}` of `{decl.name}`")
            return None
        if isinstance(bound, str) and not dtype_allowed(cx.scope, generic, bound):
            constraint_error(
                cx.scope, generic, bound, node.span, [Label(decl.span, "declared here")]
            )
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
        typed = elements.typed_part(gx, part, want.dtype, span)
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
