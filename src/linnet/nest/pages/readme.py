"""A README's Markdown as HTML that can do nothing: no raw HTML, no images from elsewhere, no
addresses but the web's, every link out of the site marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.errors import PackageError
from linnet.nest.pages.html import outside, text

LIMIT = 1 << 20  # bytes


def read_readme(folder: Path) -> str:
    """The text of a folder's README.md, empty if there is none. Raises PackageError for one
    that lies elsewhere, is too large or is no text."""
    path = folder / "README.md"
    if not path.exists():
        return ""
    if not path.is_file():
        raise PackageError(f"{path}: neither a file nor absent; expected text")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise PackageError(f"{path}: leads out of the card's folder")
    if path.stat().st_size > LIMIT:
        raise PackageError(f"{path}: {path.stat().st_size} bytes are too many ({LIMIT} at most)")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PackageError(f"{path}: not UTF-8 (byte {error.start})") from None


def readme_html(markdown: str) -> str:
    """The rendered text; headings begin at the third level, below the page's own."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    for token in tokens:
        for child in token.children or []:
            child.attrs = {k: v for k, v in child.attrs.items() if k in ("href", "src", "alt")}
        token.attrs = {k: v for k, v in token.attrs.items() if k in ("style", "start")}
        if "style" in token.attrs:  # alignment of a table's cell, which the policy would refuse
            token.attrs = {"class": str(token.attrs["style"]).replace("text-align:", "to-")}
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("link_close", _link_close)
    parser.add_render_rule("image", _image)
    return parser.renderer.render(tokens, parser.options, {"closing": []})


def _link_open(_: Any, tokens: Sequence[Any], at: int, __: Any, env: Any) -> str:
    address = str(tokens[at].attrs.get("href", ""))
    opening, _, closing = outside(address, "\0").partition("\0")
    env["closing"].append(closing)
    return opening


def _link_close(_: Any, __: Sequence[Any], ___: int, ____: Any, env: Any) -> str:
    return str(env["closing"].pop())


def _image(_: Any, tokens: Sequence[Any], at: int, __: Any, ___: Any) -> str:
    """Its description: a page loads nothing from elsewhere."""
    address, label = str(tokens[at].attrs.get("src", "")), tokens[at].content or "picture"
    return outside(address, label) if address.startswith("http") else text(label)
