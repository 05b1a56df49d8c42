"""Files of a repository on a hub that speaks Hugging Face's protocol.

`huggingface_hub` does the fetching: its cache, its offline mode (HF_HUB_OFFLINE), its endpoint
(HF_ENDPOINT) and its token (HF_TOKEN) count here too. A file lies under its name in the cache
only once it is whole; one that was broken off goes on where it stopped.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.errors import WeightsError
from linnet.weights.amounts import figures

INDEX = "model.safetensors.index.json"
ONE = "model.safetensors"
# What belongs to a model's text side, taken where the repository has it.
TEXT = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "generation_config.json", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json",
)  # fmt: skip
TRIES = 4  # for each file; what has arrived is kept between them
RESERVE = 256 << 20  # bytes left free on the disk
_TIMEOUT = 10.0  # seconds for an answer about the repository


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """`here` is where the cache has it, whole, or None."""

    name: str
    size: int
    here: Path | None


@dataclass(frozen=True, slots=True)
class Pull:
    """What will be fetched: `commit` is what `revision` names now."""

    repo: str
    revision: str
    commit: str
    files: tuple[RemoteFile, ...]
    cache: Path

    @property
    def total(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def missing(self) -> int:
        """Bytes to fetch; of a file that was broken off all of it."""
        return sum(file.size for file in self.files if file.here is None)

    def summary(self) -> str:
        count = len(self.files)
        text = f"{self.repo} at {self.commit[:12]}: {count} file{'s' * (count != 1)}, "
        text += figures(self.total)
        if self.missing == 0:
            return f"{text}, all here already"
        if self.missing < self.total:
            text += f", {figures(self.missing)} of it to fetch"
        return f"{text}, into {self.cache}"


def plan_pull(repo: str, revision: str | None, files: Sequence[str] = ()) -> Pull:
    """Ask the hub what there is. `files` are the weights; without them `model.safetensors`, or
    what its index names. Raises `WeightsError`, also where the network or the package is missing.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache

    revision = revision or "main"
    with _hub_errors(repo, revision):
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=_TIMEOUT)
    commit = info.sha or revision
    sizes: dict[str, int | None] = {
        sibling.rfilename: sibling.lfs.size if sibling.lfs is not None else sibling.size
        for sibling in info.siblings or []
    }
    names = list(files) or _weight_names(repo, commit, sizes)
    problems = [
        f"{repo} at {revision}: no file {name}" for name in names if sizes.get(name) is None
    ]
    if problems:
        raise WeightsError("\n".join(problems), problems)
    names += [name for name in TEXT if sizes.get(name) is not None and name not in names]
    found = []
    for name in names:
        size = sizes[name] or 0
        here = try_to_load_from_cache(repo, name, revision=commit)
        path = Path(here) if isinstance(here, str) else None
        if path is not None and (not path.is_file() or path.stat().st_size != size):
            path = None
        found.append(RemoteFile(name, size, path))
    return Pull(repo, revision, commit, tuple(found), Path(constants.HF_HUB_CACHE))


def _weight_names(repo: str, commit: str, sizes: dict[str, int | None]) -> list[str]:
    if ONE in sizes:
        return [ONE]
    if INDEX not in sizes:
        raise WeightsError(
            f"{repo}: neither {ONE} nor {INDEX}; expected safetensors, or `files` in the card"
        )
    from linnet.weights.json_text import JsonError, read_json

    path = _download(repo, INDEX, commit, commit)
    try:
        document = read_json(path.read_bytes())
    except JsonError as error:
        raise WeightsError(f"{path}: {error}") from error
    named = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(named, dict) or not all(isinstance(f, str) for f in named.values()):
        raise WeightsError(f"{path}: `weight_map` is no object of tensor to file")
    return [INDEX, *sorted(set(named.values()))]


def check_disk(pull: Pull) -> None:
    """Raises `WeightsError` where what is missing does not fit the cache's disk."""
    folder = pull.cache
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if pull.missing + RESERVE > free:
        raise WeightsError(
            f"{pull.repo}: {figures(pull.missing)} are to be fetched into {pull.cache}, where "
            f"{figures(free)} are free; HF_HUB_CACHE can name another place"
        )


def fetch(pull: Pull, say: Callable[[str], None] | None = None) -> list[Path]:
    """Fetch what is missing; the files in the pull's order. Raises `WeightsError`.

    Progress bars are shown on a terminal only.
    """
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    check_disk(pull)
    (enable_progress_bars if sys.stderr.isatty() else disable_progress_bars)()
    paths = []
    for file in pull.files:
        path = file.here
        if path is None:
            if say is not None:
                say(f"{file.name}: {figures(file.size)}")
            path = _download(pull.repo, file.name, pull.revision, pull.commit)
            found = path.stat().st_size
            if found != file.size:
                raise WeightsError(
                    f"{path}: {found:,} bytes, {pull.repo} has {file.size:,}; remove it and try "
                    "again"
                )
        paths.append(path)
    return paths


def _download(repo: str, name: str, revision: str, commit: str) -> Path:
    """One file; a connection that breaks is tried again from where it stopped."""
    from huggingface_hub import hf_hub_download

    for attempt in range(1, TRIES + 1):
        try:
            with _hub_errors(repo, revision, name):
                # A branch is followed no further than the commit that the plan was made for; the
                # cache then knows the branch too.
                path = Path(hf_hub_download(repo, name, revision=commit))
                _remember(path, revision, commit)
                return path
        except Interrupted:
            if attempt == TRIES:
                raise
            time.sleep(0.2 * attempt)
    raise AssertionError("unreachable")


def _remember(path: Path, revision: str, commit: str) -> None:
    """Note in the cache which commit a branch was, as the hub's own tools do."""
    for folder in path.parents:
        if folder.name == commit and folder.parent.name == "snapshots":
            refs = folder.parent.parent / "refs"
            name = refs / revision
            if revision != commit and name.resolve().is_relative_to(refs.resolve()):
                name.parent.mkdir(parents=True, exist_ok=True)
                name.write_text(commit)
            return


def remote_headers(
    repo: str, revision: str | None, files: Sequence[str] = ()
) -> dict[str, dict[str, list[Any]]]:
    """The tensors of a repository by ranges of its safetensors files, no weights: file → name →
    [dtype as the format writes it, shape]. Raises `WeightsError`."""
    from huggingface_hub import HfApi

    pull = plan_pull(repo, revision, files)
    api = HfApi()
    result: dict[str, dict[str, list[Any]]] = {}
    for file in pull.files:
        if file.name.endswith(".safetensors"):
            with _hub_errors(repo, pull.revision, file.name):
                found = api.parse_safetensors_file_metadata(
                    repo, file.name, revision=pull.commit, timeout=_TIMEOUT
                )
            result[file.name] = {n: [t.dtype, list(t.shape)] for n, t in found.tensors.items()}
    return result


def fetch_small(repo: str, name: str, commit: str) -> Path:
    """One file of a repository, such as its config. Raises `WeightsError`."""
    return _download(repo, name, commit, commit)


class Interrupted(WeightsError):
    """The connection broke or the hub was too busy; another try may do."""


@contextmanager
def _hub_errors(repo: str, revision: str, file: str | None = None) -> Iterator[None]:
    """What the hub's package raises as one `WeightsError` that says what to do."""
    from huggingface_hub import errors

    where = f"{repo} at {revision}" + (f": {file}" if file else "")
    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise WeightsError(f"{where}: not fetched: HF_HUB_OFFLINE is set") from error
    except errors.GatedRepoError as error:
        raise WeightsError(
            f"{where}: its owner asks for an agreement first: accept it on the repository's page, "
            "and set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise WeightsError(
            f"{where}: no such repository, or a private one that HF_TOKEN does not open"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise WeightsError(f"{where}: the repository has no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        raise Interrupted(f"{where}: the hub cannot be reached: {_reason(error)}") from error
    except errors.EntryNotFoundError as error:
        raise WeightsError(f"{where}: no such file there") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        kind = Interrupted if status >= 500 or status in (0, 408, 429) else WeightsError
        raise kind(f"{where}: the hub answers {status}: {_reason(error)}") from error
    except (errors.HTTPError, ConnectionError, TimeoutError) as error:
        raise Interrupted(f"{where}: the hub cannot be reached: {_reason(error)}") from error
    except OSError as error:
        kind = Interrupted if "Consistency check" in str(error) else WeightsError
        raise kind(f"{where}: {_reason(error)}") from error
    except ValueError as error:
        raise WeightsError(f"{where}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause).strip().splitlines()
    return text[0][:300] if text else type(cause).__name__
