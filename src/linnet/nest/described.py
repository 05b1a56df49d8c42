"""A folder of weights that names its model, as `linnet quantize` writes it: `linnet.json`.

    {"version": 1, "model": "smollm2-135m-instruct", "generics": {"Layers": 30}, "root": null,
     "quantize": "int4", "embedding": 8}

`model` is a name of the zoo, or the path of a folder or file on the machine that wrote it;
`generics` are those that the card says otherwise. It is data: nothing in it is run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from linnet.errors import PackageError, WeightsError
from linnet.weights.json_text import JsonError, read_json
from linnet.weights.packed import BITS

FILE = "linnet.json"
LIMIT = 1 << 20
VERSION = 1


@dataclass(frozen=True)
class Described:
    """What a folder says of itself; `weights` is the folder."""

    model: str
    weights: Path
    generics: dict[str, int | str] = field(default_factory=dict)
    root: str | None = None
    quantize: str | None = None
    embedding: int = 8

    def home(self) -> Path:
        """Where the model is that it names. Raises PackageError."""
        from linnet.nest.zoo import find_model

        try:
            return find_model(self.model)
        except PackageError as error:
            raise PackageError(f"{self.weights / FILE}: {error}") from error


def described(model: str | Path) -> Described | None:
    """What a folder without a card or package says of itself; None for everything else.

    Raises WeightsError for a `linnet.json` that is not one.
    """
    folder = Path(model)
    path = folder / FILE
    try:
        if not folder.is_dir() or not path.is_file():
            return None
        if (folder / "nest.toml").is_file() or (folder / "linnet.toml").is_file():
            return None
        if path.stat().st_size > LIMIT:
            raise WeightsError(f"{path}: larger than {LIMIT:,} bytes")
        found = read_json(path.read_bytes())
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except JsonError as error:
        raise WeightsError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{path}: expected an object")

    if found.get("version", VERSION) != VERSION:
        raise WeightsError(
            f"{path}: version {found['version']!r} of what a folder says of itself; this linnet "
            f"reads version {VERSION}"
        )

    def get(key: str, kinds: type | tuple[type, ...], default: object) -> object:
        value = found.get(key, default)
        if not (isinstance(value, kinds) or value is default) or isinstance(value, bool):
            raise WeightsError(f"{path}: `{key}` is {value!r}, which is not expected there")
        return value

    name, generics = get("model", str, None), get("generics", dict, {})
    root, quantize = get("root", str, None), get("quantize", str, None)
    embedding = get("embedding", int, 8)
    assert isinstance(generics, dict)
    if quantize not in (None, *BITS) or embedding not in (4, 8):
        raise WeightsError(
            f"{path}: `quantize` is {quantize!r} with embeddings in {embedding!r} bits; expected "
            f"one of {', '.join(BITS)}, and 4 or 8"
        )
    if not name:
        raise WeightsError(f"{path}: names no `model`")
    for key, value in generics.items():
        if type(value) not in (int, str):
            raise WeightsError(f"{path}: generic `{key}` is {value!r}; expected a number or a name")
    return Described(str(name), folder, generics, root, quantize, embedding)  # type: ignore[arg-type]


def describe(folder: Path, about: Described) -> None:
    """Write what a folder is."""
    text = {"version": VERSION, **asdict(about)}
    del text["weights"]
    (folder / FILE).write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
