"""`linnet nest index`, and `linnet list` and `linnet show` over a folder, a file and an address."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from linnet.cli.main import main
from linnet.errors import PackageError
from linnet.nest.registry import open_registry


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registry") / "index.json"
    names = ("gpt2", "qwen3.6-35b-a3b", "smollm2-135m-instruct")
    assert main(["nest", "index", "-o", str(path), *(str(models / name) for name in names)]) == 0
    return path


@pytest.fixture
def address(index: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(index.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_index_has_what_a_page_shows(index: Path) -> None:
    document = json.loads(index.read_text())
    assert document["version"] == 1
    model = next(m for m in document["models"] if m["name"] == "qwen3.6-35b-a3b")
    assert model["parameters"] == 34_660_610_688
    assert 3e9 < model["active_parameters"] < 4e9
    assert model["bytes_by_dtype"] == {"bf16": 69_321_221_376}
    assert len(model["entries"]) == 6 and model["entries"][0]["name"] == "forward"
    assert "tokens: Tensor[B, S; i32]" in model["entries"][0]["signature"]
    assert {"README.md", "src/lib.linnet"} <= {file["path"] for file in model["files"]}
    assert all(len(file["sha256"]) == 64 for file in model["files"])
    assert len(model["weights"]["files"]) == 26


def test_list_and_show_read_any_registry(
    index: Path, address: str, models: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for where in (str(index), str(index.parent), address, f"{address}/index.json"):
        assert main(["list", "--registry", where]) == 0
        out = capsys.readouterr().out
        assert "qwen3.6-35b-a3b" in out and "34.7B" in out
    monkeypatch.setenv("LINNET_REGISTRY", address)
    assert main(["show", "gpt2"]) == 0
    out = capsys.readouterr().out
    assert "124M" in out and "decode_rows(" in out and "src/layer.linnet" in out
    assert main(["list", "--family", "gpt2", "--json"]) == 0
    assert [m["name"] for m in json.loads(capsys.readouterr().out)["models"]] == ["gpt2"]
    assert main(["list", "--registry", str(models), "--task", "image-classification"]) == 0
    assert "vit-base-patch16-224" in capsys.readouterr().out


def test_the_zoo_is_listed_with_what_was_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("smollm2-135m-instruct "))
    assert row.split()[1:5] == ["text-generation", "135M", "269", "MB"]


def test_show_checks_a_folder_of_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "qwen3.8-27b"]) == 0
    out = capsys.readouterr().out
    assert "26.9B (26,895,998,464)" in out and "prefill_slots" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "version 1"),
        ("{", "not an index"),
        ('{"version": 2}', "found 2"),
        ('{"version": 1, "models": {}}', "no list"),
        ('{"version": 1, "models": [{}]}', "`name` is missing"),
        ('{"version": 1, "models": [{"name": "a", "tags": 3}]}', "`tags` is int"),
        ('{"version": 1, "models": [{"name": "a", "entries": [{}]}]}', "without name"),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(PackageError, match=said):
        open_registry(str(tmp_path))


def test_an_index_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = {"name": "a", "title": "\x1b[2Jgone\x07", "summary": "b\x1b]0;x\x07"}
    (tmp_path / "index.json").write_text(json.dumps({"version": 1, "models": [model]}))
    assert main(["list", "--registry", str(tmp_path)]) == 0
    assert main(["show", "a", "--registry", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_registry_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--registry", "http://127.0.0.1:1/x"]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert main(["show", "qwen3.9", "--registry", "nowhere"]) == 1
    assert "no such registry" in capsys.readouterr().err
    assert main(["show", "qwen3.8"]) == 1
    assert "did you mean `qwen3.8-27b`" in capsys.readouterr().err
