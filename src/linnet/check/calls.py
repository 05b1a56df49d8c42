"""Calls: arguments to parameters, generics inferred, `where` clauses proven."""

from __future__ import annotations

from linnet.check import expressions, prelude
from linnet.check.body import (
    LITERALS,
    Body,
    Float,
    Int,
    Literal,
    NoneOperand,
    Operand,
    OptionalSub,
    Pending,
    Sub,
    SubArray,
    default_dtype,
)
from linnet.check.coerce import coerce, literal
from linnet.check.declare import (
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
from linnet.check.typing import (
    ERROR,
    constraint_error,
    dtype_allowed,
    generic_argument,
)
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Call, Generic, MakeStruct, Step, Value
from linnet.ir.types import (
    GenericArg,
    ScalarType,
    StructType,
    Substitution,
    TensorType,
    Type,
    substitute,
    substitute_arg,
    substitute_dtype,
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
            return _evaluate_arguments(cx, node)
    cx.report.error("E2106", callee.span, "this cannot be called")
    return _evaluate_arguments(cx, node)


def _evaluate_arguments(cx: Body, node: tree.Call) -> Value:
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
        return _evaluate_arguments(cx, node)
    local = cx.find(text)
    if local is not None:
        cx.report.error(
            "E2106",
            callee.span,
            f"`{text}` is a value and cannot be called",
            related=[Label(local.span, "declared here")],
        )
        return _evaluate_arguments(cx, node)
    if cx.block is not None and (method := cx.block.methods.get(text)) is not None:
        method.used = True
        return function_call(
            cx, node, method, (), {g.name: _self_arg(g) for g in cx.block.generics}
        )
    if text in cx.scope.generics or (cx.block is not None and text in cx.checker.members(cx.block)):
        cx.report.error("E2106", callee.span, f"`{text}` cannot be called")
        return _evaluate_arguments(cx, node)
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
        return _evaluate_arguments(cx, node)
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
            return _evaluate_arguments(cx, node)
        case FunctionDecl():
            return function_call(cx, node, item, None, {})
        case StructDecl():
            return _construct(cx, node, item)
    help = None
    if isinstance(item, BlockDecl):
        help = "a block is a member: `sub name: Block<…>`, then `name.method(…)`"
    elif isinstance(item, ConstDecl):
        help = "a const is used without parentheses"
    cx.report.error("E2106", span, f"{kind_of(item)} cannot be called", help=help)
    return _evaluate_arguments(cx, node)


def _member(cx: Body, node: tree.Call, callee: tree.Member, expected: Type | None) -> Operand:
    """`module.function(…)` or `sub.method(…)`."""
    ident = callee.name
    if isinstance(callee.object, tree.Name) and cx.find(callee.object.text) is None:
        own = cx.block is not None and callee.object.text in cx.checker.members(cx.block)
        item = None if own else cx.scope.module.lookup(callee.object.text)
        if isinstance(item, Import):
            return _evaluate_arguments(cx, node)
        if isinstance(item, ModuleAlias):
            target = cx.checker.through_alias(item, ident, callee.span)
            if target is None:
                return _evaluate_arguments(cx, node)
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
            return _evaluate_arguments(cx, node)
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
                help="`match it { some(block) => …  none => … }`",
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
    return _evaluate_arguments(cx, node)


# --- matching arguments -----------------------------------------------------------


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
        return _evaluate_arguments(cx, node)
    given = match_arguments(cx, node, [p.name for p in decl.params], decl.name, decl.span)
    if given is None:
        return _evaluate_arguments(cx, node)
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
                f"`{decl.name}` needs {_list(missing)}",
                related=[Label(parameter.node.span, "declared here")],
            )
            return _evaluate_arguments(cx, node)
        source = argument.value if argument is not None else parameter.node.default
        assert source is not None
        span = source.span if argument is not None else node.span
        hint = None
        if all(not inference.open(name) for name in free_names(parameter.type)):
            hint = substitute(parameter.type, inference.bindings)
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
    _literals_bind(cx, decl, inference, operands)
    if not _complete(cx, node, decl, inference):
        return cx.poison()
    related = [Label(declared, "of the block named here")] if declared is not None else []
    args: list[Value] = []
    for parameter, operand, span in operands:
        want = substitute(parameter.type, inference.bindings)
        bound = _bound_note(parameter.type, want, inference)
        labels = [
            Label(
                parameter.node.span,
                f"`{parameter.name}` is declared `{parameter.type}`" + bound,
            ),
            *related,
            *(
                Label(
                    binders[name], f"`{name}` is bound to `{_argument_text(inference, name)}` here"
                )
                for name in sorted(free_names(parameter.type))
                if name in binders and binders[name] is not span
            ),
        ]
        value = coerce(cx, operand, want, span, f"argument `{parameter.name}`", labels)
        failed |= value.type is ERROR
        args.append(value)
    if failed:
        return cx.poison()
    if not _where(cx, node, decl, inference.bindings):
        return cx.poison()
    assert decl.result is not None
    result = Value(substitute(decl.result, inference.bindings))
    if result.type is ERROR:
        return cx.poison()
    generics = tuple(inference.bindings[g.name] for g in decl.generics)
    return cx.emit(Call([result], node.span, decl.id, generics, args, receiver))


def _list(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


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


def written_generics(cx: Body, node: tree.Call, decl: FunctionDecl, inference: Inference) -> bool:
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
    cx.report.error(
        "E2102",
        node.span,
        "a default is a literal, `none` or a const",
        help="give the argument at each call instead",
    )
    return cx.poison()


def _literals_bind(
    cx: Body,
    decl: FunctionDecl,
    inference: Inference,
    operands: list[tuple[ParamDecl, Operand, Span]],
) -> None:
    """A dtype generic that only literals could determine takes their default dtype."""
    found: dict[str, list[Literal]] = {}
    for parameter, operand, _ in operands:
        type = parameter.type
        if isinstance(type, (ScalarType, TensorType)) and isinstance(operand, LITERALS):
            if inference.open(type.dtype):
                found.setdefault(type.dtype, []).append(operand)
    for name, literals in found.items():
        is_float = inference.kinds[name] == "Float"
        inference.bindings[name] = "f64" if is_float else default_dtype(*literals)
    for at, (parameter, operand, span) in enumerate(operands):
        type = parameter.type
        if isinstance(type, TensorType):
            if isinstance(operand, Pending):
                dtype = substitute_dtype(type.dtype, inference.bindings)
                made = literal(cx, operand, dtype, span)
                operands[at] = (parameter, made, span)
                inference.unify(type, made.type)
            elif isinstance(operand, LITERALS):
                # A number for `Tensor[*S; T]`: no dimensions.
                inference.unify(TensorType(type.shape, "f32"), ScalarType("f32"))


def _complete(cx: Body, node: tree.Call, decl: FunctionDecl, inference: Inference) -> bool:
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


def _where(cx: Body, node: tree.Call, decl: FunctionDecl, mapping: Substitution) -> bool:
    return cx.checker.prove_where(cx.scope, decl, mapping, node.span)


def _construct(cx: Body, node: tree.Call, decl: StructDecl) -> Operand:
    """`Name(field = value, …)`"""
    cx.checker.signature(decl)
    fields = dict(decl.fields)
    for argument in node.arguments:
        if argument.name is None:
            cx.report.error(
                "E2102",
                argument.span,
                f"`{decl.name}` is built from named fields",
                help=f"write `{decl.name}({', '.join(f'{f} = …' for f in fields)})`",
            )
            return _evaluate_arguments(cx, node)
    given = match_arguments(cx, node, list(fields), decl.name, decl.span)
    if given is None:
        return _evaluate_arguments(cx, node)
    missing = [field for field in fields if field not in given]
    if missing:
        cx.report.error("E2102", node.span, f"`{decl.name}` needs {_list(missing)}")
        return _evaluate_arguments(cx, node)
    inference = Inference(decl.generics, {})
    for generic, argument_node in zip(decl.generics, node.generics or [], strict=False):
        found = generic_argument(cx.scope, generic, argument_node, decl)
        if found is None:
            return _evaluate_arguments(cx, node)
        inference.bindings[generic.name] = found
    operands: list[tuple[str, Operand, Span]] = []
    for field, type in fields.items():
        source = given[field].value
        hint = None
        if all(not inference.open(name) for name in free_names(type)):
            hint = substitute(type, inference.bindings)
        operand = expressions.expression(cx, source, hint)
        if isinstance(operand, Value):
            inference.unify(type, operand.type)
        operands.append((field, operand, source.span))
    for generic in decl.generics:
        if generic.name not in inference.bindings:
            if generic.default is None:
                cx.report.error(
                    "E2110", node.callee.span, f"cannot infer `{generic.name}` of `{decl.name}`"
                )
                return cx.poison()
            inference.bindings[generic.name] = generic.default
    values = [
        coerce(cx, operand, substitute(fields[field], inference.bindings), span, f"field `{field}`")
        for field, operand, span in operands
    ]
    if any(value.type is ERROR for value in values):
        return cx.poison()
    struct = StructType(
        decl.id,
        tuple(inference.bindings[g.name] for g in decl.generics),
        tuple((f, substitute(t, inference.bindings)) for f, t in decl.fields),
    )
    return cx.emit(MakeStruct([Value(struct)], node.span, values))
