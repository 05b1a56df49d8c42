"""The text side of a model copied into a folder of weights, so that the folder stands alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.text.open import TextModel, open_text, text_places

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
TEMPLATE = ("chat_template.jinja", "chat_template.json")
SETTINGS = ("generation_config.json",)


def copy_text(folder: Path, *places: str | Path | Sequence[str | Path] | None) -> list[str]:
    """Copy tokenizer, template and generation defaults into `folder`; the names written.

    They are found as `open_text` finds them. A GGUF file's tokenizer is written as
    `tokenizer.json`. Raises TextError where there is no text side, or one that cannot be read.
    """
    text = open_text(*places)
    folders, _ = text_places(places)
    home = Path(text.source)
    written: list[str] = []
    if home.is_dir():
        for name in TOKENIZER:
            written += _copy(home / name, folder)
    else:
        written += _write_tokenizer(text, folder)
    order = [home, *folders] if home.is_dir() else folders
    for names in (TEMPLATE, SETTINGS):
        source = next((p for p in order if any((p / name).is_file() for name in names)), None)
        if source is not None:
            for name in names:
                written += _copy(source / name, folder)
    if text.template is not None and not any(name in written for name in TEMPLATE):
        (folder / TEMPLATE[0]).write_text(text.template.source, encoding="utf-8")
        written.append(TEMPLATE[0])
    return written


def _copy(path: Path, folder: Path) -> list[str]:
    if not path.is_file():
        return []
    shutil.copyfile(path, folder / path.name)
    return [path.name]


def _write_tokenizer(text: TextModel, folder: Path) -> list[str]:
    """A tokenizer that was read from GGUF, in the files that others read."""
    text.tokenizer.save(folder / "tokenizer.json")
    config: dict[str, Any] = dict(text.tokenizer.names)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return ["tokenizer.json", "tokenizer_config.json"]
