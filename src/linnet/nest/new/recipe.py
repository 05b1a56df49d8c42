"""What a family's function makes of a config: the zoo's package, and what changes in it."""

from __future__ import annotations

from dataclasses import dataclass, field

Generics = dict[str, int | str]
HEAD = {"lm_head.weight": "lm_head.weight"}


@dataclass(frozen=True, slots=True)
class Edit:
    """In `file` (a path in the new package) the text `old`, a regular expression, becomes `new`
    wherever it stands; that it stands nowhere is a fault of ours."""

    file: str
    old: str
    new: str


@dataclass
class Recipe:
    """`base` is the zoo's package. `tied` are paths bound to another's tensor where the config
    ties them, with their own tensor where it doesn't. `extra` are bindings of paths that the
    base doesn't have, with `*` for a layer. `copies` are files of other packages. `importer` is
    the text of an importer for the checkpoint's layout, "" for none."""

    base: str
    family: str
    generics: Generics
    edits: list[Edit] = field(default_factory=list)
    tied: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ("",)
    tags: tuple[str, ...] = ("text-generation", "decoder-only")
    check: Generics = field(default_factory=lambda: {"B": 1, "S": 8})
    importer: str = ""


def literal(value: float) -> str:
    """A number as a literal of the language."""
    text = repr(float(value))
    return text.replace("e-0", "e-").replace("e+", "e")


def constant(file: str, name: str, value: float) -> Edit:
    return Edit(file, rf"(const {name}: f\d\d = )\S+", rf"\g<1>{literal(value)}")


def epsilon(file: str, value: float) -> Edit:
    """Of the zoo's RMS norm, in its code and its comment."""
    return Edit(file, r"\b1e-6\b", literal(value))
