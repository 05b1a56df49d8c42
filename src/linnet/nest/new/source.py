"""The source of a new package: the zoo's, with what it depends on inside, and its edits."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from linnet.errors import PackageError
from linnet.nest.new.recipe import Recipe
from linnet.package.manifest import MANIFEST, read_manifest


def copy_source(base: Path, folder: Path, recipe: Recipe) -> None:
    """Write the package into `folder`. What it depends on goes below `deps/`, so that the folder
    stands by itself."""
    _copy(base, folder, folder)
    for target, origin in recipe.copies.items():
        package, _, file = origin.partition("/")
        shutil.copyfile(base.parent / package / file, folder / target)
    for edit in recipe.edits:
        path = folder / edit.file
        text = path.read_text(encoding="utf-8")
        changed, count = re.subn(edit.old, edit.new, text)
        if count == 0:
            raise AssertionError(f"{recipe.base}: nothing in {edit.file} is {edit.old!r}")
        path.write_text(changed, encoding="utf-8")


def _copy(package: Path, folder: Path, top: Path) -> None:
    manifest = read_manifest(package / MANIFEST)
    text = (package / MANIFEST).read_text(encoding="utf-8")
    shutil.copytree(package / "src", folder / "src", dirs_exist_ok=True)
    for key, path in manifest.dependencies.items():
        inner = top / "deps" / key
        if not inner.exists():
            inner.mkdir(parents=True)
            _copy(package / path, inner, top)
        shown = f"deps/{key}" if folder == top else f"../{key}"
        text = text.replace(f'"{path}"', f'"{shown}"')
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def set_header(file: Path, lines: list[str]) -> None:
    """Replace the comment above `module`, which speaks of the model the source came from."""
    text = file.read_text(encoding="utf-8")
    at = re.search(r"^module ", text, re.MULTILINE)
    if at is None:
        raise PackageError(f"{file}: no line `module …`")
    head = "".join(f"// {line}\n" for line in lines)
    file.write_text(head + text[at.start() :], encoding="utf-8")
