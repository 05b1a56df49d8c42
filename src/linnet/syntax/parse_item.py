"""Items: what stands in a file, and what stands in a block."""

from __future__ import annotations

from linnet.source import Span
from linnet.syntax import tree
from linnet.syntax.cursor import CLOSERS, FUNCTIONS, MEMBERS, OPENERS, STARTERS, TOP, Recover
from linnet.syntax.parse_stmt import StmtParser

_IN_BLOCK = MEMBERS | FUNCTIONS | {"pub"}
_AFTER_BLOCK = frozenset(["block", "struct", "enum", "use", "module"])


class ItemParser(StmtParser):
    def file(self) -> tree.File:
        module: tree.ModuleDecl | None = None
        uses: list[tree.Use] = []
        items: list[tree.Item] = []
        missing = self.texts[0] != "module"
        if missing:
            self.refuse(
                0,
                "E1102",
                "a file declares its module first",
                "expected `module` before this" if self.last else "the file is empty",
                "begin the file with `module name`",
            )
        while self.pos < self.last:
            start = self.pos
            try:
                if self.texts[start] == "module":
                    found = self.module()
                    if module is None and (start == 0 or missing):
                        module, missing = found, False
                    else:
                        self.second_module(start)
                    continue
                public = self.take("pub")
                if self.texts[self.pos] == "use":
                    if public:
                        self.no_re_export(start)
                    uses.append(self.use(public))
                else:
                    item = self.item(start, public)
                    if item is not None:
                        items.append(item)
            except Recover:
                self.depth = 0
                self.skip_item(start, TOP)
        return tree.File(Span(self.source, 0, len(self.source.text)), module, uses, items)

    def no_re_export(self, start: int) -> None:
        self.refuse(
            start,
            "E1103",
            "`pub use` is not supported yet",
            "reserved for a later version of the language",
            "remove `pub`; each module imports an item from where it is declared",
        )

    def second_module(self, start: int) -> None:
        self.refuse(
            start,
            "E1101",
            "a file declares one module",
            "a second `module`",
            "remove it, or move what follows to a file of its own",
        )

    def module(self) -> tree.ModuleDecl:
        offset = self.starts[self.pos]
        self.pos += 1
        path = self.path("the module's path")
        return tree.ModuleDecl(self.span_from(offset), path)

    def path(self, what: str) -> list[tree.Ident]:
        """A dotted path. Its root is a name or `crate`; further on any word may stand."""
        if self.texts[self.pos] in ("self", "super"):
            self.fail(what, help="a path begins with `std`, `crate` or the name of a dependency")
        if self.texts[self.pos] == "crate":
            root = tree.Ident(self.span_at(self.pos), "crate")
            self.pos += 1
        else:
            root = self.name(what)
        path = [root]
        while self.texts[self.pos] == "." and self.texts[self.pos + 1] != "{":
            self.pos += 1
            path.append(self.segment())
        return path

    def segment(self, what: str = "a name after `.`") -> tree.Ident:
        pos = self.pos
        if self.kinds[pos] == "keyword" and not self.first_on_line(pos):
            self.pos = pos + 1
            return tree.Ident(self.span_at(pos), self.texts[pos])
        return self.name(what)

    def use(self, public: bool) -> tree.Use:
        offset = self.starts[self.pos]
        self.pos += 1
        path = self.path("a path")
        names = None
        if self.texts[self.pos] == ".":  # `path` leaves one that stands before `{`
            self.refuse(
                self.pos,
                "E1101",
                "expected `::`, found `.`",
                "expected `::`",
                help="names are imported with `use a.b::{c}`",
            )
            self.pos += 2
            names = self.listed(self.pos - 1, self.use_name)
        elif self.take("::"):
            opener = self.pos
            self.expect("{", "`{` and the names to import")
            names = self.listed(opener, self.use_name)
        return tree.Use(self.span_from(offset), path, names, public)

    def use_name(self) -> tree.UseName:
        name = self.segment("a name to import")
        alias = self.name("a name") if self.take("as") else None
        return tree.UseName(self.span_from(name.span.start), name, alias)

    def item(self, start: int, public: bool) -> tree.Item | None:
        """The item at the cursor; `start` is the token of its `pub`, if it has one."""
        doc = self.docs.get(start)
        self.deep = False
        match self.texts[self.pos]:
            case "fn" | "op" | "entry":
                return self.function(start, public, doc)
            case "block":
                return self.block(start, public, doc)
            case "const":
                return self.const(start, public, doc)
            case "type":
                return self.alias(start, public, doc)
            case "struct":
                return self.struct(start, public, doc)
            case "enum":
                return self.enum(start, public, doc)
            case "kernel" | "extern":
                self.not_yet(self.pos, f"`{self.texts[self.pos]}` items are")
            case "}":
                # The likely cause is an earlier error that misjudged where a body ends.
                if not self.diagnostics:
                    self.unexpected("an item", help="this brace closes nothing", here=True)
                self.pos += 1
                return None
        self.fail("an item", help=self.item_help(), here=True)

    def item_help(self) -> str | None:
        text = self.texts[self.pos]
        if text in MEMBERS:
            return f"`{text}` stands in a `block`"
        if text in ("let", "var"):
            return "outside functions a value is a `const`"
        if text == ";":
            return "remove it: items end without semicolons"
        if text == "import" or text == "from":
            return "imports are written `use a.b::{name}`"
        return "items are `const type struct enum fn op block entry` and `use`"

    def not_yet(self, pos: int, what: str) -> None:
        self.refuse(
            pos,
            "E1103",
            f"{what} not supported yet",
            "reserved for a later version of the language",
            "remove it",
        )
        self.pos = pos + 1
        if self.texts[self.pos] in FUNCTIONS:  # `extern fn …`
            self.pos += 1
        raise Recover

    def const(self, start: int, public: bool, doc: str | None) -> tree.Item:
        self.pos += 1
        name = self.name("a name")
        annotation = self.type() if self.take(":") else None
        self.expect("=")
        value = self.expr()
        span = self.span_from(self.starts[start])
        return tree.Const(span, name, public, doc, annotation, value)

    def alias(self, start: int, public: bool, doc: str | None) -> tree.Item:
        self.pos += 1
        name = self.name("a name")
        generics = self.generics()
        self.expect("=")
        type = self.type()
        span = self.span_from(self.starts[start])
        return tree.TypeAlias(span, name, public, doc, generics, type)

    def struct(self, start: int, public: bool, doc: str | None) -> tree.Item:
        self.pos += 1
        name = self.name("a name")
        generics = self.generics()
        opener = self.pos
        self.expect("{")
        fields = self.listed(opener, self.field)
        span = self.span_from(self.starts[start])
        return tree.Struct(span, name, public, doc, generics, fields)

    def field(self) -> tree.Field:
        name = self.name("the name of a field")
        type = self.declared_type()
        return tree.Field(self.span_from(name.span.start), name, type)

    def enum(self, start: int, public: bool, doc: str | None) -> tree.Item:
        self.pos += 1
        name = self.name("a name")
        opener = self.pos
        self.expect("{")
        variants = self.listed(opener, lambda: self.name("the name of a variant"))
        return tree.Enum(self.span_from(self.starts[start]), name, public, doc, variants)

    def declared_type(self) -> tree.TypeExpr:
        """`: T`. After an error an `ErrorType`, so that the name is still known."""
        self.expect(":", "`:` and a type")
        start, depth = self.pos, self.depth
        try:
            return self.type()
        except Recover:
            self.depth = depth
            self.skip_type(start)
            return tree.ErrorType(self.span_at(start))

    def skip_type(self, start: int) -> None:
        """From an error in the type that began at `start` to what may follow it."""
        owed = self.count_brackets(start, [])
        while self.pos < self.last:
            text = self.texts[self.pos]
            if (text in STARTERS and text not in self.misused) or text == "{":
                return
            if text in OPENERS:
                owed.append(OPENERS[text])
            elif text in CLOSERS:
                if not owed or owed.pop() != text:
                    return
            elif text == "=" and not owed:
                return
            elif text == "," and (not owed or self.peek(2) == ":"):
                return  # a name and a colon: the next parameter, whatever was left open
            self.pos += 1

    # --- Functions --------------------------------------------------------------------

    def function(self, start: int, public: bool, doc: str | None) -> tree.Function:
        """A function whose header cannot be parsed has an `ErrorType` as its result and
        an `ErrorStmt` as its body: nothing more is to be said about it or its calls."""
        kind = self.texts[self.pos]
        self.pos += 1
        self.deep = False
        name = self.name("a name")
        generics: list[tree.GenericParam] = []
        parameters: list[tree.Parameter] = []
        result: tree.TypeExpr | None = None
        where: list[tree.Expr] = []
        before = "`{`"
        depth = self.depth
        failed = False
        try:
            generics = self.generics()
            opener = self.pos
            self.expect("(", "`(` and the parameters")
            parameters = self.listed(opener, self.parameter)
            before = "`->`, `where` or `{`"
            if self.take("->"):
                result = self.type()
                before = "`where` or `{`"
            if self.texts[self.pos] == "where":
                before = "`,` or `{`"
            where = self.where()
            if self.texts[self.pos] != "{":
                self.fail(before)
        except Recover:
            self.depth = depth
            failed = True
            result = tree.ErrorType(self.span_at(self.pos))
            self.skip_header()
        body, end = self.body()
        if failed:
            body = [tree.ErrorStmt(name.span)]
        if self.texts[self.pos] == "grad" and self.at_name():
            self.gradient()
        return tree.Function(
            Span(self.source, self.starts[start], end.end),
            name, public, doc, kind, generics, parameters, result, where, body, end,
        )  # fmt: skip

    def skip_header(self) -> None:
        """From an error in a header to the brace that opens the body."""
        while self.texts[self.pos] != "{":
            text = self.texts[self.pos]
            if self.pos == self.last or text == "}":
                raise Recover
            if text in STARTERS and text not in self.misused and self.first_on_line(self.pos):
                raise Recover
            self.pos += 1

    def parameter(self) -> tree.Parameter:
        name = self.name("the name of a parameter")
        type = self.declared_type()
        default = self.expr() if self.take("=") else None
        return tree.Parameter(self.span_from(name.span.start), name, type, default)

    def gradient(self) -> None:
        try:
            self.not_yet(self.pos, "gradients written by hand are")
        except Recover:
            self.skip_balanced()
            if self.texts[self.pos] == "{":
                self.skip_balanced()

    # --- Blocks -----------------------------------------------------------------------

    def block(self, start: int, public: bool, doc: str | None) -> tree.Block:
        self.pos += 1
        name = self.name("a name")
        generics: list[tree.GenericParam] = []
        where: list[tree.Expr] = []
        members: list[tree.MemberDecl] = []
        functions: list[tree.Function] = []
        try:
            generics = self.generics()
            before = "`where` or `{`"
            if self.texts[self.pos] == "where":
                before = "`,` or `{`"
            where = self.where()
            if self.texts[self.pos] != "{":
                self.fail(before)
        except Recover:
            self.depth = 0
            where = [*where, tree.ErrorExpr(name.span)]
            self.skip_header()
        opener = self.pos
        self.pos += 1
        while self.texts[self.pos] != "}":
            if self.pos == self.last or self.texts[self.pos + self.at_pub()] in _AFTER_BLOCK:
                self.unexpected("a member, a function or `}`", opener, here=True)
                break
            self.block_part(members, functions)
        else:
            self.pos += 1
        return tree.Block(
            self.span_from(self.starts[start]),
            name, public, doc, generics, where, members, functions,
        )  # fmt: skip

    def at_pub(self) -> bool:
        return self.texts[self.pos] == "pub"

    def block_part(self, members: list[tree.MemberDecl], functions: list[tree.Function]) -> None:
        """One member or function of a block."""
        start, depth = self.pos, self.depth
        doc = self.docs.get(start)
        try:
            public = self.take("pub")
            text = self.texts[self.pos]
            if text in MEMBERS:
                members.append(self.member_decl(start, public, doc))
            elif text in FUNCTIONS:
                functions.append(self.function(start, public, doc))
            elif text == "kernel" or text == "extern":
                self.not_yet(self.pos, f"`{text}` items are")
            else:
                help = "a block holds `param`, `buffer`, `state`, `sub`, `fn`, `op` and `entry`"
                self.fail("a member, a function or `}`", help=help, here=True)
        except Recover:
            self.depth = depth
            self.skip_item(start, _IN_BLOCK | TOP)

    def member_decl(self, start: int, public: bool, doc: str | None) -> tree.MemberDecl:
        kind = self.texts[self.pos]
        self.pos += 1
        name = self.name("the name of a member")
        default = None
        type = self.declared_type()
        if self.take("="):
            default = self.expr()
        span = self.span_from(self.starts[start])
        return tree.MemberDecl(span, kind, name, type, default, doc, public)
