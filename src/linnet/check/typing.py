"""Type expressions to types, and generic arguments to what they stand for."""

from __future__ import annotations

from linnet.check.declare import (
    AliasDecl,
    BlockDecl,
    Decl,
    EnumDecl,
    ModuleAlias,
    StructDecl,
    kind_of,
)
from linnet.check.dimensions import Scope, dimension, kind_text, witness_text
from linnet.check.modules import PRELUDE, Import
from linnet.check.report import did_you_mean
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim, Fact
from linnet.ir.program import Generic
from linnet.ir.types import (
    CONSTRAINTS,
    DTYPES,
    BlockRef,
    GenericArg,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    StructType,
    Substitution,
    TensorType,
    TupleType,
    Type,
    substitute,
    substitute_arg,
    tensor,
)
from linnet.record import dataclass
from linnet.source import Span
from linnet.syntax import tree


@dataclass(frozen=True, slots=True)
class ErrorType(Type):
    """The type of what has already been reported; agrees with everything in silence."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """`[Block<…>; N]`, only for a `sub`."""

    element: BlockRef
    length: Dim


ERROR = ErrorType()

# Bounds that no real model comes near.
MAX_AXES = 64
MAX_PARTS = 1024
MAX_DEPTH = 32


def value_type(scope: Scope, node: tree.TypeExpr) -> Type:
    """A type that values have; blocks and block arrays are refused."""
    found = any_type(scope, node)
    if isinstance(found, (BlockRef, ArrayOf)):
        scope.report.error(
            "E4101",
            node.span,
            "a block is not a value",
            help="blocks are members: `sub name: Block<…>`",
        )
        return ERROR
    return found


def oversized(type: Type) -> str | None:
    """Why a type is too large to work with: types that name types can grow as powers of two."""
    waiting: list[tuple[Type, int]] = [(type, 1)]
    parts = 0
    while waiting:
        inner, depth = waiting.pop()
        parts += 1
        match inner:
            case TensorType(shape=shape):
                if len(shape) > MAX_AXES:
                    return f"a tensor of more than {MAX_AXES} axes"
                parts += len(shape)
            case OptionalType(inner=item):
                waiting.append((item, depth + 1))
            case TupleType(items=items):
                waiting += [(item, depth + 1) for item in items]
            case StructType(generics=generics, fields=fields):
                waiting += [(item, depth + 1) for _, item in fields]
                parts += sum(len(g) for g in generics if isinstance(g, tuple))
        if parts > MAX_PARTS:
            return f"a type of more than {MAX_PARTS} parts"
        if depth > MAX_DEPTH:
            return f"a type that nests more than {MAX_DEPTH} deep"
    return None


def any_type(scope: Scope, node: tree.TypeExpr) -> Type | BlockRef | ArrayOf:
    found = _any_type(scope, node)
    if isinstance(found, Type):
        why = oversized(found)
    else:
        ref = found.element if isinstance(found, ArrayOf) else found
        long = any(isinstance(a, tuple) and len(a) > MAX_AXES for a in ref.generics)
        why = f"a shape of more than {MAX_AXES} axes" if long else None
    if why is None:
        return found
    scope.report.error("E2101", node.span, f"this is {why}")
    return ERROR


def _any_type(scope: Scope, node: tree.TypeExpr) -> Type | BlockRef | ArrayOf:
    match node:
        case tree.TensorType(dims=dims, dtype=dtype):
            shape = shape_items(scope, dims)
            element = dtype_of_expr(scope, dtype)
            if shape is None or element is None:
                return ERROR
            return tensor(shape, element)
        case tree.OptionalType(inner=inner):
            found = any_type(scope, inner)
            if isinstance(found, (BlockRef, ArrayOf)):
                scope.report.error("E4101", node.span, "only a `sub` may be an optional block")
                return ERROR
            return found if found is ERROR else OptionalType(found)
        case tree.TupleType(items=items):
            types = [value_type(scope, item) for item in items]
            return ERROR if ERROR in types else TupleType(tuple(types))
        case tree.ArrayType(element=element, length=length):
            found = any_type(scope, element)
            size = checked_dim(scope, length)
            if found is ERROR or size is None:
                return ERROR
            if not isinstance(found, BlockRef):
                scope.report.error(
                    "E4101",
                    element.span,
                    "only blocks stand in arrays",
                    help="for numbers write a tensor: `Tensor[N; f32]`",
                )
                return ERROR
            return ArrayOf(found, size)
        case tree.NamedType():
            return _named_type(scope, node)
    return ERROR


def _named_type(scope: Scope, node: tree.NamedType) -> Type | BlockRef:
    name = node.path[0].text
    if len(node.path) == 1:
        generic = scope.generics.get(name)
        if name in DTYPES or generic is not None:
            if node.generics is not None:
                scope.report.error("E2111", node.span, f"`{name}` takes no generic arguments")
                return ERROR
            if generic is not None and generic.kind in ("Dim", "Shape"):
                scope.report.error(
                    "E1208", node.span, f"`{name}` is a {kind_text(generic)}, not a type"
                )
                return ERROR
            return ScalarType(name)
        if name == "Tensor":
            scope.report.error("E2111", node.span, "write the shape and dtype: `Tensor[N; f32]`")
            return ERROR
    found: Decl | ModuleAlias | Import | None = scope.module.lookup(name)
    if found is None and len(node.path) > 1:
        help = did_you_mean(name, scope.module.names())
        scope.report.error("E1201", node.path[0].span, f"unknown module `{name}`", help=help)
        return ERROR
    for ident in node.path[1:]:
        found = scope.checker.through_alias(found, ident, node.span)
        if found is None:
            return ERROR
    if isinstance(found, Import):
        return ERROR
    if found is None and name in PRELUDE:
        scope.report.error("E1208", node.span, f"`{name}` is a function, not a type")
        return ERROR
    if found is None:
        candidates = [*DTYPES, *scope.generic_names(), *scope.module.names(), "Tensor"]
        scope.report.error(
            "E1201", node.span, f"unknown type `{name}`", help=did_you_mean(name, candidates)
        )
        return ERROR
    if isinstance(found, (BlockDecl, StructDecl, AliasDecl)):
        scope.checker.signature(found)
        if found.broken:
            return ERROR
        arguments = generic_arguments(scope, node, found)
        if arguments is None:
            return ERROR
        mapping: Substitution = {g.name: a for g, a in zip(found.generics, arguments, strict=True)}
        match found:
            case BlockDecl():
                return BlockRef(found.id, arguments)
            case StructDecl():
                fields = tuple((n, substitute(t, mapping)) for n, t in found.fields)
                struct = StructType(found.id, arguments, fields)
                return ERROR if refuse_negative(scope, struct, node.span) else struct
        alias = found.type
        if alias is None:
            return ERROR
        if isinstance(alias, BlockRef):
            return BlockRef(alias.id, tuple(substitute_arg(a, mapping) for a in alias.generics))
        type = substitute(alias, mapping)
        return ERROR if arguments and refuse_negative(scope, type, node.span) else type
    if isinstance(found, EnumDecl):
        scope.checker.signature(found)
        if node.generics is not None:
            scope.report.error("E2111", node.span, f"`{name}` takes no generic arguments")
        return found.type or ERROR
    scope.report.error(
        "E1208", node.span, f"`{node.path[-1].text}` is {kind_of(found)}, not a type"
    )
    return ERROR


def generic_arguments(
    scope: Scope, node: tree.NamedType, decl: BlockDecl | StructDecl | AliasDecl
) -> tuple[GenericArg, ...] | None:
    """The written arguments and then defaults; None after an error."""
    written = node.generics or []
    if len(written) > len(decl.generics):
        names = ", ".join(g.name for g in decl.generics)
        takes = f"takes {len(decl.generics)}: {names}" if names else "takes none"
        scope.report.error(
            "E2111",
            written[len(decl.generics)].span,
            f"too many generic arguments: `{decl.name}` {takes}",
            related=[Label(decl.span, "declared here")],
        )
        return None
    arguments: list[GenericArg] = []
    mapping: Substitution = {}
    failed = False
    for index, generic in enumerate(decl.generics):
        argument: GenericArg | None
        if index < len(written):
            argument = generic_argument(scope, generic, written[index], decl)
            failed |= argument is None
        elif generic.default is not None:
            argument = substitute_arg(generic.default, mapping)
        else:
            missing = [g.name for g in decl.generics[index:] if g.default is None]
            scope.report.error(
                "E2111",
                node.span,
                f"`{decl.name}` needs generic arguments for {', '.join(missing)}",
                related=[Label(decl.span, "declared here")],
                help=f"write `{decl.name}<{', '.join(g.name for g in decl.generics)}>`",
            )
            return None
        if argument is not None:
            arguments.append(argument)
            mapping[generic.name] = argument
    return None if failed else tuple(arguments)


def generic_argument(
    scope: Scope, generic: Generic, node: tree.Expr, decl: Decl | None
) -> GenericArg | None:
    """One written argument, for a generic of the given kind."""
    if generic.kind == "Dim":
        return checked_dim(scope, node)
    if generic.kind == "Shape":
        if isinstance(node, tree.Name) and node.text in scope.generics:
            if scope.generics[node.text].kind == "Shape":
                return (Pack(node.text),)
        if isinstance(node, tree.PackExpr):
            return shape_items(scope, [node])
        if isinstance(node, tree.ListExpr):
            return shape_items(scope, node.items)
        scope.report.error(
            "E2111",
            node.span,
            f"`{generic.name}` is a shape: write it as a list, `[A, B]`",
        )
        return None
    dtype = dtype_argument(scope, node)
    if dtype is None:
        return None
    if not dtype_allowed(scope, generic, dtype):
        related = [Label(decl.span, "declared here")] if decl is not None else []
        constraint_error(scope, generic, dtype, node.span, related)
        return None
    return dtype


def dtype_allowed(scope: Scope, generic: Generic, dtype: str) -> bool:
    allowed = CONSTRAINTS[generic.kind]
    if dtype in DTYPES:
        return dtype in allowed
    own = scope.generics.get(dtype)
    return own is not None and CONSTRAINTS.get(own.kind, DTYPES) <= allowed


def constraint_error(
    scope: Scope, generic: Generic, dtype: str, span: Span, related: list[Label]
) -> None:
    own = scope.generics.get(dtype)
    shown = f"`{dtype}`" + (f" (any {own.kind})" if own is not None else "")
    scope.report.error(
        "E2112",
        span,
        f"{shown} does not meet `{generic.name}: {generic.kind}`",
        related=related,
        help=f"constrain it alike: `{dtype}: {generic.kind}`" if own is not None else None,
    )


def dtype_argument(scope: Scope, node: tree.Expr) -> str | None:
    """A dtype written where an expression stands, as in `cast<T>(x)`."""
    while isinstance(node, tree.Paren):
        node = node.inner
    if isinstance(node, tree.Name):
        if node.text in DTYPES:
            return node.text
        generic = scope.generics.get(node.text)
        if generic is not None and generic.kind not in ("Dim", "Shape"):
            return node.text
        if generic is None and scope.module.lookup(node.text) is None:
            names = [*DTYPES, *scope.generic_names(*CONSTRAINTS)]
            scope.report.error(
                "E1201",
                node.span,
                f"unknown dtype `{node.text}`",
                help=did_you_mean(node.text, names),
            )
            return None
    if not isinstance(node, tree.ErrorExpr):
        scope.report.error(
            "E2111", node.span, "expected a dtype", help="for example `f32`, or a dtype generic"
        )
    return None


def dtype_of_expr(scope: Scope, node: tree.TypeExpr) -> str | None:
    found = any_type(scope, node)
    if isinstance(found, ScalarType):
        return found.dtype
    if found is not ERROR:
        scope.report.error("E2111", node.span, "expected a dtype after `;`")
    return None


def shape_items(scope: Scope, items: list[tree.Expr]) -> Shape | None:
    shape: list[Dim | Pack] = []
    failed = False
    for item in items:
        if isinstance(item, tree.PackExpr):
            generic = scope.generics.get(item.name)
            if generic is None or generic.kind != "Shape":
                scope.report.error(
                    "E1201" if generic is None else "E1208",
                    item.span,
                    f"`*{item.name}` is not a shape pack here",
                    help=did_you_mean(item.name, scope.generic_names("Shape")),
                )
                failed = True
            else:
                shape.append(Pack(item.name))
            continue
        if isinstance(item, tree.Name) and (g := scope.generics.get(item.text)):
            if g.kind == "Shape":
                scope.report.error(
                    "E1208", item.span, f"`{item.text}` is a shape pack: write `*{item.text}`"
                )
                failed = True
                continue
        dim = checked_dim(scope, item)
        if dim is None:
            failed = True
        else:
            shape.append(dim)
    return None if failed else tuple(shape)


def checked_dim(scope: Scope, node: tree.Expr) -> Dim | None:
    """A dimension that is not provably negative."""
    dim = dimension(scope, node)
    if dim is None or (_negative(scope, dim) and _report_negative(scope, dim, node.span)):
        return None
    return dim


def _negative(scope: Scope, dim: Dim) -> bool:
    value = dim.constant
    if value is not None:
        return value < 0
    # Intervals settle nearly every dimension before a proof is asked for.
    low = dim.low
    undecided = low is None or low < 0
    return undecided and scope.divisors is None and scope.facts.holds("<", dim, Dim.const(0))


def _report_negative(scope: Scope, dim: Dim, span: Span, what: str = "dimension") -> bool:
    proof = scope.facts.prove(Fact(">=", dim, Dim.const(0)))
    scope.report.error("E2208", span, f"{what} `{dim}` is negative{witness_text(proof.witness)}")
    return True


def refuse_negative(scope: Scope, type: Type, span: Span, what: str = "dimension") -> bool:
    """Report the first dimension of a type that its generics' arguments made negative."""
    match type:
        case TensorType(shape=shape):
            for dim in shape:
                if isinstance(dim, Dim) and _negative(scope, dim):
                    return _report_negative(scope, dim, span, what)
        case OptionalType(inner=inner):
            return refuse_negative(scope, inner, span, what)
        case TupleType(items=items):
            return any(refuse_negative(scope, item, span, what) for item in items)
        case StructType(fields=fields):
            return any(refuse_negative(scope, field, span, what) for _, field in fields)
    return False
