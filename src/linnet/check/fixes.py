"""Fix-its: what the help of a finding says, as an edit.

A fix is *safe* where the result means what the text meant, or the only thing it could mean, and
*unsafe* where somebody has to look at it: a name that is close, a cast, a `where` clause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from linnet.diagnostics.diagnostic import Diagnostic, Fix
from linnet.source import Source, Span
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker
    from linnet.package import ModuleFile

_MEANT = re.compile(r"did you mean `([A-Za-z_]\w*)`\?", re.ASCII)
_QUOTED = re.compile(r"`([A-Za-z_]\w*)`", re.ASCII)
_CLAUSE = re.compile(r"add `where ([^`]+)`")
_OPTIONAL = re.compile(r"expected `[^`]*\?`")
_CAST = re.compile(r"`(cast<\w+>)\(…\)`", re.ASCII)


def attach(checker: Checker, diagnostics: list[Diagnostic]) -> None:
    """Give the findings in the package's own files their fixes."""
    own = {
        id(scope.file.source): scope.file
        for scope in checker.modules.scopes.values()
        if scope.package is checker.package
    }
    for one in diagnostics:
        file = own.get(id(one.span.source))
        if file is not None and not one.fixes:
            one.fixes.extend(fix for fix in _fixes(one, file) if id(fix.span.source) in own)


def _fixes(one: Diagnostic, file: ModuleFile) -> Iterator[Fix]:
    help = one.help or ""
    if one.code == "W1001":
        yield from _unused_import(one, file)
    elif one.code == "W1002":
        yield from _unused_local(one, file)
    elif one.code == "E1203" and one.related:
        yield from _public(one)
    elif found := _MEANT.search(help):
        yield from _meant(one, found[1])
    elif help == "wrap it: `some(…)`":
        yield _wrap(one.span, "some", "wrap it in `some(…)`", "safe")
    elif found := _CLAUSE.search(help):
        yield from _clause(one, file, found[1])
    elif one.code == "E2101" and not help and _OPTIONAL.search(one.message):
        if re.fullmatch(r"-?[0-9.]\S*|true|false", one.span.text):
            yield _wrap(one.span, "some", "wrap it in `some(…)`", "safe")
    elif one.code == "E2103" and (found := _CAST.search(help)):
        span = one.span
        if "silence" in help:  # of two operands: the second takes the dtype of the first
            node = _binary_at(file.tree.file, span)
            if node is None:
                return
            span = node.right.span
        yield _wrap(span, found[1], f"convert it: `{found[1]}(…)`", "unsafe")


def _binary_at(root: tree.Node, span: Span) -> tree.Binary | None:
    """The operation that stands at a span."""
    waiting: list[object] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, tree.Node):
            at = node.span
            if at.start <= span.start and span.end <= at.end:
                if isinstance(node, tree.Binary) and (at.start, at.end) == (span.start, span.end):
                    return node
                waiting += [getattr(node, name) for name in type(node).__match_args__]
    return None


def _wrap(span: Span, function: str, message: str, safety: str) -> Fix:
    return Fix(span, f"{function}({span.text})", message, safety)


def _meant(one: Diagnostic, name: str) -> Iterator[Fix]:
    """Replace the one word of the span that was misspelt."""
    text = one.span.text
    said = [word for word in _QUOTED.findall(one.message) if word != name]
    for word in [text, *said]:
        places = [found.start() for found in re.finditer(rf"\b{re.escape(word)}\b", text)]
        if word.isidentifier() and len(places) == 1:
            start = one.span.start + places[0]
            span = Span(one.span.source, start, start + len(word))
            yield Fix(span, name, f"write `{name}`", "unsafe")
            return


def _unused_import(one: Diagnostic, file: ModuleFile) -> Iterator[Fix]:
    for use in file.tree.file.uses:
        if not use.span.start <= one.span.start < use.span.end:
            continue
        names = use.names
        if names is None or len(names) == 1:
            span = _whole_lines(file.source, use.span)
            yield _remove(span, "remove the import")
            return
        for at, name in enumerate(names):
            if name.span.start <= one.span.start < name.span.end:
                if at + 1 < len(names):
                    start, end = name.span.start, names[at + 1].span.start
                else:
                    start, end = names[at - 1].span.end, name.span.end
                yield _remove(Span(file.source, start, end), f"remove `{one.span.text}`")
                return


def _remove(span: Span, message: str) -> Fix:
    commented = "//" in span.text or "/*" in span.text
    return Fix(span, "", message, "unsafe" if commented else "safe")


def _whole_lines(source: Source, span: Span) -> Span:
    """A span with its line break, where nothing else stands on its lines."""
    text = source.text
    before = text[text.rfind("\n", 0, span.start) + 1 : span.start]
    end = text.find("\n", span.end)
    after = text[span.end : end if end >= 0 else len(text)]
    if before.strip() or after.strip():
        return span
    return Span(source, span.start - len(before), len(text) if end < 0 else end + 1)


def _unused_local(one: Diagnostic, file: ModuleFile) -> Iterator[Fix]:
    text = file.source.text
    before, after = text[: one.span.start].rstrip(), text[one.span.end :].lstrip()
    # A `var` and what is defined by indices keep their names.
    if one.span.text.isidentifier() and not before.endswith("var") and after[:1] != "[":
        yield Fix(one.span, "_", "name it `_`")


def _public(one: Diagnostic) -> Iterator[Fix]:
    """`pub` before the word that begins a declaration, which is the one before its name."""
    name = one.related[0].span
    text = name.source.text
    begin = re.search(r"(?:fn|op|entry|block|struct|enum|const|type)\s+$", text[: name.start])
    if begin:
        span = Span(name.source, begin.start(), begin.start())
        yield Fix(span, "pub ", f"make `{name.text}` public", "unsafe")


def _clause(one: Diagnostic, file: ModuleFile, clause: str) -> Iterator[Fix]:
    """The clause at the end of those of the function, or else the block, around a finding."""
    at = one.span.start
    for item in file.tree.file.items:
        if not item.span.start <= at < item.span.end:
            continue
        holder: tree.Item = item
        if isinstance(item, tree.Block):
            inner = [f for f in item.functions if f.span.start <= at < f.span.end]
            holder = inner[0] if inner else item
        if not isinstance(holder, (tree.Function, tree.Block)):
            return
        message = f"add `where {clause}`"
        if holder.where:
            end = holder.where[-1].span.end
            yield Fix(Span(file.source, end, end), f", {clause}", message, "unsafe")
            return
        before = [holder.name.span.end, *(g.span.end for g in holder.generics)]
        if isinstance(holder, tree.Function):
            before += [p.span.end for p in holder.parameters]
            if holder.result is not None:
                before.append(holder.result.span.end)
        for token in file.tree.tokens:
            if token.text == "{" and token.start >= max(before):
                span = Span(file.source, token.start, token.start)
                yield Fix(span, f"where {clause} ", message, "unsafe")
                return
