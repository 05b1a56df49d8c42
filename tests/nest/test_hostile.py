"""Packages that mean harm: shown harmlessly or refused, by pages, `nest check`, `list` and `show`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from linnet.cli.main import main
from linnet.nest.pages.site import build

CARD = """\
[model]
name = "tiny"
title = "Tiny"
summary = "A few numbers."
license = "MIT"
family = "tiny"

[links]
huggingface = "https://huggingface.co/owner/tiny"

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
Vocab = 7

[weights]
bindings = "bindings.json"
"""
SOURCE = """\
module tiny

pub block Model<Vocab: Dim> {
    param table: Tensor[Vocab; f32]

    /// All of it.
    pub entry forward() -> Tensor[Vocab; f32] {
        return table
    }
}
"""
Harm = Callable[[Path], object]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo" / "tiny"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Tiny\n")
    (folder / "nest.toml").write_text(CARD)
    (folder / "linnet.toml").write_text(
        '[package]\nname = "tiny"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    )
    (folder / "src" / "lib.linnet").write_text(SOURCE)
    (folder / "bindings.json").write_text('{"table": "table"}')
    return folder


def card(before: str, after: str) -> Harm:
    return lambda folder: (folder / "nest.toml").write_text(CARD.replace(before, after))


def link(name: str, target: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return harm


def fifo(name: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return harm


def written(name: str, text: str) -> Harm:
    return lambda folder: (folder / name).write_text(text)


REFUSED: dict[str, tuple[Harm, str]] = {
    "nested arrays": (written("nest.toml", "a=" + "[" * 100_000), "nested too deeply"),
    "a dotted key": (written("nest.toml", "x" + ".x" * 400_000 + " = 1"), "more than 64 parts"),
    "a dotted table": (written("nest.toml", "[x" + ".x" * 400_000 + "]"), "more than 64 parts"),
    "a long number": (card("Vocab = 7", "Vocab = " + "9" * 5000), "too long"),
    "a terminal's commands": (card('"Tiny"', '"\\u001b[31m"'), "control characters"),
    "a text turned round": (card('"Tiny"', '"\\u202Eynit"'), "control characters"),
    "a name that looks alike": (card('name = "tiny"', 'name = "t\u0456ny"'), "a plain name"),
    "a script as a link": (card("https://huggingface.co/owner/tiny", "javascript:1"), "http(s)"),
    "a source elsewhere": (card("src/lib.linnet", "../../x.linnet"), "inside the folder"),
    "a readme that waits": (fifo("README.md"), "neither a file"),
    "a card that waits": (fifo("nest.toml"), "no card there"),
    "an endless card": (link("nest.toml", "/dev/zero"), "no card there"),
    "a readme elsewhere": (link("README.md", "/etc/passwd"), "leads out"),
    "a module elsewhere": (link("src/lib.linnet", "/etc/passwd"), "leads out"),
    "endless bindings": (link("bindings.json", "/dev/zero"), "leads out"),
    "a long readme": (written("README.md", "word " * 2_000_000), "too many"),
    "a long name": (written("bindings.json", '{"table": "' + "x" * 2000 + '"}'), "at most 1,000"),
    "deep bindings": (written("bindings.json", '{"table":' + "[" * 100_000), "line 1"),
}


@pytest.mark.parametrize("harm", REFUSED)
def test_it_is_refused(harm: str, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = REFUSED[harm]
    change(tiny)
    refused = build([tiny])[1]
    assert said in refused["tiny"]
    assert main(["nest", "check", "--offline", "--no-run", str(tiny)]) == 1
    for command in (["list", "--registry", str(tiny.parent)], ["show", str(tiny)]):
        main(command)
    shown = "".join(capsys.readouterr())
    assert not {"\x1b", "\u202e", "\0"} & set(shown) and "Traceback" not in shown
    assert "root:" not in shown


def test_what_is_shown_can_do_nothing(tiny: Path) -> None:
    script = "<script>alert(1)</script>"
    (tiny / "README.md").write_text(
        f"# x\n\n{script} [a](<javascript:alert(1)>) [b](data:text/html,x) ![p](http://e/p.png)\n"
        + "> " * 20_000 + "a\n\n" + "[" * 20_000
    )  # fmt: skip
    (tiny / "src" / "lib.linnet").write_text(
        SOURCE.replace("/// All", f"// </pre>{script} \u202eno\n    /// {script} `<b>` All")
    )
    (tiny / "bindings.json").write_text(f'{{"table": "{script}\\u202e\\u0007"}}')
    files, refused = build([tiny])
    assert refused == {}
    html = files["tiny/index.html"]
    assert script not in html and 'href="javascript' not in html and "<img" not in html
    assert not {"\u202e", "\x07"} & set(html) and len(html) < 300_000


def test_nothing_of_a_package_is_imported(tiny: Path, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    for name in ("sitecustomize.py", "torch.py", "json.py", "linnet/__init__.py"):
        (tiny / name).parent.mkdir(exist_ok=True)
        (tiny / name).write_text(trap)
    before = os.getcwd()
    os.chdir(tiny)
    try:
        main(["nest", "check", "--offline", str(tiny)])
    finally:
        os.chdir(before)
    assert not (tmp_path / "ran").exists()
