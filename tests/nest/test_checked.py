"""What a model was checked against: noted beside its card, shown on its page, and only data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from linnet.cli.main import main
from linnet.errors import PackageError
from linnet.nest.card import read_card
from linnet.nest.checked import (
    FILE,
    digest,
    figures,
    read_checked,
    record_check,
    record_parity,
)
from linnet.nest.pages.site import build

RESULT = {
    "reference": "transformers 5.0", "weights": "a random checkpoint", "entry": "forward",
    "dtype": "f32", "result": 3e-6, "tolerance": 1e-4, "blocks": 7,
}  # fmt: skip


@pytest.fixture
def gpt2(tmp_path: Path, models: Path) -> Path:
    folder = tmp_path / "gpt2"
    shutil.copytree(models / "gpt2", folder)
    (folder / FILE).unlink(missing_ok=True)
    return folder


def page(folder: Path) -> str:
    files, refused = build([folder])
    assert refused == {}
    return files["gpt2/index.html"]


def test_what_is_noted_stands_on_the_page(gpt2: Path) -> None:
    assert "Noted by" not in page(gpt2)
    assert main(["nest", "check", "--offline", "--no-run", "--record", str(gpt2)]) == 0
    card = read_card(gpt2)
    steps = read_checked(gpt2).check["steps"]
    record_check(card, steps, {"model.safetensors": 548_105_171})
    record_parity(card, RESULT)
    record_parity(card, {**RESULT, "result": 2e-6})
    assert [p["result"] for p in read_checked(gpt2).parity] == [2e-6]
    html = page(gpt2)
    assert "548.1 MB" in html and "Noted by <code>nest check</code>" in html
    assert "within 2.0e-06 of the largest magnitude of transformers 5.0" in html
    assert "earlier state" not in html
    source = gpt2 / "src" / "lib.linnet"
    source.write_text(source.read_text() + "\n")
    assert "of an earlier state of these files" in page(gpt2)


def test_a_record_is_of_what_the_check_depends_on(tmp_path: Path, models: Path) -> None:
    for name in ("smollm2-135m-instruct", "llama-3.2-1b-instruct"):
        shutil.copytree(models / name, tmp_path / name)
    own, other = tmp_path / "llama-3.2-1b-instruct", tmp_path / "smollm2-135m-instruct"
    first = digest(read_card(own))
    for path, old, new in (
        (own / "README.md", "#", "# A"),
        (own / "nest.toml", 'title = "', 'title = "A '),
        (own / "nest.toml", 'summary = "', 'summary = "A '),
        (other / "bindings.json", "{", "{ "),  # the other's tensors
    ):
        path.write_text(path.read_text().replace(old, new, 1))
        assert digest(read_card(own)) == first, path
    seen = {first}
    for path, old, new in (
        (own / "nest.toml", "Layers = 16", "Layers = 8"),
        (own / "bindings.json", "{", "{ "),
        (other / "src" / "attention.linnet", "\n", "\n\n"),  # the package it depends on
        (own / "src" / "lib.linnet", "\n", "\n\n"),
    ):
        path.write_text(path.read_text().replace(old, new, 1))
        seen.add(digest(read_card(own)))
    assert len(seen) == 5


def test_the_records_of_the_zoo_are_of_its_files(models: Path) -> None:
    for folder in sorted(path.parent for path in models.glob("*/nest.toml")):
        found = figures(read_card(folder))
        assert found.get("parameters"), f"note it again: linnet nest check --record {folder}"
        assert sum(found["bytes_by_dtype"].values()) >= found["parameters"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected an object of version 1"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"version": 1, "sizes": {"a": -1}, "check": {}, "parity": []}', "sizes: expected"),
        ('{"version": 1, "sizes": {}, "check": [], "parity": []}', "check: expected"),
        ('{"version": 1, "sizes": {}, "check": {"steps": [1]}, "parity": []}', "expected objects"),
        (
            '{"version": 1, "sizes": {}, "check": {}, "parity": [{"result": "x"}]}',
            "parity: expected",
        ),
        (" " * (1 << 21), "are too many"),
    ],
)
def test_a_file_that_is_not_as_expected_is_refused(gpt2: Path, text: str, said: str) -> None:
    (gpt2 / FILE).write_text(text)
    with pytest.raises(PackageError) as caught:
        read_checked(gpt2)
    assert said in str(caught.value) and FILE in str(caught.value)
    assert "gpt2" in build([gpt2])[1]  # its page is refused, the site stands


def test_text_from_it_is_only_text(gpt2: Path) -> None:
    record_parity(read_card(gpt2), {**RESULT, "weights": "<script>alert(1)</script>"})
    record_check(
        read_card(gpt2),
        [{"name": "<b>", "detail": '"><img src=x>', "ok": True, "skipped": False}],
        {"model.safetensors": 1},
    )
    html = page(gpt2)
    assert "<script>alert" not in html and "<img src=x>" not in html
    document = json.loads((gpt2 / FILE).read_text())
    document["check"]["steps"] *= 10_000
    (gpt2 / FILE).write_text(json.dumps(document)[: 1 << 19])
    assert "gpt2" in build([gpt2])[1]


def test_a_link_out_of_the_folder_is_refused(gpt2: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text('{"version": 1}')
    (gpt2 / FILE).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(PackageError, match="leads out"):
        read_checked(gpt2)
