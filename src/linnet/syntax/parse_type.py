"""Types, and the generics and `where` clauses of declarations."""

from __future__ import annotations

from linnet.syntax import tree
from linnet.syntax.cursor import STARTERS, Recover
from linnet.syntax.parse_expr import ExprParser


class TypeParser(ExprParser):
    def type(self) -> tree.TypeExpr:
        self.enter()
        start = self.starts[self.pos]
        text = self.texts[self.pos]
        result: tree.TypeExpr
        if text == "Tensor":
            result = self.tensor_type()
        elif text == "[":
            opener = self.pos
            self.pos += 1
            element = self.type()
            self.expect(";", "`;` and the length of the array")
            length = self.expr()
            self.close(opener)
            result = tree.ArrayType(self.span_from(start), element, length)
        elif text == "(":
            result = self.tuple_type()
        elif self.at_name():
            result = self.named_type()
        else:
            self.fail("a type")
        height = 1
        while self.take("?"):
            result = tree.OptionalType(self.span_from(start), result)
            height += 1
            if height + self.depth > 100:
                self.too_deep("too many `?`")
        self.depth -= 1
        return result

    def tensor_type(self) -> tree.TypeExpr:
        start = self.starts[self.pos]
        self.pos += 1
        opener = self.pos
        self.expect("[", "`[` and the dimensions of the tensor")
        dims: list[tree.Expr] = []
        while self.texts[self.pos] != ";":
            dims.append(self.shape_item())
            if self.texts[self.pos] == "]":
                self.fail(
                    "`;` and an element type",
                    opener,
                    "a tensor type names its element type: `Tensor[B, H; f32]`",
                )
            if not self.take(",") and self.texts[self.pos] != ";":
                self.fail("`,` or `;`", opener)
        self.pos += 1
        dtype = self.type()
        self.close(opener)
        return tree.TensorType(self.span_from(start), dims, dtype)

    def tuple_type(self) -> tree.TypeExpr:
        opener = self.pos
        self.pos += 1
        if self.take(")"):
            return tree.TupleType(self.span_from(self.starts[opener]), [])
        first = self.type()
        if self.texts[self.pos] != ",":
            self.close(opener, "`,` or ")
            return first
        self.pos += 1
        items = [first, *self.listed(opener, self.type, recover=False)]
        return tree.TupleType(self.span_from(self.starts[opener]), items)

    def named_type(self) -> tree.TypeExpr:
        path = [self.name("a type")]
        while self.take("."):
            path.append(self.name("a type"))
        generics = None
        if self.texts[self.pos] == "<":
            opener = self.pos
            self.pos += 1
            generics = self.listed(opener, self.generic_argument, recover=False)
        return tree.NamedType(self.span_from(path[0].span.start), path, generics)

    # --- Generics and where -----------------------------------------------------------

    def generics(self) -> list[tree.GenericParam]:
        """`<N: Dim, *S: Shape, T: Float = bf16>`, or nothing."""
        if self.texts[self.pos] != "<":
            return []
        opener = self.pos
        self.pos += 1
        return self.listed(opener, self.generic)

    def generic(self) -> tree.GenericParam:
        start = self.starts[self.pos]
        pack = self.take("*")
        name = self.name("the name of a generic")
        if not self.take(":"):
            self.fail(
                "`:` and a kind",
                help="kinds are `Dim`, `Shape`, `DType`, `Numeric`, `Integer` and `Float`",
            )
        kind = self.name("a kind")
        default = self.generic_argument() if self.take("=") else None
        return tree.GenericParam(self.span_from(start), name, pack, kind.text, default)

    def where(self) -> list[tree.Expr]:
        """The clauses. One that cannot be parsed stands as an `ErrorExpr`."""
        clauses: list[tree.Expr] = []
        if not self.take("where"):
            return clauses
        while self.texts[self.pos] != "{":
            start, depth = self.pos, self.depth
            try:
                clauses.append(self.expr())
                if self.take(","):
                    continue
                if self.texts[self.pos] == "{":
                    break
                self.fail("`,` or `{`")
            except Recover:
                self.depth = depth
                clauses.append(tree.ErrorExpr(self.span_at(start)))
                if not self.skip_clause():
                    raise
                self.take(",")
        return clauses

    def skip_clause(self) -> bool:
        """After an error in a clause: to the next comma or `{`."""
        start = self.pos
        while self.pos < self.last and self.texts[self.pos] != "}":
            text = self.texts[self.pos]
            if text in ",{":
                return True
            if text in STARTERS and self.first_on_line(self.pos):
                break
            self.pos += 1
        self.pos = start
        return False
