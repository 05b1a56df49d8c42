"""What each name in a module means: where it was declared, and its type there.

Everything comes from a check that has run: scopes and declarations say what a name is, the
operations of the program, by their spans, what type an expression has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from linnet.check.checker import Checker
from linnet.check.declare import (
    BlockDecl,
    Decl,
    EnumDecl,
    FunctionDecl,
    ModuleAlias,
)
from linnet.check.modules import Import, ModuleScope
from linnet.ir.program import MatchOptional, Program, Region
from linnet.ir.types import BlockRef, StructType, Type
from linnet.source import Span
from linnet.syntax import tree

_CLIP = 400  # characters of a signature


@dataclass(frozen=True, slots=True)
class Reference:
    """What to say of a name. `kind` is "declaration" where it is declared, "item" and "local"
    where it leads to its declaration at `target`, "plain" for what has none."""

    target: Span | None
    text: str
    kind: str


@dataclass(slots=True)
class _Meaning:
    span: Span
    text: str
    block: BlockDecl | None = None
    module: ModuleScope | None = None
    item: Decl | None = None
    member: bool = False
    type: Type | None = None


_Frame = dict[str, _Meaning]


def links_of(checker: Checker, scope: ModuleScope, program: Program) -> dict[int, Reference]:
    """By the offset at which a name begins in the module."""
    resolver = _Resolver(checker, scope, _types(program, scope))
    resolver.module()
    return resolver.found


def _types(program: Program, scope: ModuleScope) -> dict[tuple[int, int], Type]:
    """The type of each expression of a module that has an operation, by where it stands."""
    source = scope.file.source
    found: dict[tuple[int, int], Type] = {}

    def walk(region: Region) -> None:
        for op in region.ops:
            span = op.span
            if span is not None and span.source is source and len(op.results) == 1:
                found.setdefault((span.start, span.end), op.results[0].type)
            if isinstance(op, MatchOptional) and span is not None and span.source is source:
                found[(-span.start, -span.end)] = op.some.params[0].type
            for inner in op.regions():
                walk(inner)

    for function in program.functions.values():
        if function.span is not None and function.span.source is source:
            walk(function.body)
    return found


class _Resolver:
    def __init__(self, checker: Checker, scope: ModuleScope, types: dict[tuple[int, int], Type]):
        self.checker = checker
        self.scope = scope
        self.types = types
        self.found: dict[int, Reference] = {}
        self.frames: list[_Frame] = []
        self.block: BlockDecl | None = None

    # --- what is known -------------------------------------------------------

    def module(self) -> None:
        for use in self.scope.file.tree.file.uses:
            target = next((m for u, m in self.scope.targets if u is use), None)
            if target is None:
                continue
            start = Span(target.file.source, 0, 0)
            for ident in use.path[-1:]:
                self.found[ident.span.start] = Reference(start, f"module {target.id}", "item")
            for name in use.names or []:
                decl = target.items.get(name.name.text)
                if decl is not None:
                    self.refer(name.name.span, self.of_item(decl))
                    if name.alias is not None:
                        self.refer(name.alias.span, self.of_item(decl))
        for decl in self.scope.items.values():
            self.item(decl)

    def item(self, decl: Decl) -> None:
        self.declared(decl.node.name.span, signature(decl.node))
        if isinstance(decl, BlockDecl) and isinstance(decl.node, tree.Block):
            self.frames.append({})
            self.generics(decl.node.generics)
            self.block = decl
            for node in decl.node.where:
                self.visit(node)
            for member in decl.node.members:
                self.declared(member.name.span, signature(member))
                self.visit(member.type)
            for method in decl.methods.values():
                self.function(method)
            self.block = None
            self.frames.pop()
        elif isinstance(decl, FunctionDecl):
            self.function(decl)
        else:
            self.frames.append({})
            if isinstance(decl.node, (tree.TypeAlias, tree.Struct)):
                self.generics(decl.node.generics)
            self.children(decl.node)
            self.frames.pop()

    def function(self, decl: FunctionDecl) -> None:
        node = decl.node
        assert isinstance(node, tree.Function)
        self.declared(node.name.span, signature(node))
        self.frames.append({})
        self.generics(node.generics)
        for parameter in decl.params:
            self.visit(parameter.node.type)
            if parameter.node.default is not None:
                self.visit(parameter.node.default)
            self.local(parameter.node.name, parameter.type)
        if node.result is not None:
            self.visit(node.result)
        for clause in node.where:
            self.visit(clause)
        self.body(node.body)
        self.frames.pop()

    def generics(self, nodes: list[tree.GenericParam]) -> None:
        for generic in nodes:
            text = " ".join(generic.span.text.split())
            self.declared(generic.name.span, text)
            self.frames[-1][generic.name.text] = _Meaning(generic.name.span, text)

    # --- names -----------------------------------------------------------------

    def declared(self, span: Span, text: str) -> None:
        self.found[span.start] = Reference(None, text, "declaration")

    def refer(self, span: Span, meaning: _Meaning | None) -> None:
        if meaning is not None:
            kind = "item" if meaning.item is not None or meaning.member else "local"
            self.found[span.start] = Reference(meaning.span, meaning.text, kind)

    def local(self, ident: tree.Ident, type: Type | None) -> None:
        text = f"{ident.text}: {type}" if type is not None else ident.text
        self.declared(ident.span, text)
        self.frames[-1][ident.text] = _Meaning(ident.span, text, type=type)

    def look(self, name: str) -> _Meaning | None:
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        if self.block is not None:
            found = self.in_block(self.block, name)
            if found is not None:
                return found
        if (decl := self.scope.items.get(name)) is not None:
            return self.of_item(decl)
        imported = self.scope.imports.get(name)
        if isinstance(imported, Import):
            if isinstance(imported.target, ModuleAlias):
                module = imported.target.module
                start = Span(module.file.source, 0, 0)
                return _Meaning(start, f"module {module.id}", module=module)
            if imported.target is not None:
                return self.of_item(imported.target)
        return None

    def of_item(self, decl: Decl | ModuleAlias) -> _Meaning:
        if isinstance(decl, ModuleAlias):
            start = Span(decl.module.file.source, 0, 0)
            return _Meaning(start, f"module {decl.module.id}", module=decl.module)
        block = decl if isinstance(decl, BlockDecl) else None
        return _Meaning(decl.span, signature(decl.node), block=block, item=decl)

    def in_block(self, block: BlockDecl, name: str) -> _Meaning | None:
        if (method := block.methods.get(name)) is not None:
            return _Meaning(method.span, signature(method.node), item=method)
        if (member := self.checker.members(block).get(name)) is not None:
            below = (
                self.checker.blocks.get(member.type.id)
                if isinstance(member.type, BlockRef)
                else None
            )
            type = None if isinstance(member.type, BlockRef) else member.type
            return _Meaning(member.node.name.span, signature(member.node), block=below, type=type)
        return None

    # --- bodies -----------------------------------------------------------------

    def body(self, statements: list[tree.Stmt]) -> None:
        self.frames.append({})
        for statement in statements:
            self.statement(statement)
        self.frames.pop()

    def statement(self, node: tree.Stmt) -> None:
        match node:
            case tree.Let(names=names, type=stated, value=value):
                if stated is not None:
                    self.visit(stated)
                self.value_of_let(value)
                if len(names) == 1 and not node.tuple:
                    self.local(names[0], self.type_of(value))
                else:
                    types = getattr(self.type_of(value), "items", ())
                    for position, ident in enumerate(names):
                        self.local(ident, types[position] if position < len(types) else None)
            case tree.LetIndexed(name=name, indices=indices, value=value):
                self.frames.append({})
                for binder in indices:
                    self.index(binder)
                self.visit(value)
                self.frames.pop()
                self.local(name, self.types.get((node.span.start, node.span.end)))
            case tree.Var(name=name, value=value):
                self.visit(value)
                self.local(name, self.type_of(value))
            case tree.StaticFor(name=name, start=start, stop=stop, body=body):
                array = self.visit(start)
                if stop is not None:
                    self.visit(stop)
                self.frames.append({})
                if stop is None and array is not None and array.block is not None:
                    text = f"{name.text}: {array.block.name}"
                    self.declared(name.span, text)
                    self.frames[-1][name.text] = _Meaning(name.span, text, block=array.block)
                else:
                    self.local(name, None)
                self.body(body)
                self.frames.pop()
            case tree.For(name=name, start=start, stop=stop, body=body):
                self.loop(name, start, stop, body)
            case tree.While(condition=condition, body=body):
                self.visit(condition)
                self.body(body)
            case _:
                self.children(node)

    def value_of_let(self, value: tree.Expr) -> None:
        if isinstance(value, tree.ForExpr):
            self.loop(value.name, value.start, value.stop, value.body)
        else:
            self.visit(value)

    def loop(
        self, name: tree.Ident, start: tree.Expr, stop: tree.Expr, body: list[tree.Stmt]
    ) -> None:
        self.visit(start)
        self.visit(stop)
        self.frames.append({})
        self.local(name, None)
        self.body(body)
        self.frames.pop()

    def index(self, binder: tree.IndexBinder) -> None:
        text = f"index {'*' if binder.pack else ''}{binder.name}"
        at = binder.span.end - len(binder.name)
        span = Span(binder.span.source, at, binder.span.end)
        self.declared(span, text)
        self.frames[-1][binder.name] = _Meaning(span, text)

    def type_of(self, node: tree.Expr) -> Type | None:
        while isinstance(node, tree.Paren):
            node = node.inner
        if (found := self.types.get((node.span.start, node.span.end))) is not None:
            return found
        if isinstance(node, tree.Name):
            meaning = self.look(node.text)
            return meaning.type if meaning is not None else None
        return None

    def visit(self, node: tree.Node) -> _Meaning | None:
        match node:
            case tree.Name(text=text):
                meaning = self.look(text)
                self.refer(node.span, meaning)
                return meaning
            case tree.PackExpr(name=name):
                meaning = self.look(name)
                at = node.span.end - len(name)
                self.refer(Span(node.span.source, at, node.span.end), meaning)
            case tree.Member(object=owner, name=ident):
                meaning = self.within(self.visit(owner), ident.text, owner)
                self.refer(ident.span, meaning)
                return meaning
            case tree.NamedType(path=path, generics=generics):
                found = self.look(path[0].text)
                self.refer(path[0].span, found)
                for ident in path[1:]:
                    found = self.within(found, ident.text, None)
                    self.refer(ident.span, found)
                for argument in generics or []:
                    self.visit(argument)
                return found
            case tree.Call(callee=callee, generics=generics, arguments=arguments):
                self.visit(callee)
                name_span = callee.name.span if isinstance(callee, tree.Member) else callee.span
                known = self.found.get(name_span.start)
                result = self.types.get((node.span.start, node.span.end))
                if result is not None:
                    text = f"{known.text}\n" if known is not None else ""
                    target = known.target if known is not None else None
                    kind = known.kind if known is not None else "plain"
                    self.found[name_span.start] = Reference(target, f"{text}here: {result}", kind)
                for part in [*(generics or []), *(a.value for a in arguments)]:
                    self.visit(part)
            case tree.Index(object=owner):
                meaning = self.visit(owner)
                for item in node.items:
                    self.visit(item)
                # An element of an array of blocks is the block.
                return meaning if meaning is not None and meaning.block is not None else None
            case tree.Reduce(indices=indices, body=body):
                self.frames.append({})
                for binder in indices:
                    self.index(binder)
                self.visit(body)
                self.frames.pop()
            case tree.Match(subject=subject, arms=arms):
                meaning = self.visit(subject)
                inside = self.types.get((-node.span.start, -node.span.end))
                for arm in arms:
                    self.frames.append({})
                    if isinstance(arm.pattern, tree.SomePattern):
                        self.local(arm.pattern.name, inside)
                        if meaning is not None and meaning.block is not None:
                            self.frames[-1][arm.pattern.name.text].block = meaning.block
                    elif isinstance(arm.pattern, tree.VariantPattern):
                        self.refer(arm.pattern.path[0].span, self.look(arm.pattern.path[0].text))
                    self.visit(arm.body)
                    self.frames.pop()
            case tree.Paren(inner=inner):
                return self.visit(inner)
            case tree.Ident() | tree.IndexBinder():
                pass
            case tree.Stmt():
                self.statement(node)
            case _:
                self.children(node)
        return None

    def within(self, owner: _Meaning | None, name: str, node: tree.Expr | None) -> _Meaning | None:
        """What `owner.name` means."""
        if owner is None:
            return None
        if owner.module is not None:
            decl = owner.module.items.get(name)
            return self.of_item(decl) if decl is not None else None
        if owner.block is not None:
            return self.in_block(owner.block, name)
        if isinstance(owner.item, EnumDecl) and isinstance(owner.item.node, tree.Enum):
            for variant in owner.item.node.variants:
                if variant.text == name:
                    return _Meaning(variant.span, f"{owner.item.name}.{name}")
        if isinstance(owner.type, StructType):
            for field, type in owner.type.fields:
                if field == name:
                    return _Meaning(owner.span, f"{name}: {type}", type=type)
        return None

    def children(self, node: tree.Node) -> None:
        for child in parts(node):
            self.visit(child)


def parts(node: tree.Node) -> Iterator[tree.Node]:
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tree.Node):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, tree.Node))


def signature(node: tree.Node) -> str:
    """A declaration without its body, in one line, and its documentation."""
    text = node.span.text
    if isinstance(node, (tree.Function, tree.Block, tree.Struct, tree.Enum)):
        text = text.partition("{")[0]
    text = " ".join(text.split()).replace("< ", "<").replace("( ", "(").replace(", )", ")")
    text = text.replace(", >", ">")
    if len(text) > _CLIP:
        text = text[: _CLIP - 1] + "…"
    doc = getattr(node, "doc", None)
    return f"{text}\n{doc}" if doc else text
