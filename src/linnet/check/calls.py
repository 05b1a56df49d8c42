"""Calls: arguments to parameters, generics inferred, `where` clauses proven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from linnet.check import expressions, prelude, structs
from linnet.check.arguments import (
    complete,
    default_value,
    listed,
    literals_bind,
    match_arguments,
    written_generics,
)
from linnet.check.body import (
    Body,
    Operand,
    OptionalSub,
    Sub,
    SubArray,
)
from linnet.check.coerce import coerce
from linnet.check.declare import (
    AliasDecl,
    BlockDecl,
    ConstDecl,
    Decl,
    FunctionDecl,
    ModuleAlias,
    ParamDecl,
    StructDecl,
    kind_of,
)
from linnet.check.infer import Inference, free_names
from linnet.check.modules import PRELUDE_FUNCTIONS, RESERVED_FUNCTIONS, Import
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, refuse_negative
from linnet.check.unfit import refuse_unfit
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Call, Generic, Step, Value
from linnet.ir.types import (
    GenericArg,
    Substitution,
    Type,
    substitute,
)
from linnet.source import Span
from linnet.syntax import tree


def call(cx: Body, node: tree.Call, expected: Type | None) -> Operand:
    callee = node.callee
    while isinstance(callee, tree.Paren):
        callee = callee.inner
    match callee:
        case tree.Name(text=text):
            return _named(cx, node, callee, text, expected)
        case tree.Member():
            return _member(cx, node, callee, expected)
        case tree.ErrorExpr():
            return evaluate_arguments(cx, node)
    cx.report.error("E2106", callee.span, "this cannot be called")
    return evaluate_arguments(cx, node)


def evaluate_arguments(cx: Body, node: tree.Call) -> Value:
    """Look at the arguments of a call that failed, so that their own errors show too."""
    for argument in node.arguments:
        expressions.expression(cx, argument.value)
    return cx.poison()


def _named(
    cx: Body, node: tree.Call, callee: tree.Name, text: str, expected: Type | None
) -> Operand:
    if text in PRELUDE_FUNCTIONS:
        return prelude.call(cx, node, text, expected)
    if text in RESERVED_FUNCTIONS:
        cx.report.error("E1103", callee.span, f"`{text}` is reserved for a later version")
        return evaluate_arguments(cx, node)
    local = cx.find(text)
    if local is not None:
        cx.report.error(
            "E2106",
            callee.span,
            f"`{text}` is a value and cannot be called",
            related=[Label(local.span, "declared here")],
        )
        return evaluate_arguments(cx, node)
    if cx.block is not None and (method := cx.block.methods.get(text)) is not None:
        method.used = True
        return function_call(
            cx, node, method, (), {g.name: _self_arg(g) for g in cx.block.generics}
        )
    if text in cx.scope.generics or (cx.block is not None and text in cx.checker.members(cx.block)):
        cx.report.error("E2106", callee.span, f"`{text}` cannot be called")
        return evaluate_arguments(cx, node)
    item = cx.scope.module.lookup(text)
    if item is None:
        if text in ("sum", "prod", "any", "all"):
            cx.report.error(
                "E1201",
                callee.span,
                f"unknown name `{text}`",
                help=f"a reduction names its indices: `{text}[i] x[i]`",
            )
        else:
            expressions.unknown(cx, callee.span, text)
        return evaluate_arguments(cx, node)
    return _item(cx, node, item, callee.span)


def _self_arg(generic: Generic) -> GenericArg:
    from linnet.dims import Dim
    from linnet.ir.types import Pack

    if generic.kind == "Dim":
        return Dim.name(generic.name)
    if generic.kind == "Shape":
        return (Pack(generic.name),)
    return generic.name


def _item(cx: Body, node: tree.Call, item: Decl | ModuleAlias | Import, span: Span) -> Operand:
    match item:
        case Import():
            return evaluate_arguments(cx, node)
        case FunctionDecl():
            return function_call(cx, node, item, None, {})
        case StructDecl():
            return structs.construct(cx, node, item)
        case AliasDecl():
            return structs.through_alias(cx, node, item)
    help = None
    if isinstance(item, BlockDecl):
        help = "a block is a member: `sub name: Block<…>`, then `name.method(…)`"
    elif isinstance(item, ConstDecl):
        help = "a const is used without parentheses"
    cx.report.error("E2106", span, f"{kind_of(item)} cannot be called", help=help)
    return evaluate_arguments(cx, node)


def _member(cx: Body, node: tree.Call, callee: tree.Member, expected: Type | None) -> Operand:
    """`module.function(…)` or `sub.method(…)`."""
    ident = callee.name
    item: Decl | ModuleAlias | Import | None = expressions.named_item(cx, callee.object)
    if isinstance(item, Import):
        return evaluate_arguments(cx, node)
    if isinstance(item, ModuleAlias):
        target = cx.checker.through_alias(item, ident, callee.span)
        if target is None:
            return evaluate_arguments(cx, node)
        return _item(cx, node, target, callee.span)
    owner = expressions.expression(cx, callee.object)
    help: str | None = None
    if isinstance(owner, Sub):
        decl = cx.checker.block(owner.ref)
        method = decl.methods.get(ident.text)
        if method is None:
            members = cx.checker.members(decl)
            cx.report.error(
                "E2107",
                ident.span,
                f"block `{decl.name}` has no method `{ident.text}`",
                related=[Label(owner.declared, "the block is named here")],
                help=did_you_mean(ident.text, [*decl.methods, *members]),
            )
            return evaluate_arguments(cx, node)
        if not method.public and method.kind != "entry" and decl is not cx.block:
            cx.report.error(
                "E1203",
                ident.span,
                f"method `{ident.text}` is private to block `{decl.name}`",
                related=[Label(method.span, "declared here without `pub`")],
            )
        method.used = True
        mapping: Substitution = {
            g.name: a for g, a in zip(decl.generics, owner.ref.generics, strict=True)
        }
        return function_call(cx, node, method, owner.receiver, mapping, owner.declared)
    match owner:
        case SubArray():
            help = f"go over it: `static for layer in … {{ layer.{ident.text}(…) }}`"
            cx.report.error("E2107", ident.span, "an array of blocks has no methods", help=help)
        case OptionalSub():
            cx.report.error(
                "E2107",
                ident.span,
                "this block is optional",
                help="`match it { some(b) => …  none => … }`",
            )
        case Value(type=type) if type is ERROR:
            pass
        case Value():
            item = cx.scope.module.lookup(ident.text)
            help = f"functions are called by name: `{ident.text}(…)`" if item else None
            if ident.text in PRELUDE_FUNCTIONS:
                help = f"functions are called by name: `{ident.text}(…)`"
            cx.report.error(
                "E2107", ident.span, f"`{owner.type}` has no method `{ident.text}`", help=help
            )
        case _:
            cx.report.error("E2107", ident.span, f"this has no method `{ident.text}`")
    return evaluate_arguments(cx, node)


def function_call(
    cx: Body,
    node: tree.Call,
    decl: FunctionDecl,
    receiver: tuple[Step, ...] | None,
    block_mapping: Substitution,
    declared: Span | None = None,
) -> Operand:
    """Check one call. `block_mapping` gives the generics of the block that owns a method;
    `declared` is where the sub was declared that the method is called on."""
    checker = cx.checker
    checker.signature(decl)
    checker.reach(decl)
    if decl.broken:
        return evaluate_arguments(cx, node)
    given = match_arguments(cx, node, [p.name for p in decl.params], decl.name, decl.span)
    if given is None:
        return evaluate_arguments(cx, node)
    inference = Inference(decl.generics, dict(block_mapping))
    written = written_generics(cx, node, decl, inference)
    operands: list[tuple[ParamDecl, Operand, Span]] = []
    binders: dict[str, Span] = {}  # the argument that bound each generic
    failed = not written
    for parameter in decl.params:
        argument = given.get(parameter.name)
        if argument is None and parameter.node.default is None:
            missing = [
                p.name for p in decl.params if p.name not in given and p.node.default is None
            ]
            cx.report.error(
                "E2102",
                node.span,
                f"`{decl.name}` needs {listed(missing)}",
                related=[Label(parameter.node.span, "declared here")],
            )
            return evaluate_arguments(cx, node)
        source = argument.value if argument is not None else parameter.node.default
        assert source is not None
        span = source.span if argument is not None else node.span
        hint = inference.known(parameter.type)
        if argument is not None:
            operand = expressions.expression(cx, source, hint)
        else:
            operand = default_value(cx, decl, source, span)
        if isinstance(operand, Value):
            if operand.type is ERROR:
                failed = True
            else:
                before = set(inference.bindings)
                inference.unify(parameter.type, operand.type)
                binders.update(dict.fromkeys(set(inference.bindings) - before, span))
        operands.append((parameter, operand, span))
    if failed:
        return cx.poison()
    for parameter, operand, span in operands:
        if not any(inference.open(name) for name in free_names(parameter.type)):
            continue
        here = Label(parameter.node.span, f"`{parameter.name}` is declared `{parameter.type}`")
        failed |= refuse_unfit(
            cx, inference, parameter.type, operand, span, f"argument `{parameter.name}`", here
        )
    if failed:
        return cx.poison()
    values = [(operand, span) for _, operand, span in operands]
    literals_bind(cx, inference, [p.type for p, _, _ in operands], values)
    if not complete(cx, node, decl, inference):
        return cx.poison()
    args: list[Value] = []
    for (parameter, _, _), (operand, span) in zip(operands, values, strict=True):
        want = substitute(parameter.type, inference.bindings)
        labels: Iterable[Label] = _labels(parameter, want, span, inference, binders)
        if declared is not None:
            labels = chain(labels, [Label(declared, "of the block named here")])
        value = coerce(cx, operand, want, span, f"argument `{parameter.name}`", labels)
        failed |= value.type is ERROR
        args.append(value)
    if failed:
        return cx.poison()
    if not _where(cx, node, decl, inference.bindings):
        return cx.poison()
    assert decl.result is not None
    result = Value(substitute(decl.result, inference.bindings))
    if result.type is ERROR or refuse_negative(
        cx.scope, result.type, node.span, f"in the result of `{decl.name}` the dimension"
    ):
        return cx.poison()
    generics = tuple(inference.bindings[g.name] for g in decl.generics)
    return cx.emit(Call([result], node.span, decl.id, generics, args, receiver))


def _labels(
    parameter: ParamDecl, want: Type, span: Span, inference: Inference, binders: dict[str, Span]
) -> Iterator[Label]:
    """What a parameter's type rests on; worked out only where an argument differs from it."""
    bound = _bound_note(parameter.type, want, inference)
    yield Label(parameter.node.span, f"`{parameter.name}` is declared `{parameter.type}`{bound}")
    for name in sorted(free_names(parameter.type)):
        if name in binders and binders[name] is not span:
            text = _argument_text(inference, name)
            yield Label(binders[name], f"`{name}` is bound to `{text}` here")


def _argument_text(inference: Inference, name: str) -> str:
    argument = inference.bindings[name]
    if isinstance(argument, tuple):
        return f"[{', '.join(map(str, argument))}]"
    return str(argument)


def _bound_note(pattern: Type, want: Type, inference: Inference) -> str:
    """Which generics made a declared type what it is at this call."""
    names = [n for n in sorted(free_names(pattern)) if n in inference.bindings]
    parts = []
    for name in names:
        shown = _argument_text(inference, name)
        if shown != name:
            parts.append(f"{name} = {shown}")
    return f", here with {', '.join(parts)}" if parts and pattern != want else ""


def _where(cx: Body, node: tree.Call, decl: FunctionDecl, mapping: Substitution) -> bool:
    return cx.checker.prove_where(cx.scope, decl, mapping, node.span)
