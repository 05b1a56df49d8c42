"""A checkpoint: one or several files of weights as one set of named tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import SIZES, bytes_of, convert
from linnet.weights.fp8 import read_scaled, scale_of
from linnet.weights.gguf import GgufFile
from linnet.weights.gptq import Integers, integers, read_integers
from linnet.weights.importer_file import Rule
from linnet.weights.importers import Recipe, declared, recipes
from linnet.weights.json_text import JsonError, read_json
from linnet.weights.moved import read_following, read_moved
from linnet.weights.packed import BITS, Packed, read_packed
from linnet.weights.room import room
from linnet.weights.safetensors import INDEX, SafetensorsFile
from linnet.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    from linnet.weights.resident import Brought

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")


class Checkpoint:
    """Named tensors of safetensors files or of one GGUF file. A context manager."""

    def __init__(self, sources: Sequence[SafetensorsFile | GgufFile]):
        self._sources = list(sources)
        self.files: list[Path] = [source.path for source in sources]
        self.tensors: dict[str, TensorInfo] = {}
        self._source: dict[str, SafetensorsFile | GgufFile] = {}
        self._recipes: dict[str, Recipe] = {}
        self._parts: dict[str, TensorInfo] = {}
        doubled: list[str] = []
        for source in sources:
            for name, info in source.tensors.items():
                if name in self.tensors:
                    doubled.append(
                        f"tensor `{name}` stands twice: in {self.tensors[name].file} and in "
                        f"{info.file}"
                    )
                self.tensors[name] = info
                self._source[name] = source
        if doubled:
            raise WeightsError("\n".join(doubled), doubled)
        self._scaled: dict[str, TensorInfo] = {}
        for name, info in list(self.tensors.items()):
            scale = scale_of(info, self.tensors)
            if scale is not None:
                self._scaled[name] = self.tensors.pop(scale)
                self.tensors[name] = replace(info, importer=True)
        self._integers = integers(self.tensors)
        for name, weight in self._integers.items():
            for part in weight.parts.values():
                del self.tensors[part.name]
            self.tensors[name] = weight.info

    @property
    def is_gguf(self) -> bool:
        return any(isinstance(source, GgufFile) for source in self._sources)

    @property
    def scales(self) -> dict[str, TensorInfo]:
        """Scales, and other parts of packed tensors, which are not offered by themselves."""
        files = [source for source in self._sources if isinstance(source, SafetensorsFile)]
        found = {name: info for file in files for name, info in file.scales.items()}
        found |= {info.name: info for info in self._scaled.values()}
        parts = [part for weight in self._integers.values() for part in weight.parts.values()]
        return found | {part.name: part for part in parts}

    def adapt(self, wanted: Iterable[str], rules: Sequence[Rule] = ()) -> None:
        """Offer, under the names that are wanted, what this checkpoint has in another layout; and
        what the rules of an importer make of it.

        The tensors that an importer uses are then no longer offered by themselves. Raises
        `WeightsError` where the rules do not fit. A GGUF file has names of its own, and no rules.
        """
        if self.is_gguf:
            return
        wanted = list(wanted)
        self._offer(declared(rules, wanted, self.tensors))
        stored = {name: info for name, info in self.tensors.items() if name not in self._recipes}
        missing = [name for name in wanted if name not in self.tensors]
        self._offer(recipes(missing, stored))

    def _offer(self, made: dict[str, Recipe]) -> None:
        for recipe in made.values():
            for part in recipe.parts:
                if part in self.tensors:
                    self._parts[part] = self.tensors.pop(part)
        self._recipes |= made
        self.tensors |= {name: recipe.info for name, recipe in made.items()}

    @property
    def adapted(self) -> dict[str, tuple[str, ...]]:
        """The tensors that importers made, with the stored ones that each is made of."""
        return {name: recipe.parts for name, recipe in self._recipes.items()}

    def read(
        self, name: str, dtype: str | None = None, out: memoryview | None = None
    ) -> memoryview:
        """A tensor's packed elements as writable flat bytes, row-major.

        Without `dtype`, or with the stored one, no copy: a private mapping of the file, whose
        pages are this process's own once written. With another float dtype, converted (rounded
        to nearest even) a bounded part at a time into `out`, or into fresh memory, and the
        pages read are given back.
        """
        if name not in self.tensors:
            raise WeightsError(f"no tensor `{name}` in {self._where()}")
        recipe = self._recipes.get(name)
        if recipe is None:
            return self._read(self.tensors[name], name, dtype, out)
        if recipe.follows and len(recipe.parts) == 1:
            return self._read(self._parts[recipe.parts[0]], recipe.parts[0], dtype, out)
        infos = [self._parts[part] for part in recipe.parts]
        make = read_following if recipe.follows else read_moved
        return make(recipe, infos, self._read_part, dtype or recipe.info.dtype, out)

    def _read_part(self, name: str, dtype: str | None, out: memoryview | None) -> memoryview:
        return self._read(self._parts[name], name, dtype, out)

    def packed(self, name: str) -> Packed:
        """A tensor that the file holds packed, as it lies there: no copy where rows keep their
        places. Raises `WeightsError` where it is not packed."""
        if name not in self.tensors:
            raise WeightsError(f"no tensor `{name}` in {self._where()}")
        recipe = self._recipes.get(name)
        stored = recipe.parts[0] if recipe and len(recipe.parts) == 1 else name
        return self._source[stored].packed(stored)

    def _read(
        self, info: TensorInfo, name: str, dtype: str | None, out: memoryview | None
    ) -> memoryview:
        if name in self._integers:
            return self._read_integers(self._integers[name], dtype or "f32", out)
        source = self._source[name]
        if isinstance(source, GgufFile):
            return source.read(name, dtype, out)
        if name in self._scaled:
            return self._read_fp8(source, info, self._scaled[name], dtype or "f32", out)
        if info.dtype in BITS:
            return read_packed(source.packed(name), dtype or "f32", out)
        dtype = dtype or info.dtype
        if info.dtype not in SIZES:
            raise WeightsError(
                f"{info.file}: tensor `{name}` is stored as {info.dtype}, which cannot be loaded"
            )
        if dtype == info.dtype and out is None:
            view = source.view(name)
            if dtype == "bool" and bytes(view).strip(b"\x00\x01"):
                raise WeightsError(f"{info.file}: tensor `{name}` is bool, but holds other bytes")
            return view
        if out is None:
            out = room(bytes_of(dtype, info.shape))
        try:
            convert(source.peek(name), info.dtype, dtype, out)
        except WeightsError as error:
            raise WeightsError(f"{info.file}: tensor `{name}`: {error}") from error
        source.release(name)
        return out

    def _read_fp8(
        self,
        source: SafetensorsFile,
        info: TensorInfo,
        scale: TensorInfo,
        dtype: str,
        out: memoryview | None,
    ) -> memoryview:
        beside = self._source[scale.name]
        assert isinstance(beside, SafetensorsFile)
        try:
            found = read_scaled(
                source.peek(info.name), info, beside.peek(scale.name), scale, dtype, out
            )
        except WeightsError as error:
            raise WeightsError(f"{info.file}: tensor `{info.name}`: {error}") from error
        source.release(info.name)
        return found

    def _read_integers(self, weight: Integers, dtype: str, out: memoryview | None) -> memoryview:
        def peek(name: str) -> memoryview:
            source = self._source[name]
            assert isinstance(source, SafetensorsFile)
            return source.peek(name)

        try:
            return read_integers(weight, peek, dtype, out)
        except WeightsError as error:
            info = weight.info
            raise WeightsError(f"{info.file}: tensor `{info.name}`: {error}") from error

    def forget(self, name: str) -> None:
        """Give back the resident pages of a tensor that was read and is not used any more."""
        recipe = self._recipes.get(name)
        for part in recipe.parts if recipe else (name,):
            source = self._source.get(part)
            if isinstance(source, SafetensorsFile):
                source.forget(part)

    def bring_in(self, wanted: bool | None = None) -> Brought:
        """Bring in what was handed out of the mapped files, in large pages, at the same
        addresses. None: where memory has room to spare (`resident.bring_in`)."""
        from linnet.weights.resident import bring_in

        return bring_in([source.lent for source in self._sources], wanted)

    def metadata(self, key: str, default: Any = None) -> Any:
        """A value of GGUF metadata, or of the header of a safetensors file."""
        for source in self._sources:
            if isinstance(source, GgufFile):
                return source.metadata(key, default)
            if key in source.attributes:
                return source.attributes[key]
        return default

    def close(self) -> None:
        """Close the files. Memory handed out by `read` stays valid."""
        for source in self._sources:
            source.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _where(self) -> str:
        first = str(self.files[0]) if self.files else "an empty checkpoint"
        return first + (f" and {len(self.files) - 1} more" if len(self.files) > 1 else "")


def open_checkpoint(weights: str | Path | Sequence[str | Path]) -> Checkpoint:
    """Open a file, a list of files, or a folder. Headers are read and validated, data is not.

    A folder is read through `model.safetensors.index.json`, else `model.safetensors`, else all
    of its safetensors files, else its one GGUF file. Raises `WeightsError`.
    """
    expected: dict[str, str] | None = None
    if isinstance(weights, (str, Path)):
        path = Path(weights)
        files = [path]
        if path.is_dir():
            files, expected = _folder(path)
    else:
        files = [Path(item) for item in weights]
        if not files:
            raise WeightsError("no files of weights given: the list is empty")
    sources: list[SafetensorsFile | GgufFile] = []
    try:
        for file in files:
            sources.append(_open_file(file))
        if len(sources) > 1 and any(isinstance(source, GgufFile) for source in sources):
            raise WeightsError("a GGUF file stands alone: give one, or safetensors files")
        checkpoint = Checkpoint(sources)
        if expected is not None:
            _check_index(files[0].parent / INDEX, expected, checkpoint)
        return checkpoint
    except BaseException:
        for source in sources:
            source.close()
        raise


def _open_file(path: Path) -> SafetensorsFile | GgufFile:
    try:
        if not path.exists():
            raise WeightsError(f"{path}: no such file of weights")
        if path.is_dir():
            raise WeightsError(f"{path}: expected a file of weights, found a folder")
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    if start[:4] == b"GGUF" or path.suffix.lower() == ".gguf":
        return GgufFile(path)
    if start.startswith(b"version https://git-lfs"):
        raise WeightsError(
            f"{path}: a Git LFS pointer, not the weights themselves: run `git lfs pull` there"
        )
    pickled = start[:2] in (b"PK", b"\x80\x02", b"\x80\x04") and start[8:9] != b"{"
    if pickled or path.suffix.lower() in _PICKLES:
        raise WeightsError(f"{path}: {_no_pickles()}")
    return SafetensorsFile(path)


def _no_pickles() -> str:
    return (
        "pickled weights are never read, since reading them runs the code inside; "
        "expected safetensors or GGUF (convert it once, where you trust it)"
    )


def _folder(folder: Path) -> tuple[list[Path], dict[str, str] | None]:
    """The files to open in a folder, and its index (tensor → file) where it has one."""
    single, index = folder / "model.safetensors", folder / INDEX
    if index.is_file():
        if single.is_file():
            raise WeightsError(
                f"{folder}: holds both model.safetensors and {INDEX}; give the files meant"
            )
        return _indexed(index)
    if single.is_file():
        return [single], None
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    found = [name for name in names if name.endswith(".safetensors")]
    if found:
        _check_shards(folder, found)
        return [folder / name for name in found], None
    ggufs = [name for name in names if name.endswith(".gguf")]
    if len(ggufs) == 1:
        return [folder / ggufs[0]], None
    if ggufs:
        raise WeightsError(f"{folder}: several GGUF files, give one of them: {', '.join(ggufs)}")
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        raise WeightsError(f"{folder}: holds only {', '.join(pickles)}: {_no_pickles()}")
    raise WeightsError(f"{folder}: no weights there: expected *.safetensors or one *.gguf")


def _indexed(index: Path) -> tuple[list[Path], dict[str, str]]:
    try:
        data = read_json(index.read_bytes())
    except OSError as error:
        raise WeightsError(f"{index}: cannot be read: {error.strerror or error}") from error
    except JsonError as error:
        raise WeightsError(f"{index}: {error}") from error
    names = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(names, dict) or not names:
        raise WeightsError(f"{index}: expected an object `weight_map` of tensor to file")
    for name, file in names.items():
        if not isinstance(file, str) or not file or Path(file).name != file or file == "..":
            raise WeightsError(
                f"{index}: tensor `{name}`: {file!r} is not the name of a file beside the index"
            )
    files = sorted(set(names.values()))
    missing = [file for file in files if not (index.parent / file).is_file()]
    if missing:
        problems = [
            f"{index.parent / file}: missing; the index puts "
            f"{sum(value == file for value in names.values())} tensors there"
            for file in missing
        ]
        raise WeightsError("\n".join(problems), problems)
    return [index.parent / file for file in files], names


def _check_index(index: Path, expected: dict[str, str], checkpoint: Checkpoint) -> None:
    problems = []
    scales = checkpoint.scales
    for name, file in expected.items():
        info = checkpoint.tensors.get(name) or scales.get(name)
        if info is None:
            problems.append(f"{index}: tensor `{name}` is listed in {file}, but is not there")
        elif info.file.name != file:
            problems.append(
                f"{index}: tensor `{name}` is listed in {file}, but stands in {info.file.name}"
            )
    if problems:
        raise WeightsError("\n".join(problems), problems)


def _check_shards(folder: Path, names: list[str]) -> None:
    """Files numbered `-00002-of-00003` must all be there, also without an index."""
    problems = []
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    for stem, total in sorted({(match[1], match[3]) for match in matches}):
        for i in range(1, int(total) + 1):
            name = f"{stem}-{i:05}-of-{total}.safetensors"
            if name not in names:
                problems.append(f"{folder / name}: missing, one of {int(total)} shards")
    if problems:
        raise WeightsError("\n".join(problems), problems)
