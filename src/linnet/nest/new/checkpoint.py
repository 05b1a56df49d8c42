"""What a new package is made from: a folder with a checkpoint, or a repository's headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.errors import WeightsError
from linnet.nest.new.gguf_config import config_of, is_gguf
from linnet.weights.importer_file import Rule
from linnet.weights.json_text import JsonError, read_json
from linnet.weights.tensor_info import TensorInfo

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_SNAPSHOT = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})$")
_LIMIT = 16 << 20


@dataclass
class Origin:
    """`folder` is None for a repository of which only headers were read."""

    name: str
    config: Mapping[str, Any]
    tensors: dict[str, TensorInfo]
    files: list[str]
    folder: Path | None = None
    repo: str | None = None
    revision: str | None = None
    license: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    is_gguf: bool = False

    def adapted(self, wanted: Iterable[str], rules: Sequence[Rule] = ()) -> dict[str, TensorInfo]:
        """The tensors with those that an importer makes under the names wanted."""
        from linnet.weights.header import Headers

        if self.is_gguf:
            return self.tensors
        headers = Headers(dict(self.tensors))
        headers.adapt(wanted, rules)
        return headers.tensors


def read_origin(place: str) -> Origin:
    """Raises `WeightsError` for what is neither a folder with a config and weights, nor a GGUF
    file, nor a repository that can be read."""
    path = Path(place)
    if path.is_dir():
        alone = sorted(path.glob("*.gguf"))
        if len(alone) == 1 and not (path / "config.json").is_file():
            return _gguf(alone[0])
        return _folder(path)
    if is_gguf(path):
        return _gguf(path)
    if _REPO.fullmatch(place):
        return _repository(place)
    raise WeightsError(
        f"{place}: expected a folder with config.json, a GGUF file, or a repository `owner/name`"
    )


def _gguf(path: Path) -> Origin:
    """Sizes and constants from the file's own metadata. Raises CardError."""
    from linnet.weights.checkpoint import open_checkpoint
    from linnet.weights.gguf import GgufFile

    file = GgufFile(path)
    try:
        config = config_of(file)
        said = file.metadata("general.name")
        license = file.metadata("general.license")
    finally:
        file.close()
    with open_checkpoint(path) as checkpoint:
        tensors = dict(checkpoint.tensors)
    name = said if isinstance(said, str) and said.strip() else path.stem
    origin = Origin(name[:200], config, tensors, [path.name], path.parent, is_gguf=True)
    origin.license = license if isinstance(license, str) else None
    return origin


def _folder(path: Path) -> Origin:
    from linnet.weights.checkpoint import open_checkpoint

    config = _read(path / "config.json")
    if config is None:
        raise WeightsError(f"{path}: no config.json there; it says what family a checkpoint is of")
    with open_checkpoint(path) as checkpoint:
        if checkpoint.is_gguf:
            raise WeightsError(f"{path}: give the GGUF file itself: its metadata is its config")
        tensors = dict(checkpoint.tensors)
        files = [file.name for file in checkpoint.files]
    origin = Origin(path.name, config, tensors, files, path)
    if found := _SNAPSHOT.search(path.resolve().as_posix()):
        origin.repo, origin.revision = f"{found[1]}/{found[2]}", found[3]
    stated = config.get("_name_or_path")
    if origin.repo is None and isinstance(stated, str) and _REPO.fullmatch(stated):
        origin.repo = stated
    readme = path / "README.md"
    if readme.is_file() and readme.stat().st_size < _LIMIT:
        origin.license = _license(readme.read_text(encoding="utf-8", errors="replace"))
    pooling = _read(path / "1_Pooling" / "config.json") or {}
    origin.extra["pooling_mean"] = bool(pooling.get("pooling_mode_mean_tokens"))
    return origin


def _repository(repo: str) -> Origin:
    from linnet.weights.header import Headers
    from linnet.weights.hub import fetch_small, plan_pull, remote_headers

    pull = plan_pull(repo, None)
    document = remote_headers(repo, pull.commit)
    config = _read(fetch_small(repo, "config.json", pull.commit))
    if config is None:
        raise WeightsError(f"{repo}: config.json is no object")
    tensors = Headers.of(document).tensors
    return Origin(
        repo.partition("/")[2], config, tensors, sorted(document), None, repo, pull.commit
    )


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file() or path.stat().st_size > _LIMIT:
        return None
    try:
        value = read_json(path.read_bytes())
    except JsonError as error:
        raise WeightsError(f"{path}: {error}") from error
    return value if isinstance(value, dict) else None


def _license(readme: str) -> str | None:
    """From the front matter of a model's README."""
    head = re.match(r"---\n(.*?)\n---", readme, re.DOTALL)
    found = re.search(r"^license:\s*([\w.+-]+)\s*$", head[1], re.MULTILINE) if head else None
    return found[1] if found else None


def bindings_text(bindings: Mapping[str, str]) -> str:
    return json.dumps(bindings, indent=2, ensure_ascii=False) + "\n"
