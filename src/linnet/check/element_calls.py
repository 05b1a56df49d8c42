"""Calls on the elements of index notation: the prelude, and functions of scalars."""

from __future__ import annotations

from linnet.check import elements, expressions, grids
from linnet.check.body import Float, Int
from linnet.check.calls import match_arguments
from linnet.check.coerce import (
    is_integer,
    is_numeric,
)
from linnet.check.declare import FunctionDecl, ModuleAlias
from linnet.check.infer import Inference, free_names
from linnet.check.notation import Notation, Part, literal_part
from linnet.check.prelude import MATH, USAGE
from linnet.check.typing import (
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
    GUnary,
)
from linnet.ir.types import (
    ScalarType,
    substitute,
)
from linnet.source import Span
from linnet.syntax import tree


def call(gx: Notation, node: tree.Call, dtype: str | None) -> Part:
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
        return elements.choice(gx, node, parts[0], parts[1], parts[2], dtype, lazy=False)
    if name == "cast":
        if not node.generics or len(node.generics) != 1:
            cx.report.error("E2110", node.span, "`cast` needs a dtype", help="write `cast<T>(x)`")
            return None
        target = dtype_argument(cx.scope, node.generics[0])
        part = grids.scalar(gx, parts[0])
        if target is None or part is None:
            return None
        if isinstance(part, (Int, Float)):
            return literal_part(gx, part, target, node.span)
        return GCast(part, target)
    if name in ("min", "max", "shl", "shr"):
        a, b = grids.scalar(gx, parts[0], dtype), grids.scalar(gx, parts[1], dtype)
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
    part = grids.scalar(gx, parts[0], dtype)
    if part is None:
        return None
    if isinstance(part, (Int, Float)):
        part = literal_part(gx, part, dtype or "f64", parts[0].span)
        if part is None:
            return None
    from linnet.check.coerce import is_float

    fine = is_float(cx, part.dtype) if name in MATH else is_numeric(cx, part.dtype)
    if not fine:
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
    if decl.broken:
        return None
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
        part = grids.scalar(gx, source)
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
            constraint_error(
                cx.scope, generic, argument, node.span, [Label(decl.span, "declared here")]
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
