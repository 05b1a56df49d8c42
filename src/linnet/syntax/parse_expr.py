"""Expressions: precedence climbing over operands, each with its postfixes."""

from __future__ import annotations

from linnet.source import Span
from linnet.syntax import tree
from linnet.syntax.cursor import CLOSERS, MAX_HEIGHT, MAX_NESTING, STARTERS, Cursor, Recover
from linnet.syntax.lexer import (
    INT_LIMIT,
    RESERVED,
    escapes_known,
    float_value,
    int_value,
    string_value,
)

POWER = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!="), 3),
    **dict.fromkeys(("<", "<=", ">", ">="), 4),
    "|": 5,
    "^": 6,
    "&": 7,
    **dict.fromkeys(("+", "-"), 8),
    **dict.fromkeys(("*", "/", "%"), 9),
}
# Generic arguments and defaults stop before a comparison: `>` ends their list.
GENERIC_POWER = POWER["|"]
REDUCTIONS = frozenset(["sum", "prod", "max", "min", "any", "all"])
_PREFIXES = frozenset("!-+")
_FOLLOWS = CLOSERS | {",", "..", ":", ";", ".", "?", "=>", "{", ""}
_CONSTANTS = frozenset(["true", "false", "none"])


class ExprParser(Cursor):
    def expr(self, floor: int = 0) -> tree.Expr:
        """An expression of operators that bind at least as tightly as `floor`."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.too_deep(f"more than {MAX_NESTING} levels of nesting")
        texts = self.texts
        left = self.operand()
        height = self.height
        while (power := POWER.get(texts[self.pos], -1)) >= floor and power > 0:
            at = self.pos
            self.pos = at + 1
            right = self.expr(power + 1)
            height = max(height, self.height) + 1
            if height > MAX_HEIGHT:
                self.too_deep(f"more than {MAX_HEIGHT} operations inside one another")
            span = Span(self.source, left.span.start, right.span.end)
            left = tree.Binary(span, texts[at], self.span_at(at), left, right)
        self.height = height
        self.depth -= 1
        return left

    def operand(self) -> tree.Expr:
        """Prefix operators, a primary expression and its postfixes."""
        start = self.pos
        texts = self.texts
        while texts[self.pos] in _PREFIXES:
            self.pos += 1
        prefixes = self.pos - start
        self.height = 1
        result = self.primary(prefixes > 0 and texts[self.pos - 1] == "-")
        height = self.height
        while True:
            text = texts[self.pos]
            if text == "(":
                result = self.call(result, None)
            elif text == "[":
                result = self.index(result)
            elif text == ".":
                result = self.member(result)
            elif text == "<" and isinstance(result, (tree.Name, tree.Member)):
                generics = self.generic_call()
                if generics is None:
                    break
                height = max(height, self.height)
                result = self.call(result, generics)
            else:
                break
            height = max(height, self.height) + 1
            if height > MAX_HEIGHT:
                self.too_deep(f"more than {MAX_HEIGHT} operations inside one another")
        if prefixes:
            height += prefixes
            if height > MAX_HEIGHT:
                self.pos = start
                self.too_deep(f"more than {MAX_HEIGHT} operations inside one another")
            for at in range(start + prefixes - 1, start - 1, -1):
                span = Span(self.source, self.starts[at], result.span.end)
                result = tree.Unary(span, texts[at], result)
        self.height = height
        return result

    def primary(self, negative: bool = False) -> tree.Expr:
        pos = self.pos
        kind = self.kinds[pos]
        text = self.texts[pos]
        if kind == "name":
            if text in REDUCTIONS and self.reduction_ahead():
                return self.reduce()
            self.pos = pos + 1
            return tree.Name(Span(self.source, self.starts[pos], self.ends[pos]), text)
        if kind == "int":
            return self.integer(negative)
        if kind == "float":
            self.pos = pos + 1
            return tree.FloatLit(self.span_at(pos), float_value(text))
        if text == "(":
            return self.parenthesis()
        if text == "[":
            return self.shape()
        if kind == "keyword":
            return self.keyword(text)
        if kind == "string":
            self.pos = pos + 1
            if not escapes_known(text):  # already reported
                return tree.ErrorExpr(self.span_at(pos))
            return tree.StringLit(self.span_at(pos), string_value(text))
        if kind == "error":  # a bad number or string, already reported
            self.pos = pos + 1
            return tree.ErrorExpr(self.span_at(pos))
        if text == "*":
            self.fail("an expression", help="a pack `*s` stands in a shape or an index list only")
        self.fail("an expression")

    def integer(self, negative: bool) -> tree.Expr:
        pos = self.pos
        value = int_value(self.texts[pos])
        self.pos = pos + 1
        if value < INT_LIMIT or (value == INT_LIMIT and negative):
            return tree.IntLit(self.span_at(pos), value)
        if value == INT_LIMIT:  # larger ones have been reported with the tokens
            self.refuse(
                pos,
                "E1005",
                "this integer does not fit `i64`",
                "larger than 9223372036854775807",
                "only with a minus before it may it be so large",
            )
        return tree.ErrorExpr(self.span_at(pos))

    def keyword(self, text: str) -> tree.Expr:
        pos = self.pos
        span = self.span_at(pos)
        if text in _CONSTANTS:
            self.pos = pos + 1
            return tree.NoneLit(span) if text == "none" else tree.BoolLit(span, text == "true")
        if text in self.misused and self.ends_operand(pos + 1):
            self.pos = pos + 1
            return tree.Name(span, text)
        if text == "some":
            self.pos = opener = pos + 1
            self.expect("(")
            value = self.expr()
            self.close(opener)
            return tree.Some(self.span_from(span.start), value)
        if text == "if":
            return self.conditional()
        if text == "match":
            return self.match()
        if text in self.misused or (text in RESERVED and self.peek() == "."):
            self.pos = pos + 1  # a module's name, such as `random` in `random.normal(…)`
            return tree.Name(span, text)
        if text in RESERVED:
            self.reserved(pos)
            self.misused.discard(text)
            self.pos = pos + 1
            return tree.ErrorExpr(span)
        if text == "for":
            help = "`for … yield` stands only as the whole right side of a `let`"
        elif text == "self":
            help = "inside a block its members and methods are bare names"
        else:
            help = None
        self.fail("an expression", help=help)

    def ends_operand(self, pos: int) -> bool:
        """Whether a token can follow an operand better than begin one."""
        text = self.texts[pos]
        return text in POWER or text in _FOLLOWS or text in STARTERS

    def parenthesis(self) -> tree.Expr:
        opener = self.pos
        start = self.starts[opener]
        self.pos += 1
        if self.take(")"):
            return tree.TupleExpr(self.span_from(start), [])
        first = self.expr()
        if self.texts[self.pos] != ",":
            self.close(opener, "`,` or ")
            self.height += 1
            return tree.Paren(self.span_from(start), first)
        self.pos += 1
        height = self.height
        items = [first, *self.listed(opener, self.expr, recover=False)]
        self.height = max(height, self.height) + 1
        return tree.TupleExpr(self.span_from(start), items)

    def shape(self) -> tree.Expr:
        opener = self.pos
        self.pos += 1
        items = self.tall_list(opener, self.shape_item)
        return tree.ListExpr(self.span_from(self.starts[opener]), items)

    def shape_item(self) -> tree.Expr:
        return self.pack() if self.texts[self.pos] == "*" else self.expr()

    def pack(self) -> tree.Expr:
        start = self.starts[self.pos]
        self.pos += 1
        name = self.name("the name of a pack")
        return tree.PackExpr(self.span_from(start), name.text)

    def tall_list(self, opener, element):  # type: ignore[no-untyped-def]
        """`listed` without recovery; `height` becomes one more than the tallest element's."""
        height = 1

        def measured():  # type: ignore[no-untyped-def]
            nonlocal height
            self.height = 1
            item = element()
            height = max(height, self.height)
            return item

        items = self.listed(opener, measured, recover=False)
        self.height = height + 1
        return items

    # --- Postfixes --------------------------------------------------------------------

    def member(self, object: tree.Expr) -> tree.Expr:
        self.pos += 1
        pos = self.pos
        # A reserved word can only be a module's name; it stands right after its dot.
        if self.kinds[pos] == "keyword" and self.adjacent(pos):
            self.pos = pos + 1
            name = tree.Ident(self.span_at(pos), self.texts[pos])
        else:
            name = self.name("a name after `.`")
        return tree.Member(Span(self.source, object.span.start, name.span.end), object, name)

    def call(self, callee: tree.Expr, generics: list[tree.Expr] | None) -> tree.Expr:
        opener = self.pos
        self.pos += 1
        arguments = self.tall_list(opener, self.argument)
        return tree.Call(self.span_from(callee.span.start), callee, generics, arguments)

    def argument(self) -> tree.Argument:
        pos = self.pos
        if self.texts[min(pos + 1, self.last)] == "=" and self.kinds[pos] in ("name", "keyword"):
            name = self.name("a parameter's name")
            self.pos += 1
            value = self.expr()
            return tree.Argument(self.span_from(name.span.start), name, value)
        value = self.expr()
        return tree.Argument(value.span, None, value)

    def generic_call(self) -> list[tree.Expr] | None:
        """At `<`: the generic arguments of a call, if that is what stands here.

        What fails once fails always (whether it is a list depends on nothing before
        it), so each position is tried once and the time stays linear.
        """
        start = self.pos
        if start in self.not_generic:
            return None
        depth, height = self.depth, self.height
        self.guessing += 1
        try:
            self.pos += 1
            generics = self.tall_list(start, self.generic_argument)
            if generics and self.texts[self.pos] == "(":
                return list(generics)
        except Recover:
            pass
        finally:
            self.guessing -= 1
        self.pos, self.depth, self.height = start, depth, height
        self.not_generic.add(start)
        return None

    def generic_argument(self) -> tree.Expr:
        return self.expr(GENERIC_POWER)

    def index(self, object: tree.Expr) -> tree.Expr:
        opener = self.pos
        self.pos += 1
        if self.texts[self.pos] == "]":
            self.fail("an index")
        items = self.tall_list(opener, self.index_item)
        return tree.Index(self.span_from(object.span.start), object, items)

    def index_item(self) -> tree.Node:
        pos = self.pos
        text = self.texts[pos]
        if text == "*":
            return self.pack()
        if text == "...":
            self.pos = pos + 1
            return tree.RestItem(self.span_at(pos))
        first = None if text in (":", "::") else self.expr()
        text = self.texts[self.pos]
        if first is not None and text not in (":", "::"):
            return first
        stop = step = None
        if text == "::":  # the two colons of `a::step` are one token
            self.pos += 1
            step = self.slice_part()
        else:
            self.pos += 1
            stop = self.slice_part()
            if self.take(":"):
                step = self.slice_part()
        return tree.SliceItem(self.span_from(self.starts[pos]), first, stop, step)

    def slice_part(self) -> tree.Expr | None:
        return None if self.texts[self.pos] in (":", ",", "]") else self.expr()

    # --- Reductions -------------------------------------------------------------------

    def reduction_ahead(self) -> bool:
        if self.peek() == "[":
            return True
        return (
            self.peek() == "<"
            and self.peek(3) == ">"
            and self.peek(4) == "["
            and self.kinds[self.pos + 2] == "name"
        )

    def reduce(self) -> tree.Expr:
        start = self.pos
        accumulator: tree.TypeExpr | None = None
        self.pos += 1
        if self.take("<"):
            name = self.name("a dtype")
            accumulator = tree.NamedType(name.span, [name], None)
            self.pos += 1
        indices = self.binders("an index for the reduction to run over")
        body = self.expr()
        self.height += 1
        span = Span(self.source, self.starts[start], body.span.end)
        return tree.Reduce(span, self.texts[start], accumulator, indices, body)

    def binders(self, what: str) -> list[tree.IndexBinder]:
        """`[m, *s]`: the names that index notation binds."""
        opener = self.pos
        self.pos += 1
        if self.texts[self.pos] == "]":
            self.fail(what)

        def binder() -> tree.IndexBinder:
            start = self.starts[self.pos]
            pack = self.take("*")
            name = self.name(what)
            return tree.IndexBinder(self.span_from(start), name.text, pack)

        return self.listed(opener, binder, recover=False)

    # --- Choices ----------------------------------------------------------------------

    def conditional(self) -> tree.Expr:
        start = self.pos
        self.enter()
        self.pos += 1
        condition = self.expr()
        height = self.height
        then = self.branch()
        height = max(height, self.height)
        if not self.take("else"):
            self.fail("`else`", help="an `if` is an expression: it needs a value in both cases")
        orelse = self.conditional() if self.texts[self.pos] == "if" else self.branch()
        self.height = max(height, self.height) + 1
        self.depth -= 1
        return tree.If(self.span_from(self.starts[start]), condition, then, orelse)

    def branch(self) -> tree.Expr:
        opener = self.pos
        self.expect("{")
        if self.texts[self.pos] in ("let", "var", "return", "}"):
            self.unexpected(
                "an expression", help="each branch is one expression, without statements"
            )
            self.pos = opener
            self.skip_balanced()
            if self.texts[self.pos - 1] != "}":
                raise Recover
            self.height = 1
            return tree.ErrorExpr(self.span_at(opener))
        value = self.expr()
        self.close(opener)
        return value

    def match(self) -> tree.Expr:
        start = self.pos
        self.pos += 1
        subject = self.expr()
        height = self.height
        opener = self.pos
        self.expect("{")
        arms: list[tree.Arm] = []
        while self.texts[self.pos] != "}":
            if self.pos == self.last:
                self.close(opener, "another arm or ")
            pattern = self.pattern()
            self.expect("=>")
            body = self.expr()
            height = max(height, self.height)
            arms.append(tree.Arm(self.span_from(pattern.span.start), pattern, body))
            self.take(",")
        self.pos += 1
        self.height = height + 1
        return tree.Match(self.span_from(self.starts[start]), subject, arms)

    def pattern(self) -> tree.Pattern:
        pos = self.pos
        start = self.starts[pos]
        if self.take("none"):
            return tree.NonePattern(self.span_at(pos))
        if self.take("some"):
            opener = self.pos
            self.expect("(")
            name = self.name("a name for the value")
            self.close(opener)
            return tree.SomePattern(self.span_from(start), name)
        if not self.at_name():
            self.fail("a pattern", help="patterns are `some(x)`, `none`, `Name.Variant` and `_`")
        if self.take("_"):
            return tree.WildcardPattern(self.span_at(pos))
        path = [self.name("a variant")]
        while self.take("."):
            path.append(self.name("a variant"))
        return tree.VariantPattern(self.span_from(start), path)
