"""Names and needless words, read from the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.ir.passes.tools import regions
from linnet.ir.program import Cast, Program
from linnet.ir.types import DTYPES, dtype_of
from linnet.source import Span
from linnet.syntax import tree

_CAPITALS = re.compile(r"_*[A-Z][A-Za-z0-9]*", re.ASCII)
_SNAKE = re.compile(r"_*[a-z][a-z0-9_]*", re.ASCII)
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*", re.ASCII)
_KINDS = {
    tree.Block: ("block", _CAPITALS, "`LikeThis`"),
    tree.Struct: ("struct", _CAPITALS, "`LikeThis`"),
    tree.Enum: ("enum", _CAPITALS, "`LikeThis`"),
    tree.TypeAlias: ("type", _CAPITALS, "`LikeThis`"),
    tree.Const: ("const", _CONSTANT, "`LIKE_THIS`"),
    tree.Function: ("function", _SNAKE, "`like_this`"),
}


def style(parsed: tree.Tree, program: Program) -> Iterator[Diagnostic]:
    for item in parsed.file.items:
        yield from _name(item)
        functions: list[tree.Function] = []
        if isinstance(item, tree.Block):
            for function in item.functions:
                yield from _name(function)
            functions = item.functions
        elif isinstance(item, tree.Function):
            functions = [item]
        for function in functions:
            yield from _variables(function.body)
    yield from _casts(parsed, program)


def _name(item: tree.Item) -> Iterator[Diagnostic]:
    kind, pattern, shown = _KINDS[type(item)]
    name = item.name
    if not pattern.fullmatch(name.text):
        yield Diagnostic(
            "W2002",
            "warning",
            f"the {kind} `{name.text}` is not named as others are",
            Label(name.span, f"a {kind} is written {shown}"),
        )


def _variables(body: list[tree.Stmt]) -> Iterator[Diagnostic]:
    """A `var` that nothing assigns."""
    declared: list[tree.Var] = []
    assigned: set[str] = set()
    waiting = list(body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, tree.Var):
            declared.append(statement)
        elif isinstance(statement, tree.Assign) and isinstance(statement.target, tree.Name):
            assigned.add(statement.target.text)
        elif isinstance(statement, (tree.For, tree.StaticFor, tree.While)):
            waiting += statement.body
        if isinstance(statement, tree.Let) and isinstance(statement.value, tree.ForExpr):
            waiting += statement.value.body
    for one in declared:
        if one.name.text not in assigned:
            word = Span(one.span.source, one.span.start, one.span.start + len("var"))
            yield Diagnostic(
                "W2003",
                "warning",
                f"`{one.name.text}` is never assigned again",
                Label(one.name.span),
                help="declare it with `let`",
                fixes=[Fix(word, "let", "declare it with `let`")],
            )


def _casts(parsed: tree.Tree, program: Program) -> Iterator[Diagnostic]:
    """Casts to the dtype that their operand has, whatever the generics are."""
    for function in program.functions.values():
        if function.span is None or function.span.source is not parsed.source:
            continue
        for region in regions(function.body):
            for op in region.ops:
                if not isinstance(op, Cast) or op.span is None or not op.result.type:
                    continue
                dtype = dtype_of(op.result.type)
                if dtype == dtype_of(op.x.type) and op.span.text.startswith("cast"):
                    what = "dtype" if dtype in DTYPES else "dtype generic"
                    yield Diagnostic(
                        "W2004",
                        "warning",
                        f"this is `{dtype}` already",
                        Label(op.span, f"a cast to the {what} it has"),
                        help="leave the cast out",
                    )
