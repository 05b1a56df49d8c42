"""The whole site: an index, a page a model, and the library's modules. Files are made as text
first and written at the end, so that a model that cannot be shown leaves nothing half done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from linnet.check.checker import Checker
from linnet.check.modules import ModuleScope
from linnet.errors import Error, PackageError
from linnet.nest.card import Card
from linnet.nest.diagram.svg import SHAPES
from linnet.nest.pages.html import BIRD_PATH, page, text
from linnet.nest.pages.index_page import index_page
from linnet.nest.pages.links import links_of
from linnet.nest.pages.model_page import anchor_of, entry_diagrams, model_page
from linnet.nest.pages.shown import Shown
from linnet.nest.pages.source import source_html
from linnet.package.roots import std_package
from linnet.source import Source, Span

ASSETS = Path(__file__).parent / "assets"
_FOLDER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_OWN = frozenset({"_", "std", "index.html"})  # names at the root that no model may have

Address = Callable[[Span], "str | None"]
Progress = Callable[[str], None]


def build(
    folders: Iterable[Path],
    progress: Progress = lambda _: None,
    sizes: Callable[[Card], dict[str, int]] = lambda _: {},
) -> tuple[dict[str, str], dict[str, str]]:
    """The site's files by path, and why each model that is not in it was refused. `sizes` tells
    how large a card's weight files are on their hub, as far as that is known now."""
    files: dict[str, str] = {
        "_/site.css": (ASSETS / "site.css").read_text(encoding="utf-8") + SHAPES,
        "_/site.js": (ASSETS / "site.js").read_text(encoding="utf-8"),
        "_/linnet.svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">'
        f'<path d="{BIRD_PATH}" fill="#c2413b"/></svg>\n',
    }
    refused: dict[str, str] = {}
    models: list[Shown] = []
    for folder in folders:
        progress(folder.name)
        try:
            shown = Shown.open(folder)
            shown.hub_sizes = sizes(shown.card)
            name = shown.card.name
            if not _FOLDER.fullmatch(name) or name in _OWN or f"{name}/index.html" in files:
                raise PackageError(f"{folder}: the name `{name}` is taken or cannot be a folder")
            address = addresses(shown.checker, "../std/")
            made = {f"{name}/index.html": model_page(shown, address)}
            made.update({f"{name}/{k}": v for k, v in entry_diagrams(shown).items()})
        except Error as error:
            refused[folder.name] = str(error).splitlines()[0]
            continue
        except (OSError, RecursionError) as error:
            refused[folder.name] = str(error) or type(error).__name__
            continue
        files.update(made)
        models.append(shown)
    progress("std")
    files.update(library())
    files["index.html"] = index_page(models, refused)
    return files, refused


def write(files: dict[str, str], out: Path) -> int:
    """Write the files under `out`; how many bytes. Raises PackageError for a place that cannot
    be written."""
    total = 0
    for path, content in files.items():
        target = out / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        except OSError as error:
            raise PackageError(f"{target}: cannot be written: {error.strerror}") from error
        total += len(content.encode("utf-8"))
    return total


def addresses(checker: Checker, std: str) -> Address:
    """Ways from a page to declarations: within it for the package's own modules, to `std` for
    the library's."""
    known: dict[int, tuple[Source, str]] = {}
    for scope in checker.modules.scopes.values():
        source, anchor = scope.file.source, anchor_of(scope.id)
        if scope.package.key == "std":
            anchor = f"{std}{module_file(scope)}#{anchor}"
        else:
            anchor = f"#{anchor}"
        known[id(source)] = (source, anchor)

    def address(span: Span) -> str | None:
        found = known.get(id(span.source))
        if found is None:
            return None
        return f"{found[1]}-L{span.source.position(span.start)[0]}"

    return address


def module_file(scope: ModuleScope) -> str:
    return f"{'.'.join(scope.file.path) or 'lib'}.html"


def library() -> Iterator[tuple[str, str]]:
    """A page for each module of the standard library, and a list of them."""
    checker = Checker(std_package())
    program = checker.run().program
    assert program is not None, "the library checks"
    address = addresses(checker, "")
    scopes = sorted(
        (s for s in checker.modules.scopes.values() if s.package.key == "std"),
        key=lambda scope: scope.id,
    )
    crumb = '<span class="crumb" aria-hidden="true">/</span>'
    up = f'{crumb}<a href="index.html">std</a>'
    items = []
    for scope in scopes:
        html = source_html(
            scope.file, links_of(checker, scope, program), anchor_of(scope.id), address
        )
        public = ", ".join(n for n, d in scope.items.items() if d.public)
        items.append(
            f'<li><a href="{text(module_file(scope))}"><code>{text(scope.id)}</code></a>'
            f"<p>{text(public)}</p></li>"
        )
        body = f"<h1><code>{text(scope.id)}</code></h1>{html}"
        crumbs = f"{up}{crumb}<span>{text('.'.join(scope.file.path))}</span>"
        yield f"std/{module_file(scope)}", page(scope.id, body, up="../", crumbs=crumbs)
    body = (
        '<div class="hero"><h1>The standard library</h1><p class="summary">Linnet source; every '
        f'body is the meaning of its operation.</p></div><ul class="modules">{"".join(items)}</ul>'
    )
    crumbs = f"{crumb}<span>std</span>"
    yield "std/index.html", page("The standard library", body, up="../", crumbs=crumbs)
