"""The card and the README of a new package."""

from __future__ import annotations

import json

from linnet.nest.new.checkpoint import Origin
from linnet.nest.new.recipe import Recipe

ROOT = "Model"  # what the zoo's packages call their root block
IMPORTER = "importer.toml"


def card_text(name: str, recipe: Recipe, origin: Origin, license: str | None, count: int) -> str:
    address = f"https://huggingface.co/{origin.repo}" if origin.repo else "https://huggingface.co"
    layers = recipe.generics.get("Layers") or 4 * int(recipe.generics.get("Groups", 0))
    layers = layers or recipe.generics.get("TextLayers", 0)
    lines = [
        "[model]",
        f"name = {quoted(name)}",
        f"title = {quoted(origin.name)}",
        f"summary = {quoted(f'{layers} layers, {count:,} parameters, family {recipe.family}.')}",
        *([f"license = {quoted(license)}"] if license else []),
        f"family = {quoted(recipe.family)}",
        f"tags = [{', '.join(map(quoted, recipe.tags))}]",
        "",
        "[links]",
        f"huggingface = {quoted(address)}",
        "",
        "[source]",
        'path = "src/lib.linnet"',
        f'root = "{ROOT}"',
        'entry = "forward"',
        "",
        "[generics]",
        *(
            f"{n} = {quoted(v) if isinstance(v, str) else v}"
            for n, v in recipe.generics.items()
        ),
        "",
        "[check]",
        *(f"{n} = {v}" for n, v in recipe.check.items()),
        "",
        "[weights]",
        *([f"repo = {quoted(origin.repo)}"] if origin.repo else []),
        *([f"revision = {quoted(origin.revision)}"] if origin.repo and origin.revision else []),
        "files = [",
        *(f"  {quoted(file)}," for file in origin.files),
        "]",
        'bindings = "bindings.json"',
        *([f"importer = {quoted(IMPORTER)}"] if recipe.importer else []),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def readme_text(
    name: str, recipe: Recipe, origin: Origin, count: int, unused: int, notes: list[str]
) -> str:
    sizes = ", ".join(f"`{n}` {v}" for n, v in recipe.generics.items())
    made_from = "metadata" if origin.is_gguf else "`config.json`"
    parts = [
        f"# {origin.name}",
        f"A model of the family `{recipe.family}` with {count:,} parameters, made from its\n"
        f"checkpoint's {made_from}. The source is that of `{recipe.base}` in the zoo with this\n"
        "checkpoint's sizes and constants; `bindings.json` says which tensor each parameter is.",
        f"Its sizes, by the names that the source gives them: {sizes}.",
    ]
    if any(edit.file.startswith("deps/") for edit in recipe.edits):
        parts.append("What that package depends on lies in `deps/`.")
    if unused:
        parts.append(f"{unused} tensors of the checkpoint are named by no parameter and ignored.")
    if origin.is_gguf:
        parts.append(
            f'```sh\nlinnet generate {name} --weights {origin.files[0]} "…"\n```\n\n'
            "Checked: every parameter has a tensor of its shape. Its values have not been\n"
            "compared with another implementation yet."
        )
    else:
        parts += _how_to_run(name)
    if notes:
        parts.append("\n".join(f"- {note[0].upper()}{note[1:]}." for note in notes))
    return "\n\n".join(parts) + "\n"


def _how_to_run(name: str) -> list[str]:
    return [
        "```sh\n"
        f'linnet generate {name} --weights FOLDER "…"\n'
        f"linnet parity {name} --reference transformers --weights FOLDER\n"
        "```",
        "Checked: every parameter has a tensor of its shape and dtype. Its values have not been\n"
        "compared with another implementation yet; the second command does that, and names the\n"
        "block in which they first part.",
    ]


def quoted(value: str) -> str:
    """As TOML writes a string; JSON's way is one of its ways."""
    return json.dumps(value, ensure_ascii=False)
