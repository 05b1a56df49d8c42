"""`linnet nest check`: what it asks of a package, and that a package cannot harm it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from linnet.cli.main import main
from linnet.nest.checks.limits import run_limited
from linnet.nest.checks.report import Report
from linnet.nest.checks.run import check_folder

README = "# Tiny\n\n" + "A model of a few numbers that stands for larger ones in a test. " * 8

CARD = """\
[model]
name = "tiny"
title = "Tiny"
summary = "A few numbers."
license = "MIT"
family = "tiny"
tags = ["text-generation"]

[links]
huggingface = "https://huggingface.co/owner/tiny"

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
Vocab = 7
H = 4

[check]
S = 3

[weights]
repo = "owner/tiny"
revision = "0123456789012345678901234567890123456789"
bindings = "bindings.json"
"""

SOURCE = """\
module tiny

pub block Model<Vocab: Dim, H: Dim> {
    param table: Tensor[Vocab, H; f32]

    /// The rows of `tokens`, doubled.
    pub entry forward<S: Dim>(tokens: Tensor[S; i32]) -> Tensor[S, H; f32] {
        let row[s, h] = table[tokens[s], h] * 2
        return row
    }
}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text(README)
    (folder / "nest.toml").write_text(CARD)
    (folder / "linnet.toml").write_text(
        '[package]\nname = "tiny"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    )
    (folder / "src" / "lib.linnet").write_text(SOURCE)
    (folder / "bindings.json").write_text('{"table": "model.table"}')
    return folder


def weights(folder: Path, shape: tuple[int, ...] = (7, 4), dtype: str = "f32") -> Path:
    from linnet.weights.dtypes import bytes_of
    from linnet.weights.safetensors import save

    item = ("model.table", dtype, shape, bytes(bytes_of(dtype, shape)))
    return save(folder, [item])[0]


def problems(report: Report, step: str) -> str:
    return "\n".join(p for s in report.steps if s.name == step for p in s.problems)


def test_a_sound_package_is_fine(tiny: Path, tmp_path: Path) -> None:
    report = check_folder(tiny, weights=[weights(tmp_path / "w")])
    assert report.ok, report.text()
    assert [step.name for step in report.steps] == [
        "card", "readme", "files", "source", "sizes", "tensors", "load", "forward",
    ]  # fmt: skip
    assert "[3, 4] float32 at S=3" in report.text()


def test_the_zoo_is_fine_but_for_the_entries(models: Path) -> None:
    for folder in sorted(models.iterdir()):
        if (folder / "nest.toml").is_file():
            report = check_folder(folder, online=False, run=False)
            assert report.ok, report.text()


@pytest.mark.parametrize(
    ("change", "step", "said"),
    [
        (("nest.toml", 'name = "tiny"', 'name = "other"'), "card", "the folder is called `tiny`"),
        (("nest.toml", 'license = "MIT"\n', ""), "card", "license: missing"),
        (("nest.toml", "[generics]\nVocab = 7\nH = 4\n", ""), "card", "[generics]: missing"),
        (("nest.toml", "H = 4", 'H = "four"'), "card", "unknown dtype 'four'"),
        (("nest.toml", "H = 4", "G = 4"), "sizes", "`G`"),
        (("nest.toml", 'entry = "forward"', 'entry = "ward"'), "source", "no entry `ward`"),
        (("README.md", README, "# Tiny\n"), "readme", "expected 60 or more"),
        (("src/lib.linnet", "table[tokens[s], h]", "table[h, s]"), "source", "error"),
        (("bindings.json", "{", '{"nothing": "model.x", '), "tensors", "no such parameter"),
        (("bindings.json", '"table": "model.table"', ""), "tensors", "nothing is bound to `table`"),
    ],
)
def test_what_is_wrong_is_named(
    tiny: Path, change: tuple[str, str, str], step: str, said: str
) -> None:
    name, before, after = change
    text = (tiny / name).read_text()
    assert before in text
    (tiny / name).write_text(text.replace(before, after))
    report = check_folder(tiny, online=False, run=False)
    assert said in problems(report, step), report.text()


def test_tensors_are_compared_from_headers_alone(tiny: Path, tmp_path: Path) -> None:
    wrong = check_folder(tiny, weights=[weights(tmp_path / "a", (4, 7))], run=False)
    assert "found [4, 7], expected [7, 4] (transposed)" in problems(wrong, "tensors")
    wide = check_folder(tiny, weights=[weights(tmp_path / "b", dtype="f64")], run=False)
    assert "found f64, expected f32" in problems(wide, "tensors")
    narrow = check_folder(tiny, weights=[weights(tmp_path / "c", dtype="bf16")], run=False)
    assert narrow.ok and "stored as bf16 and widened" in narrow.text()


def test_links_and_huge_files_are_refused(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tiny / "src" / "secret.txt").symlink_to(tmp_path / "secret")
    with (tiny / "picture.png").open("wb") as file:
        file.truncate(1 << 30)
    report = check_folder(tiny)
    assert "src/secret.txt: a link that leads out" in problems(report, "files")
    assert "picture.png: 1,073,741,824 bytes" in problems(report, "files")
    assert report.steps[-1].name == "files"  # nothing of it is read any further


def test_an_entry_that_loops_for_ever_fails_in_time(tiny: Path) -> None:
    endless = "        var n = 0\n        while n >= 0 {\n            n = (n + 1) % 5\n        }\n"
    source = SOURCE.replace("        let row", f"{endless}        let row")
    source = source.replace("h] * 2", "h] * cast<f32>(n)")
    (tiny / "src" / "lib.linnet").write_text(source)
    before = time.monotonic()
    report = check_folder(tiny, online=False, seconds=2)
    assert "stopped after 2 seconds: it does not end" in problems(report, "forward"), report.text()
    assert time.monotonic() - before < 60  # beside other work; alone it takes five


def test_a_step_that_waits_is_stopped_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no processor time, as on a machine that gives it none."""
    code = (
        "from linnet.nest.checks.limits import begin\nimport time\nbegin('wait')\ntime.sleep(99)\n"
    )
    (tmp_path / "sleeper.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = time.monotonic()
    (record,) = run_limited("sleeper", [], seconds=0.5, memory=1 << 30)
    assert record["step"] == "wait" and "it does not end" in record["problems"][0]
    assert time.monotonic() - before < 30


def test_an_entry_that_takes_all_memory_fails(tiny: Path) -> None:
    source = SOURCE.replace("Tensor[S, H; f32] {", "Tensor[1000000000000; i64] {")
    source = source.replace("return row", "return iota<i64>(1000000000000) * 2")
    (tiny / "src" / "lib.linnet").write_text(source)
    report = check_folder(tiny, online=False)
    assert "memory" in problems(report, "forward"), report.text()


def test_the_command_prints_json_and_its_status(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nest", "check", "--offline", "--no-run", "--json", str(tiny)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reports"][0]["ok"] is True
    (tiny / "README.md").unlink()
    assert main(["nest", "check", "--offline", "--no-run", str(tiny)]) == 1
    assert "README.md: missing" in capsys.readouterr().out
