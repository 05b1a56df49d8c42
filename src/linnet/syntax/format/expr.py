"""Expressions and types as layout."""

from __future__ import annotations

from collections.abc import Callable

from linnet.syntax import tree
from linnet.syntax.format.doc import HARD, LINE, SOFT, Choice, Doc, Group, Indent
from linnet.syntax.format.emit import Emitter, LayoutError
from linnet.syntax.parse_expr import POWER


class ExprLayout(Emitter):
    def expr(self, node: tree.Expr) -> Doc:
        method = _EXPRESSIONS.get(type(node))
        if method is None:
            raise LayoutError(f"no layout for {type(node).__name__}")
        return method(self, node)

    def token(self, node: tree.Node) -> Doc:
        return self.take()

    def some(self, node: tree.Some) -> Doc:
        return [self.take("some"), self.enclosed("(", node.value, ")")]

    def paren(self, node: tree.Paren) -> Doc:
        return self.enclosed("(", node.inner, ")")

    def enclosed(self, opener: str, node: tree.Expr, closer: str) -> Doc:
        """One expression in brackets that take no comma."""
        return self.listed(opener, closer, [node], self.unindented, comma=False)

    def unindented(self, node: tree.Expr) -> Doc:
        return self.binary(node, indent=False) if isinstance(node, tree.Binary) else self.expr(node)

    def group(self, node: tree.TupleExpr) -> Doc:
        return self.listed("(", ")", node.items, self.expr, magic=len(node.items) > 1)

    def shape(self, node: tree.ListExpr) -> Doc:
        return self.listed("[", "]", node.items, self.expr)

    def pack(self, node: tree.Node) -> Doc:
        return [self.take("*"), self.take()]

    def unary(self, node: tree.Unary) -> Doc:
        return [self.take(node.op), self.expr(node.operand)]

    def binary(self, node: tree.Binary, indent: bool = True) -> Doc:
        """A chain of operators that bind alike: all on one line, or a break after each."""
        power = POWER[node.op]
        rest: list[tree.Binary] = []
        head: tree.Expr = node
        while isinstance(head, tree.Binary) and POWER[head.op] == power:
            rest.append(head)
            head = head.left
        first = self.expr(head)
        start = self.at - 1
        parts: list[Doc] = []
        for step in reversed(rest):
            parts += [" ", self.take(step.op), LINE]
            last = self.at
            parts += [*self.lead(), self.expr(step.right)]
        broken = self.trivia.inside(start, last)
        return Group([first, Indent(parts) if indent else parts], broken)

    def member(self, node: tree.Member) -> Doc:
        return [self.expr(node.object), self.take("."), self.take()]

    def call(self, node: tree.Call) -> Doc:
        parts = [self.expr(node.callee)]
        if node.generics is not None:
            parts.append(self.listed("<", ">", node.generics, self.expr))
        parts.append(self.listed("(", ")", node.arguments, self.argument))
        return parts

    def argument(self, node: tree.Argument) -> Doc:
        if node.name is None:
            return self.expr(node.value)
        return [self.take(), " ", self.take("="), " ", self.expr(node.value)]

    def index(self, node: tree.Index) -> Doc:
        return [self.expr(node.object), self.listed("[", "]", node.items, self.index_item)]

    def index_item(self, node: tree.Node) -> Doc:
        if isinstance(node, tree.RestItem):
            return self.take("...")
        if not isinstance(node, tree.SliceItem):
            assert isinstance(node, tree.Expr)
            return self.expr(node)
        parts: list[Doc] = []
        if node.start is not None:
            parts.append(self.expr(node.start))
        if self.next() == "::":
            parts.append(self.take("::"))
        else:
            parts.append(self.take(":"))
            if node.stop is not None:
                parts.append(self.expr(node.stop))
            if self.next() == ":":
                parts.append(self.take(":"))
        if node.step is not None:
            parts.append(self.expr(node.step))
        return parts

    def reduce(self, node: tree.Reduce) -> Doc:
        parts = [self.take(node.kind)]
        if node.accumulator is not None:
            parts += [self.take("<"), self.take(), self.take(">")]
        return [*parts, self.binders(node.indices), " ", self.expr(node.body)]

    def binders(self, indices: list[tree.IndexBinder]) -> Doc:
        return self.listed("[", "]", indices, self.binder)

    def binder(self, node: tree.IndexBinder) -> Doc:
        return self.pack(node) if node.pack else self.take()

    # --- Choices ----------------------------------------------------------------------

    def conditional(self, node: tree.If) -> Doc:
        first = self.at
        parts: list[Doc] = [self.take("if"), " ", self.expr(node.condition), " "]
        parts += self.branch(node.then)
        rest = node.orelse
        while isinstance(rest, tree.If):
            parts += [" ", self.take("else"), " ", self.take("if"), " "]
            parts += [self.expr(rest.condition), " ", *self.branch(rest.then)]
            rest = rest.orelse
        parts += [" ", self.take("else"), " ", *self.branch(rest)]
        return Group(parts, self.trivia.inside(first, self.at - 1))

    def branch(self, node: tree.Expr) -> list[Doc]:
        head = self.take("{")
        inner: list[Doc] = [LINE, *self.lead(), self.expr(node)]
        for comment, _ in self.take_own(self.at):
            inner += [HARD, comment]
        return [head, Indent(inner), LINE, self.take("}")]

    def match(self, node: tree.Match) -> Doc:
        head = [self.take("match"), " ", self.expr(node.subject), " ", self.take("{")]
        return Group([*head, *self.braces(self.sequence(node.arms, self.arm))], broken=True)

    def arm(self, node: tree.Arm) -> Doc:
        pattern: list[Doc]
        if isinstance(node.pattern, tree.SomePattern):
            pattern = [self.take_all("some", "("), self.take(), self.take(")")]
        elif isinstance(node.pattern, tree.VariantPattern):
            pattern = self.dotted(node.pattern.path)
        else:
            pattern = [self.take()]
        parts = [*pattern, " ", self.assigned("=>", node.body)]
        if self.next() == ",":  # needless: each arm has a line of its own
            parts.append(self.dropped())
        return parts

    def dropped(self) -> Doc:
        """The comments of a token that is left out."""
        shown = self.take()
        return [] if isinstance(shown, str) else [part for part in shown if part != ","]  # type: ignore[union-attr]

    def assigned(self, mark: str, value: tree.Expr) -> Doc:
        """`= value`: on the same line, or on the next where that helps."""
        head = self.take(mark)
        at = self.at
        lead = self.lead()
        if lead or self.trivia.trail[at - 1]:
            return [head, Indent([HARD, *lead, self.unindented(value)])]
        shown = self.unindented(value)
        last = value
        while isinstance(last, (tree.Reduce, tree.Unary)):
            last = last.body if isinstance(last, tree.Reduce) else last.operand
        if isinstance(last, (tree.Binary, tree.Name, tree.Member)):
            return Group([head, Indent([LINE, shown])])
        same_line: Doc = [head, " ", shown]
        if isinstance(value, (tree.If, tree.Reduce, tree.Unary)):
            return Choice([same_line, [head, Indent([HARD, shown])], same_line])
        # What opens a bracket itself stays on the line of its `=`.
        return same_line

    # --- Types ------------------------------------------------------------------------

    def type(self, node: tree.TypeExpr) -> Doc:
        if self.next() == "(" and self.trivia.starts[self.at] < node.span.start:
            # Parentheses around one type leave nothing in the tree but its span.
            return [self.take("("), self.type(node), self.take(")")]
        if isinstance(node, tree.TensorType):
            return self.tensor(node)
        if isinstance(node, tree.OptionalType):
            return [self.type(node.inner), self.take("?")]
        if isinstance(node, tree.TupleType):
            return self.listed("(", ")", node.items, self.type, magic=len(node.items) > 1)
        if isinstance(node, tree.ArrayType):
            parts = [self.take("["), self.type(node.element), self.take(";"), " "]
            return [*parts, self.expr(node.length), self.take("]")]
        if not isinstance(node, tree.NamedType):
            raise LayoutError(f"no layout for {type(node).__name__}")
        parts = self.dotted(node.path)
        if node.generics is not None:
            parts.append(self.listed("<", ">", node.generics, self.expr))
        return parts

    def tensor(self, node: tree.TensorType) -> Doc:
        first = self.at
        head = self.take_all("Tensor", "[")
        parts: list[Doc] = [SOFT]
        for index, dim in enumerate(node.dims):
            if index:
                parts += [self.take(","), LINE]
            parts += [*self.lead(), self.expr(dim)]
        if self.next() == ",":
            parts.append(self.dropped())
        parts += [self.take(";"), LINE, *self.lead(), self.type(node.dtype)]
        broken = self.trivia.inside(first + 1, self.at)
        return Group([head, Indent(parts), SOFT, self.take("]")], broken)

    def dotted(self, path: list[tree.Ident]) -> list[Doc]:
        parts = [self.take()]
        for _ in path[1:]:
            parts += [self.take("."), self.take()]
        return parts

    def generics(self, params: list[tree.GenericParam]) -> list[Doc]:
        if self.next() != "<":
            return []
        return [self.listed("<", ">", params, self.generic)]

    def generic(self, node: tree.GenericParam) -> Doc:
        parts = [self.take("*")] if node.pack else []
        parts += [self.take(), self.take(":"), " ", self.take()]
        if node.default is not None:
            parts += [" ", self.take("="), " ", self.expr(node.default)]
        return parts


_EXPRESSIONS: dict[type, Callable[..., Doc]] = {
    tree.Name: ExprLayout.token,
    tree.IntLit: ExprLayout.token,
    tree.FloatLit: ExprLayout.token,
    tree.BoolLit: ExprLayout.token,
    tree.StringLit: ExprLayout.token,
    tree.NoneLit: ExprLayout.token,
    tree.Some: ExprLayout.some,
    tree.Paren: ExprLayout.paren,
    tree.TupleExpr: ExprLayout.group,
    tree.ListExpr: ExprLayout.shape,
    tree.PackExpr: ExprLayout.pack,
    tree.Unary: ExprLayout.unary,
    tree.Binary: ExprLayout.binary,
    tree.Member: ExprLayout.member,
    tree.Call: ExprLayout.call,
    tree.Index: ExprLayout.index,
    tree.If: ExprLayout.conditional,
    tree.Match: ExprLayout.match,
    tree.Reduce: ExprLayout.reduce,
}
