"""`linnet nest new`: from a checkpoint to a package that checks."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.check.path import check_path
from linnet.errors import CardError, WeightsError
from linnet.ir.manifest import Parameter, manifest, root_block
from linnet.nest.card import FILE, read_card
from linnet.nest.new.bindings import extend
from linnet.nest.new.checkpoint import Origin, bindings_text, read_origin
from linnet.nest.new.config import Config
from linnet.nest.new.families import FAMILIES
from linnet.nest.new.recipe import Recipe
from linnet.nest.new.source import copy_source, set_header
from linnet.nest.new.text import IMPORTER, ROOT, card_text, readme_text
from linnet.nest.zoo import models_root, shipped_roots
from linnet.weights.bindings import read_bindings
from linnet.weights.importer_file import Rule, read_importer
from linnet.weights.plan import Plan, plan


class NotKnown(CardError):
    """A checkpoint that no package of the zoo computes; `.missing` says why."""

    def __init__(self, message: str, missing: list[str]):
        super().__init__(message)
        self.missing = missing


@dataclass
class Made:
    folder: Path
    base: str
    plan: Plan
    imported: int
    notes: list[str] = field(default_factory=list)


def new_package(
    folder: Path, place: str, *, repo: str | None = None, license: str | None = None
) -> Made:
    """Write a package for the checkpoint at `place` into `folder`, which must not exist or be
    empty. It appears whole, and only if its parameters are the checkpoint's tensors.

    Raises NotKnown, CardError, WeightsError or CheckError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CardError(f"{folder}: is there already; expected a new or an empty folder")
    origin = read_origin(place)
    if repo is not None and repo != origin.repo:
        origin.repo, origin.revision = repo, None
    where = place if origin.is_gguf else f"{place}: config.json"
    config = Config(where, {**origin.config, **origin.extra})
    recipe = recipe_of(config)
    recipe.generics["T"] = _dtype(origin)
    base = _base(recipe.base)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as room:
            made = _write(Path(room) / folder.name, base, recipe, config, origin, license)
            if folder.exists():
                folder.rmdir()
            shutil.move(str(made.folder), str(folder))
    except OSError as error:
        raise CardError(f"{folder}: cannot be written: {error.strerror or error}") from error
    made.folder = folder
    return made


def recipe_of(config: Config) -> Recipe:
    """Raises NotKnown for another family, and for settings its package does not compute."""
    kind = config.get("model_type")
    make = FAMILIES.get(kind) if isinstance(kind, str) else None
    if make is None:
        known = ", ".join(sorted(FAMILIES))
        missing = f"model_type = {kind!r}: no package of the zoo; there are {known}"
        raise NotKnown(f"{config.source}: {missing}", [missing])
    recipe = make(config)
    if config.missing:
        lines = "".join(f"\n  {line}" for line in config.missing)
        text = f"{config.source}: `{recipe.base}` is close, but this is missing:{lines}"
        raise NotKnown(text, config.missing)
    return recipe


def _write(
    folder: Path, base: Path, recipe: Recipe, config: Config, origin: Origin, license: str | None
) -> Made:
    folder.mkdir()
    copy_source(base, folder, recipe)
    title = folder.name
    set_header(
        folder / "src" / "lib.linnet",
        [f"{title}: family `{recipe.family}`. The source is that of `{recipe.base}` in the zoo,",
         "with this checkpoint's constants."],
    )  # fmt: skip
    program = check_path(folder)
    listed = manifest(program, root_block(program, ROOT), recipe.generics)
    bindings = bind(base, recipe, config, origin, listed)
    rules = _importer(folder, recipe)
    tensors = origin.adapted(bindings.values(), rules)
    made_plan = plan(listed, _Tensors(tensors), bindings, strict=True)
    (folder / "bindings.json").write_text(bindings_text(bindings), encoding="utf-8")
    count = sum(_count(entry.shape) for entry in made_plan.entries)
    notes = list(config.notes)
    licence = license or origin.license
    if licence is None:
        notes.append("the licence is not stated: give it in nest.toml")
    if origin.repo is None:
        notes.append("no repository is known: --repo OWNER/NAME, or give it in nest.toml")
    (folder / FILE).write_text(card_text(folder.name, recipe, origin, licence, count), "utf-8")
    (folder / "README.md").write_text(
        readme_text(folder.name, recipe, origin, count, len(made_plan.unused), notes), "utf-8"
    )
    read_card(folder)  # what we write is what we read
    imported = len(set(bindings.values()) - origin.tensors.keys())
    return Made(folder, recipe.base, made_plan, imported, notes)


def _importer(folder: Path, recipe: Recipe) -> tuple[Rule, ...]:
    """Write the family's importer beside the card, and read it."""
    if not recipe.importer:
        return ()
    path = folder / IMPORTER
    path.write_text(recipe.importer, encoding="utf-8")
    return read_importer(path)


@dataclass
class _Tensors:
    tensors: Mapping[str, Any]


def bind(
    base: Path, recipe: Recipe, config: Config, origin: Origin, listed: list[Parameter]
) -> dict[str, str]:
    """The tensor of every parameter. Optional ones are bound where the checkpoint has them."""
    known = read_bindings(base / "bindings.json")
    for path, own in recipe.tied.items():
        if not config.flag("tie_word_embeddings", recipe.base == "gpt2"):
            known[path] = own
    held = [p for p in listed if p.kind != "state"]
    found = extend(known, recipe.extra, [p.path for p in held])
    prefix = _prefix(recipe, origin, found)
    result: dict[str, str] = {}
    for parameter in held:
        name = found.get(parameter.path)
        if name is None and parameter.optional:
            stem, _, last = parameter.path.rpartition(".")
            beside = found.get(f"{stem}.weight")
            name = f"{beside.rpartition('.')[0]}.{last}" if beside else None
        if name is None:
            if not parameter.optional:
                raise WeightsError(f"`{parameter.path}`: {recipe.base} binds nothing like it")
            continue
        name = name if name in origin.tensors else prefix + name
        if not parameter.optional or name in origin.tensors:
            # A format that leaves a tied tensor out: bound to the tensor whose bytes it has.
            info = origin.tensors.get(name)
            result[parameter.path] = (info.alias if info else None) or name
    return result


def _prefix(recipe: Recipe, origin: Origin, found: Mapping[str, str]) -> str:
    """Some tools save a model inside another, under a prefix."""
    names = set(found.values())
    return max(
        recipe.prefixes, key=lambda prefix: sum(prefix + name in origin.tensors for name in names)
    )


def _dtype(origin: Origin) -> str:
    """That of most of the checkpoint's elements."""
    sizes: Counter[str] = Counter()
    for info in origin.tensors.values():
        sizes[info.dtype] += info.nbytes
    common = sizes.most_common(1)
    if not common:
        raise WeightsError(f"{origin.name}: the checkpoint has no tensor")
    if origin.is_gguf and common[0][0] not in ("f16", "bf16", "f32"):
        return "bf16"  # blocks are unpacked into whatever is asked for
    if common[0][0] not in ("f16", "bf16", "f32", "f64"):
        raise WeightsError(
            f"{origin.name}: most of it is stored as {common[0][0]}; expected floating point"
        )
    return common[0][0]


def _base(name: str) -> Path:
    for root in [*models_root(), *shipped_roots()]:
        if (root / name / FILE).is_file():
            return root / name
    raise CardError(f"the zoo here lacks `{name}`, which new packages of its family are made from")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
