"""Statements and bodies."""

from __future__ import annotations

from linnet.diagnostics.diagnostic import Fix
from linnet.source import Span
from linnet.syntax import tree
from linnet.syntax.cursor import ITEMS, MEMBERS, TOP, Recover
from linnet.syntax.parse_type import TypeParser

# Words that no body holds: one of them there means that a `}` is missing.
_OUTSIDE = (MEMBERS | TOP) - {"const", "type", "extern"}
_ARITHMETIC = frozenset("+-*/%&|^")


class StmtParser(TypeParser):
    def body(self, before: str = "`{`") -> tuple[list[tree.Stmt], Span]:
        """The statements between braces, and the span of the closing one."""
        opener = self.pos
        self.expect("{", before)
        try:
            self.enter()
        except Recover:  # one error for all that is inside
            self.pos = opener
            self.skip_balanced()
            self.depth -= 1
            end = self.span_at(self.pos - 1)
            return [tree.ErrorStmt(self.span_at(opener))], end
        statements: list[tree.Stmt] = []
        while self.texts[self.pos] != "}":
            text = self.texts[self.pos]
            if self.pos == self.last or (text in _OUTSIDE and text not in self.misused):
                self.unexpected("a statement or `}`", opener, here=True)
                self.depth -= 1
                return statements, self.span_at(self.pos - 1)
            statement = self.statement()
            if statement is not None:
                statements.append(statement)
        self.pos += 1
        self.depth -= 1
        return statements, self.span_at(self.pos - 1)

    def statement(self) -> tree.Stmt | None:
        start, depth = self.pos, self.depth
        try:
            match self.texts[start]:
                case "let":
                    return self.let()
                case "return":
                    self.pos += 1
                    value = self.value(start)
                    return tree.Return(self.span_from(self.starts[start]), value)
                case "var":
                    return self.var()
                case "static" | "for":
                    return self.loop()
                case "while":
                    return self.while_loop()
                case "yield":
                    self.pos += 1
                    value = self.value(start)
                    return tree.Yield(self.span_from(self.starts[start]), value)
                case ";":
                    self.semicolon()
                    return None
            return self.assign()
        except Recover:
            self.depth = depth
            self.skip_statement(start)
            return tree.ErrorStmt(self.span_from(self.starts[start]))

    def value(self, start: int, loop: bool = False) -> tree.Expr:
        """The right side of the statement that began at the token `start`. After an
        error an `ErrorExpr`, so that what the statement declares is still known."""
        depth = self.depth
        try:
            if self.texts[self.pos] != "for":
                return self.expr()
            at = self.span_at(self.pos)
            if loop:
                return self.for_expr()
            help = "`for … yield` stands only as the whole right side of a `let`"
            self.unexpected("an expression", help=help)
            self.for_expr()
            return tree.ErrorExpr(at)
        except Recover:
            self.depth = depth
            at = self.span_at(self.pos)
            self.skip_statement(start)
            return tree.ErrorExpr(at)

    def let(self) -> tree.Stmt:
        start = self.pos
        offset = self.starts[start]
        self.pos += 1
        names: list[tree.Ident] = []
        indices: list[tree.IndexBinder] | None = None
        is_tuple = self.texts[self.pos] == "("
        depth = self.depth
        try:
            if is_tuple:
                opener = self.pos
                self.pos += 1
                names = self.listed(opener, lambda: self.name("a name"), recover=False)
            else:
                names = [self.name("a name, or `(` and several")]
                if self.texts[self.pos] == "[":
                    indices = self.binders("the name of an index")
            annotation = self.type() if self.take(":") else None
            self.expect("=")
        except Recover:
            if not names:
                raise
            self.depth = depth
            self.skip_statement(start)
            return tree.Let(
                self.span_from(offset), names, is_tuple, None, tree.ErrorExpr(self.span_at(start))
            )
        value = self.value(start, loop=indices is None)
        span = self.span_from(offset)
        if indices is not None:
            return tree.LetIndexed(span, names[0], indices, annotation, value)
        return tree.Let(span, names, is_tuple, annotation, value)

    def var(self) -> tree.Stmt:
        start = self.pos
        self.pos += 1
        name = self.name("a name")
        depth = self.depth
        annotation: tree.TypeExpr | None = None
        try:
            annotation = self.type() if self.take(":") else None
            self.expect("=")
        except Recover:
            self.depth = depth
            self.skip_statement(start)
            failed = tree.ErrorExpr(self.span_at(start))
            return tree.Var(self.span_from(self.starts[start]), name, None, failed)
        value = self.value(start)
        return tree.Var(self.span_from(self.starts[start]), name, annotation, value)

    def assign(self) -> tree.Stmt:
        """`x = e`. Any expression may stand on the left, for the checker to judge."""
        start = self.pos
        if self.at_name() and self.peek() == "=":
            self.pos += 1
            target: tree.Expr = tree.Name(self.span_at(start), self.texts[start])
        else:
            if not self.at_name() and self.texts[start] not in self.misused:
                self.fail("a statement", help=self.statement_help(), here=True)
            if self.peek() in _ARITHMETIC and self.peek(2) == "=" and self.adjacent(start + 2):
                return self.compound(start)
            target = self.operand()
        if self.texts[self.pos] != "=":
            self.refuse(
                start,
                "E1101",
                "expected a statement, found an expression",
                "its value is not used",
                "there are no expression statements: use `let`, an assignment or `return`",
            )
            raise Recover
        self.pos += 1
        value = self.value(start)
        return tree.Assign(self.span_from(self.starts[start]), target, value)

    def compound(self, start: int) -> tree.Stmt:
        name, operator = self.texts[start], self.peek()
        self.refuse(
            start + 1,
            "E1101",
            f"there is no operator `{operator}=`",
            "not an operator",
            f"write `{name} = {name} {operator} …`",
        )
        self.pos += 3
        self.value(start)
        target = tree.Name(self.span_at(start), name)
        failed = tree.ErrorExpr(self.span_at(start + 1))
        return tree.Assign(self.span_from(self.starts[start]), target, failed)

    def statement_help(self) -> str | None:
        text = self.texts[self.pos]
        if text == "if" or text == "match":
            return f"`{text}` is an expression: give its value to a name with `let`"
        if text in ITEMS:
            return f"`{text}` stands outside functions"
        return None

    def semicolon(self) -> None:
        span = self.span_at(self.pos)
        self.refuse(
            self.pos,
            "E1101",
            "expected a statement, found `;`",
            "not needed",
            "remove it: statements end without semicolons",
            Fix(span, "", "remove the semicolon"),
        )
        self.pos += 1

    # --- Loops ------------------------------------------------------------------------

    def header(self) -> tree.Expr:
        """An expression before a body. After an error, goes on at the body's brace."""
        depth = self.depth
        try:
            return self.expr()
        except Recover:
            self.depth = depth
            at = self.span_at(self.pos)
            while self.texts[self.pos] != "{":
                if self.pos == self.last or self.first_on_line(self.pos):
                    raise
                self.pos += 1
            return tree.ErrorExpr(at)

    def range(self) -> tuple[tree.Ident, tree.Expr, tree.Expr | None]:
        """`for i in a..b`, or `for x in xs` with no stop."""
        self.expect("for")
        name = self.name("a name for the loop's variable")
        self.expect("in")
        first = self.header()
        stop = self.header() if self.take("..") else None
        return name, first, stop

    def counted(self) -> tuple[tree.Ident, tree.Expr, tree.Expr]:
        name, first, stop = self.range()
        if stop is None:
            if isinstance(first, tree.ErrorExpr):
                stop = first
            else:
                self.fail(
                    "`..` and the end of the range", help="only `static for` runs over arrays"
                )
        return name, first, stop

    def loop(self) -> tree.Stmt:
        offset = self.starts[self.pos]
        if self.take("static"):
            name, first, maybe = self.range()
            body, _ = self.body("`..` or `{`" if maybe is None else "`{`")
            return tree.StaticFor(self.span_from(offset), name, first, maybe, body)
        name, first, stop = self.counted()
        body, _ = self.body()
        return tree.For(self.span_from(offset), name, first, stop, body)

    def for_expr(self) -> tree.Expr:
        offset = self.starts[self.pos]
        name, first, stop = self.counted()
        body, _ = self.body()
        return tree.ForExpr(self.span_from(offset), name, first, stop, body)

    def while_loop(self) -> tree.Stmt:
        offset = self.starts[self.pos]
        self.pos += 1
        condition = self.header()
        body, _ = self.body()
        return tree.While(self.span_from(offset), condition, body)
