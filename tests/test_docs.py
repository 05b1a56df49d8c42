"""Links between the pages of `docs`, the language reference and the README lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests" / "spec").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page}: {target}"


def command_lines() -> list[tuple[str, str]]:
    """Every `linnet …` line of a shell block, without its comment."""
    found = []
    for page in PAGES[: 1 + len(list((ROOT / "docs").rglob("*.md")))]:
        for block in re.findall(r"```(?:sh)?\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in block.splitlines():
                line = re.sub(r"\s+#.*$", "", line)
                if re.match(r"(?:\S*/)?linnet ", line):
                    found.append((page.name, line))
    return found


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_commands_parse(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs: the module of the command is asked for its arguments alone."""
    import importlib
    import shlex

    ran = []

    def importing(name: str) -> object:
        module = importlib.import_module(name)
        if hasattr(module, "run"):
            monkeypatch.setattr(module, "run", lambda args: ran.append(args) or 0)
        return module

    from linnet.cli.main import COMMANDS, main

    words = shlex.split(line)[1:]
    names = [words[0], f"{words[0]}_{words[1]}" if len(words) > 1 else words[0]]
    assert words[0] in COMMANDS
    for name in names:
        try:
            importing(f"linnet.cli.{name}")
        except ModuleNotFoundError:
            pass
    assert main(words) == 0 and len(ran) == 1


def test_the_reference_lists_its_chapters() -> None:
    spec = ROOT / "tests" / "spec"
    listed = set(re.findall(r"\]\((\d\d-[\w-]+\.md)\)", (spec / "README.md").read_text()))
    assert listed == {path.name for path in spec.glob("[0-9]*.md")}
