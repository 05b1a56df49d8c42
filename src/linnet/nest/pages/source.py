"""A module's source as HTML: highlighted, every line with an anchor, every name with a link to
its declaration and its type to see when pointed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from linnet.nest.pages.html import text
from linnet.nest.pages.links import Reference
from linnet.package.module import ModuleFile
from linnet.source import Span

_CLASSES = {
    "keyword": "k",
    "int": "n",
    "float": "n",
    "string": "s",
    "comment": "c",
    "doc": "c",
    "error": "e",
}
_MARKED = frozenset({"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32",
                     "u64", "bool", "Tensor", "Dim", "Shape", "Float", "DType", "Integer",
                     "Numeric"})  # fmt: skip


def source_html(
    module: ModuleFile,
    references: Mapping[int, Reference],
    anchor: str,
    address: Callable[[Span], str | None],
) -> str:
    """The module as one `<pre>`; line `n` has the id `<anchor>-L<n>`. `address` gives the way
    from this page to a declaration."""
    lines: list[list[str]] = [[]]
    for token in module.tree.tokens:
        reference = references.get(token.start) if token.kind in ("name", "keyword") else None
        kind = _CLASSES.get(token.kind, "t" if token.text in _MARKED else "")
        pieces = token.text.split("\n")
        for number, piece in enumerate(pieces):
            if number:
                lines.append([])
            if piece:
                lines[-1].append(_token(piece.rstrip("\r"), kind, reference, address))
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    rows = []
    for number, line in enumerate(lines, start=1):
        at = f"{anchor}-L{number}"
        rows.append(
            f'<span class="line" id="{at}"><a class="no" href="#{at}" '
            f'aria-label="line {number}">{number}</a>{"".join(line)}\n</span>'
        )
    label = text(f"source of {module.id}")
    code = "".join(rows)
    return f'<pre class="source" tabindex="0" aria-label="{label}"><code>{code}</code></pre>'


def _token(
    piece: str,
    kind: str,
    reference: Reference | None,
    address: Callable[[Span], str | None],
) -> str:
    shown = text(piece)
    if reference is None:
        return f'<i class="{kind}">{shown}</i>' if kind else shown
    title = f' title="{text(reference.text)}"'
    href = address(reference.target) if reference.target is not None else None
    if href is None:
        tag = "b" if reference.kind == "declaration" else "i"
        return f"<{tag}{title}>{shown}</{tag}>"
    kind = ' class="d"' if reference.kind == "item" else ""
    return f'<a href="{text(href)}"{kind}{title}>{shown}</a>'
