"""What a model's page is made from: the card, the checked program, and figures from both."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from linnet.check.checker import Checker
from linnet.check.modules import ModuleScope
from linnet.dims import Dim
from linnet.errors import CheckError, Error, PackageError
from linnet.ir.bound import Bound
from linnet.ir.groups import SCALE_BITS, group_of
from linnet.ir.manifest import Parameter, manifest, root_block
from linnet.ir.memory import (
    Stored,
    element_bits,
    free_sizes,
    in_checkpoint,
    packing,
    storage,
)
from linnet.ir.passes.pipeline import optimize
from linnet.ir.peak import bind_partly, entry_sizes, peak
from linnet.ir.program import Function, Program
from linnet.ir.specialize import bind_root, specialize
from linnet.ir.types import BITS, FLOATS
from linnet.nest.card import Card, read_card
from linnet.nest.checked import Checked, read_checked
from linnet.nest.diagram import Sheet, draw
from linnet.nest.pages.readme import read_readme
from linnet.nest.zoo import find_weights
from linnet.package import open_package
from linnet.weights.bindings import read_bindings

# Sizes at which the fullest moment of a call is looked for; between them it is the same one.
_PROBES = (1, 64, 2048, 131072)
_MAX_FILES = 500
MAX_TENSORS = 200_000  # in a manifest; the largest of the zoo has about eight hundred


@dataclass(eq=False)
class Shown:
    """A model that checks. Raises `linnet.Error` on the way for one that doesn't."""

    folder: Path
    card: Card
    checker: Checker
    program: Program
    root: str
    hub_sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> Shown:
        card = read_card(folder)
        checker = Checker(open_package(folder))
        checked = checker.run()
        if checked.program is None:
            errors = [d for d in checked.diagnostics if d.severity == "error"]
            raise CheckError(f"{folder}: {errors[0].message}" if errors else str(folder), errors)
        root = root_block(checked.program, card.root)
        shown = cls(folder, card, checker, checked.program, root)
        bind_root(checked.program, root, card.generics)  # raises for sizes that do not fit
        tensors = sum(s.copies.evaluate(shown.sizes) for s in shown.storage)
        if tensors > MAX_TENSORS:
            raise PackageError(f"{folder}: {tensors:,} tensors are too many ({MAX_TENSORS:,})")
        return shown

    @property
    def generics(self) -> dict[str, int | str]:
        return self.card.generics

    @cached_property
    def readme(self) -> str:
        return read_readme(self.folder)

    @cached_property
    def bindings(self) -> dict[str, str]:
        return read_bindings(self.card.weights.bindings) if self.card.weights.bindings else {}

    @cached_property
    def entries(self) -> dict[str, Function]:
        """The card's entry first."""
        found = self.program.entries(self.root)
        first = self.card.entry
        return dict(sorted(found.items(), key=lambda item: item[0] != first))

    @cached_property
    def manifest(self) -> list[Parameter]:
        return manifest(self.program, self.root, self.generics)

    @cached_property
    def storage(self) -> list[Stored]:
        return storage(self.program, self.root)

    @cached_property
    def bound(self) -> Bound:
        return specialize(self.program, self.root, self.generics)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {n: v for n, v in self.generics.items() if isinstance(v, int)}

    @cached_property
    def free(self) -> list[str]:
        """The sizes one chooses at load, in the order of the generics."""
        chosen = free_sizes(self.program, self.root)
        return [g.name for g in self.program.blocks[self.root].generics if g.name in chosen]

    @cached_property
    def dtype_generic(self) -> str | None:
        """The generic that is the model's own dtype, where there is one alone."""
        names = [g.name for g in self.program.blocks[self.root].generics if g.kind == "Float"]
        return names[0] if len(names) == 1 else None

    # --- figures -------------------------------------------------------------------

    @cached_property
    def weights(self) -> list[Stored]:
        """What the checkpoint holds, a tied tensor once; optional parts where they are bound."""
        return [s for s in in_checkpoint(self.storage, self.bindings) if s.kind != "state"]

    @cached_property
    def tied(self) -> set[str]:
        """Paths of `storage` whose tensors are those of an earlier path."""
        counted = {s.path for s in self.weights}
        return {
            s.path
            for s in self.storage
            if s.kind != "state" and s.path not in counted and self.has(s)
        }

    def has(self, stored: Stored) -> bool:
        return stored.path.replace("*", "0") in self.bindings

    @cached_property
    def states(self) -> list[Stored]:
        return [s for s in self.storage if s.kind == "state"]

    def elements(self, stored: Stored) -> int:
        return stored.elements.evaluate(self.sizes)

    @cached_property
    def parameters(self) -> int:
        return sum(self.elements(s) for s in self.weights)

    @cached_property
    def active(self) -> int:
        """Parameters at work on one token."""
        total = 0
        for stored in self.weights:
            of = max(stored.of.evaluate(self.sizes), 1)
            chosen = min(stored.active.evaluate(self.sizes), of)
            total += self.elements(stored) * chosen // of
        return total

    @cached_property
    def bytes_by_dtype(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for stored in self.weights:
            dtype = str(self.generics.get(stored.dtype, stored.dtype))
            bits = element_bits(stored.dtype, self.generics)
            found[dtype] = found.get(dtype, 0) + self.elements(stored) * bits // 8
        return found

    # --- diagrams and values at work -------------------------------------------------

    @cached_property
    def sheets(self) -> dict[str, Sheet]:
        found: dict[str, Sheet] = {}
        for entry in self.entries.values():
            found.update(draw(self.program, entry.id))
        return found

    def peaks(self) -> dict[str, dict[int, list[Dim]]]:
        """By entry and by bytes of an element of the model's dtype: what one call holds at most,
        as expressions of which the greatest counts."""
        result: dict[str, dict[int, list[Dim]]] = {name: {} for name in self.entries}
        own = self.dtype_generic
        for width in (2, 4) if own else (0,):
            generics = dict(self.generics)
            if own:
                current = str(generics.get(own, "bf16"))
                generics[own] = current if BITS[current] == 8 * width else _of_width(width)
            bound = bind_partly(self.program, self.root, generics, frozenset(self.free))
            bound = optimize(bound, "fast")
            for name in self.entries:
                if name not in bound.entries:
                    continue
                dims = {*self.free, *entry_sizes(self.entries[name])}
                found: dict[Dim, None] = {}
                for probe in _PROBES:
                    for other in _PROBES:
                        values = {n: probe if n in self.free else other for n in dims}
                        found[peak(bound, name, values).bytes] = None
                result[name][width] = list(found)
        return result

    # --- files ---------------------------------------------------------------------

    def files(self) -> list[tuple[str, int]]:
        """The package's own files with their sizes; none that leads out of its folder."""
        found: list[tuple[str, int]] = []
        folder = self.folder.resolve()
        for path in sorted(self.folder.rglob("*")):
            if any(part.startswith(".") for part in path.relative_to(self.folder).parts):
                continue
            if path.is_file() and path.resolve().is_relative_to(folder):
                found.append((path.relative_to(self.folder).as_posix(), path.stat().st_size))
            if len(found) == _MAX_FILES:
                break
        return found

    @cached_property
    def checked(self) -> Checked:
        return read_checked(self.folder)

    def weight_sizes(self) -> dict[str, int]:
        """The sizes of weight files by name: as the hub told them when the pages were made or when
        the model was checked, and of files that lie on this machine."""
        return {**self.local_sizes(), **self.checked.sizes, **self.hub_sizes}

    def local_sizes(self) -> dict[str, int]:
        """The sizes of those weight files that lie on this machine already, by file name."""
        try:
            found = find_weights(self.card)
        except Error:
            return {}
        paths = found if isinstance(found, list) else [found]
        return {path.name: path.stat().st_size for path in paths if path.is_file()}

    def modules(self) -> list[ModuleScope]:
        """Those of the package and of what it depends on, the library left out."""
        scopes = self.checker.modules.scopes.values()
        return sorted(
            (s for s in scopes if s.package.key != "std"), key=lambda s: (s.package.key, s.id)
        )

    def unbound(self) -> list[str]:
        """Required parameters that no tensor is bound to."""
        if not self.bindings:
            return []
        return [
            p.path
            for p in self.manifest
            if p.kind == "param" and not p.optional and p.path not in self.bindings
        ]

    def tensor_names(self, stored: Stored) -> tuple[str, int] | None:
        """A stored path's tensors in the checkpoint: their common name, numbers that differ as
        `{0 … 39}`, and how many there are."""
        pattern = re.compile(re.escape(stored.path).replace(r"\*", r"\d+"))
        names = [tensor for path, tensor in self.bindings.items() if pattern.fullmatch(path)]
        return (common_name(names), len(set(names))) if names else None

    def scale_bits(self, stored: Stored) -> float:
        """An element's share of its group's scale where the weight is packed."""
        group = group_of(stored.shape[-1].evaluate(self.sizes)) if stored.shape else None
        return SCALE_BITS / group if group else 0

    def document(self, link: Any) -> dict[str, Any]:
        """What the page's script needs: diagrams and sizes as expressions."""
        from linnet.nest.diagram.encode import encode_dim, encode_sheet
        from linnet.nest.diagram.svg import Diagram

        entries = {}
        peaks = self.peaks()
        kept = packing(self.weights, self.sizes)
        for name, entry in self.entries.items():
            diagram = Diagram(self.program, self.sheets, entry.id, self.generics)
            entries[name] = {
                "fn": entry.id,
                "own": entry_sizes(entry),
                "open": diagram.opened(),
                "peak": {
                    str(width): [encode_dim(d) for d in dims] for width, dims in peaks[name].items()
                },
            }
        return {
            "root": self.program.blocks[self.root].name,
            "generics": self.generics,
            "free": self.free,
            "check": self.card.check,
            "dtype": self.dtype_generic,
            "bits": BITS,
            "entries": entries,
            "fns": {id: encode_sheet(sheet, link) for id, sheet in self.sheets.items()},
            "weights": [
                [encode_dim(s.elements), s.dtype, kept[s.path], self.scale_bits(s)]
                for s in self.weights
            ],
            "states": [[s.path, encode_dim(s.elements), s.dtype] for s in self.states],
        }  # fmt: skip


def common_name(names: list[str]) -> str:
    """`layers.0.w`, `layers.1.w` as `layers.{0 … 1}.w`; of unlike names the first, and `…`."""
    split = [re.split(r"(\d+)", name) for name in names]
    if len({len(parts) for parts in split}) != 1:
        return f"{names[0]} …"
    shown = []
    for position, parts in enumerate(zip(*split, strict=True)):
        different = set(parts)
        if len(different) == 1:
            shown.append(parts[0])
        elif position % 2:
            numbers = sorted(map(int, different))
            shown.append(f"{{{numbers[0]} … {numbers[-1]}}}")
        else:
            return f"{names[0]} …"
    return "".join(shown)


def _of_width(width: int) -> str:
    return next(d for d in ("bf16", "f32", "f64") if d in FLOATS and BITS[d] == 8 * width)
