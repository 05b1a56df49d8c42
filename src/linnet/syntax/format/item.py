"""Statements, items and whole files as layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.syntax import tree
from linnet.syntax.format.doc import HARD, LINE, Doc, Group, Indent
from linnet.syntax.format.emit import LayoutError
from linnet.syntax.format.expr import ExprLayout

# These stand between empty lines.
_TALL = (tree.Function, tree.Block, tree.Struct, tree.Enum)


class ItemLayout(ExprLayout):
    def file(self, node: tree.File) -> Doc:
        parts: list[tree.Node] = [*node.uses, *node.items]
        parts.sort(key=lambda part: part.span.start)
        if node.module is not None:
            parts.insert(0, node.module)
        return self.sequence(parts, self.item, _spaced)

    def item(self, node: tree.Node) -> Doc:
        method = _ITEMS.get(type(node))
        if method is None:
            raise LayoutError(f"no layout for {type(node).__name__}")
        head = [self.take("pub"), " "] if self.next() == "pub" else []
        return [*head, method(self, node)]

    def module(self, node: tree.ModuleDecl) -> Doc:
        return [self.take("module"), " ", *self.dotted(node.path)]

    def use(self, node: tree.Use) -> Doc:
        parts = [self.take("use"), " ", *self.dotted(node.path)]
        if node.names is not None:
            parts += [self.take("::"), self.listed("{", "}", node.names, self.use_name)]
        return parts

    def use_name(self, node: tree.UseName) -> Doc:
        if node.alias is None:
            return self.take()
        return [self.take(), " ", self.take("as"), " ", self.take()]

    def const(self, node: tree.Const) -> Doc:
        parts = [self.take("const"), " ", self.take(), *self.annotation(node.type)]
        return [*parts, " ", self.assigned("=", node.value)]

    def alias(self, node: tree.TypeAlias) -> Doc:
        parts = [self.take("type"), " ", self.take(), *self.generics(node.generics)]
        return [*parts, " ", self.take("="), " ", self.type(node.type)]

    def struct(self, node: tree.Struct) -> Doc:
        parts = [self.take("struct"), " ", self.take(), *self.generics(node.generics), " "]
        return [*parts, self.listed("{", "}", node.fields, self.field, edge=LINE)]

    def enum(self, node: tree.Enum) -> Doc:
        parts = [self.take("enum"), " ", self.take(), " "]
        return [*parts, self.listed("{", "}", node.variants, self.token, edge=LINE)]

    def field(self, node: tree.Field) -> Doc:
        return [self.take(), *self.annotation(node.type)]

    def annotation(self, node: tree.TypeExpr | None) -> list[Doc]:
        return [] if node is None else [self.take(":"), " ", self.type(node)]

    # --- Functions and blocks ---------------------------------------------------------

    def function(self, node: tree.Function) -> Doc:
        parts = [self.take(node.kind), " ", self.take(), *self.generics(node.generics)]
        parts.append(self.listed("(", ")", node.parameters, self.parameter, whole=True))
        if node.result is not None:
            parts += [" ", self.take("->"), " ", self.type(node.result)]
        return [*parts, *self.where(node.where), *self.body(node.body)]

    def parameter(self, node: tree.Parameter) -> Doc:
        parts = [self.take(), *self.annotation(node.type)]
        if node.default is not None:
            parts += [" ", self.take("="), " ", self.expr(node.default)]
        return parts

    def where(self, clauses: list[tree.Expr]) -> list[Doc]:
        """What stands before the brace of a body: a space, or the clauses on lines of their
        own, one on the line of its `where` if it fits."""
        if self.next() != "where":
            return [" "]
        at = self.at
        head = self.take("where")
        parts: list[Doc] = []
        for index, clause in enumerate(clauses):
            parts += [LINE, *self.lead(), self.expr(clause)]
            if self.next() == ",":
                parts.append(self.take(",") if index + 1 < len(clauses) else self.dropped())
        if not parts:
            return [" ", head, " "]
        broken = len(clauses) > 1 or self.trivia.inside(at, self.at)
        for comment, _ in self.take_own(self.at):
            parts += [HARD, comment]
        # The brace belongs to the group: it stands on a line of its own where that breaks.
        return [HARD, Group([head, Indent(parts), LINE, self.take("{")], broken)]

    def body(self, statements: list[tree.Stmt]) -> list[Doc]:
        head = [] if self.texts[self.at - 1] == "{" else [self.take("{")]
        return [*head, *self.braces(self.sequence(statements, self.statement))]

    def block(self, node: tree.Block) -> Doc:
        parts = [self.take("block"), " ", self.take(), *self.generics(node.generics)]
        parts += self.where(node.where)
        if self.texts[self.at - 1] != "{":
            parts.append(self.take("{"))
        inner: list[tree.Node] = [*node.members, *node.functions]
        inner.sort(key=lambda part: part.span.start)
        return [*parts, *self.braces(self.sequence(inner, self.item, _spaced))]

    def member_decl(self, node: tree.MemberDecl) -> Doc:
        parts = [self.take(node.kind), " ", self.take(), *self.annotation(node.type)]
        if node.default is not None:
            parts += [" ", self.take("="), " ", self.expr(node.default)]
        return parts

    # --- Statements -------------------------------------------------------------------

    def statement(self, node: tree.Stmt) -> Doc:
        method = _STATEMENTS.get(type(node))
        if method is None:
            raise LayoutError(f"no layout for {type(node).__name__}")
        return method(self, node)

    def let(self, node: tree.Let) -> Doc:
        head = [self.take("let"), " "]
        if node.tuple:
            magic = len(node.names) > 1
            head.append(self.listed("(", ")", node.names, self.token, magic=magic))
        else:
            head.append(self.take())
        head += self.annotation(node.type)
        if not isinstance(node.value, tree.ForExpr):
            return [*head, " ", self.assigned("=", node.value)]
        return [*head, " ", self.take("="), " ", *self.counted(node.value)]

    def let_indexed(self, node: tree.LetIndexed) -> Doc:
        head = [self.take("let"), " ", self.take(), self.binders(node.indices)]
        return [*head, *self.annotation(node.type), " ", self.assigned("=", node.value)]

    def var(self, node: tree.Var) -> Doc:
        head = [self.take("var"), " ", self.take(), *self.annotation(node.type)]
        return [*head, " ", self.assigned("=", node.value)]

    def assign(self, node: tree.Assign) -> Doc:
        return [self.expr(node.target), " ", self.assigned("=", node.value)]

    def gives(self, node: tree.Return | tree.Yield) -> Doc:
        return [self.take(), " ", self.expr(node.value)]

    def static_for(self, node: tree.StaticFor) -> Doc:
        return [self.take("static"), " ", *self.counted(node)]

    def counted(self, node: tree.StaticFor | tree.For | tree.ForExpr) -> list[Doc]:
        head = [self.take("for"), " ", self.take(), " ", self.take("in"), " "]
        head.append(self.expr(node.start))
        if node.stop is not None:
            head += [self.take(".."), self.expr(node.stop)]
        return [*head, " ", *self.body(node.body)]

    def loop(self, node: tree.For) -> Doc:
        return self.counted(node)

    def while_loop(self, node: tree.While) -> Doc:
        head = [self.take("while"), " ", self.expr(node.condition), " "]
        return [*head, *self.body(node.body)]


def _spaced(before: tree.Node, after: tree.Node) -> bool:
    """Whether an empty line stands between two items or members."""
    if isinstance(before, _TALL) or isinstance(after, _TALL):
        return True
    if isinstance(before, tree.ModuleDecl):
        return True
    return isinstance(before, tree.Use) and not isinstance(after, tree.Use)


_ITEMS: dict[type, Callable[[ItemLayout, Any], Doc]] = {
    tree.ModuleDecl: ItemLayout.module,
    tree.Use: ItemLayout.use,
    tree.Const: ItemLayout.const,
    tree.TypeAlias: ItemLayout.alias,
    tree.Struct: ItemLayout.struct,
    tree.Enum: ItemLayout.enum,
    tree.Function: ItemLayout.function,
    tree.Block: ItemLayout.block,
    tree.MemberDecl: ItemLayout.member_decl,
}
_STATEMENTS: dict[type, Callable[[ItemLayout, Any], Doc]] = {
    tree.Let: ItemLayout.let,
    tree.LetIndexed: ItemLayout.let_indexed,
    tree.Var: ItemLayout.var,
    tree.Assign: ItemLayout.assign,
    tree.Return: ItemLayout.gives,
    tree.Yield: ItemLayout.gives,
    tree.StaticFor: ItemLayout.static_for,
    tree.For: ItemLayout.loop,
    tree.While: ItemLayout.while_loop,
}
