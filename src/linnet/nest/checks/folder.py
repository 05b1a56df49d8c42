"""What can be said of a folder without reading its program: the card, the README, the files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from linnet.errors import Error
from linnet.nest.card import FILE, Card
from linnet.nest.checks.report import Step
from linnet.nest.pages.readme import read_readme
from linnet.package.manifest import MANIFEST

WORDS = 60  # of prose; fewer tell nobody what a model is
MAX_FILE = 64 << 20  # bytes; weights belong on a hub
MAX_FILES = 500
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".onnx")


def check_card(card: Card) -> Step:
    """What the format leaves open and a registry asks for."""
    step = Step("card", f"{card.name}, {card.family or 'no family'}")
    if card.folder.resolve().name != card.name:
        step.problems.append(
            f"{FILE}: [model] name: `{card.name}`, but the folder is called "
            f"`{card.folder.resolve().name}`; the two are one"
        )
    values = {
        "[model] title": card.title if card.title != card.name else "",
        "[model] summary": card.summary,
        "[model] license": card.license,
        "[model] family": card.family,
        "[source] root": card.root,
        "[source] entry": card.entry,
        "[generics]": card.generics,
    }
    for name, value in values.items():
        if not value:
            step.problems.append(f"{FILE}: {name}: missing; a registry shows it")
    if not card.tags:
        step.notes.append(f"{FILE}: [model] tags: none; the first is the task, `text-generation`")
    weights = card.weights
    beside = any(card.folder.glob("*.safetensors")) or any(card.folder.glob("*.gguf"))
    if weights.repo is None and weights.package is None and not beside:
        step.problems.append(
            f"{FILE}: [weights]: neither `repo` nor `package` says where they are; none lie here"
        )
    elif weights.repo is not None and not re.fullmatch(r"[0-9a-f]{40}", weights.revision or ""):
        step.notes.append(
            f"{FILE}: [weights] revision: not pinned to a commit; what is fetched may change"
        )
    return step


def check_readme(folder: Path) -> Step:
    step = Step("readme")
    try:
        text = read_readme(folder)
    except (Error, OSError) as error:
        step.problems.append(str(error))
        return step
    if not text.strip():
        step.problems.append("README.md: missing; expected what the model is and how to run it")
        return step
    prose = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    words = len(re.findall(r"[^\W\d_]{2,}", prose))
    step.detail = f"{words} words"
    if not re.search(r"^#\s+\S", text, re.MULTILINE):
        step.problems.append("README.md: no title; expected a line `# Name`")
    if words < WORDS:
        step.problems.append(f"README.md: {words} words outside code; expected {WORDS} or more")
    return step


def check_files(folder: Path) -> Step:
    """Nothing leads out of the folder, and nothing in it is large or a checkpoint."""
    step = Step("files")
    root = folder.resolve()
    count = total = 0
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted([*names, *folders]):
            path = Path(where, name)
            shown = path.relative_to(folder)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                step.problems.append(f"{shown}: a link that leads out of the folder")
                if name in folders:
                    folders.remove(name)
                continue
            if name in folders:
                continue
            if not path.is_file():
                step.problems.append(f"{shown}: neither a file nor a folder")
                continue
            size = path.stat().st_size
            count, total = count + 1, total + size
            if path.suffix in _WEIGHTS:
                step.notes.append(f"{shown}: weights; a registry leaves them on their hub")
            elif size > MAX_FILE:
                step.problems.append(f"{shown}: {size:,} bytes; expected at most {MAX_FILE:,}")
            if count > MAX_FILES:
                step.problems.append(f"more than {MAX_FILES} files")
                return step
    if not (folder / MANIFEST).is_file():
        step.problems.append(f"{MANIFEST}: missing; the source is a package of its own")
    step.detail = f"{count} files, {total:,} bytes"
    return step
