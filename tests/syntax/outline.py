"""A tree as one line of text, so that a test can say what it expects."""

from __future__ import annotations

from linnet.source import Source
from linnet.syntax import tree
from linnet.syntax.parser import parse


def file(text: str) -> tree.File:
    parsed, problems = parse(Source("test.linnet", text))
    assert not problems, [(str(p.span), p.message) for p in problems]
    return parsed.file


def statements(text: str) -> list[tree.Stmt]:
    item = file(f"module t\nfn f() -> i32 {{\n{text}\n}}\n").items[0]
    assert isinstance(item, tree.Function)
    return item.body


def expression(text: str) -> str:
    (statement,) = statements(f"return {text}")
    assert isinstance(statement, tree.Return)
    return outline(statement.value)


def findings(text: str) -> list[tuple[str, int]]:
    """Codes and lines of what the parser reports."""
    _, problems = parse(Source("test.linnet", text))
    return [(p.code, p.span.source.position(p.span.start)[0]) for p in problems]


def outline(node: object) -> str:
    match node:
        case None:
            return "-"
        case str():
            return node
        case list():
            return f"[{' '.join(map(outline, node))}]"
        case tree.Ident(text=text) | tree.Name(text=text):
            return text
        case tree.IntLit(value=value) | tree.FloatLit(value=value):
            return str(value)
        case tree.BoolLit(value=value):
            return str(value).lower()
        case tree.NoneLit():
            return "none"
        case tree.Paren(inner=inner):
            return f"(paren {outline(inner)})"
        case tree.PackExpr(name=name):
            return f"*{name}"
        case tree.IndexBinder(name=name, pack=pack):
            return f"{'*' if pack else ''}{name}"
        case tree.Unary(op=op, operand=operand):
            return f"({op} {outline(operand)})"
        case tree.Binary(op=op, left=left, right=right):
            return f"({op} {outline(left)} {outline(right)})"
        case tree.Member(object=object, name=name):
            return f"{outline(object)}.{name.text}"
        case tree.Argument(name=name, value=value):
            return f"{name.text}={outline(value)}" if name else outline(value)
        case tree.RestItem():
            return "..."
    fields = [
        outline(getattr(node, field))
        for field in type(node).__slots__  # type: ignore[attr-defined]
        if field not in ("span", "op_span", "body_end", "doc")
    ]
    return f"({' '.join([type(node).__name__, *fields])})"
