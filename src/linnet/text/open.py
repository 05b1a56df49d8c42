"""Everything about text that comes with a model, found and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.text.errors import TextError
from linnet.text.settings import Settings, read_settings
from linnet.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from linnet.text.template import ChatTemplate


@dataclass(frozen=True)
class TextModel:
    """A model's tokenizer, its chat template if it has one, and its generation defaults."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    settings: Settings
    source: str  # where the tokenizer came from

    def chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The rendered prompt for an answer to these messages. Raises `TextError`."""
        if self.template is None:
            raise TextError(
                f"{self.source}: the model has no chat template; expected chat_template.jinja, "
                "`chat_template` in tokenizer_config.json, or tokenizer.chat_template in GGUF"
            )
        return self.template.render(messages, **variables)


def open_text(*places: str | Path | Sequence[str | Path] | None) -> TextModel:
    """The text side of a model, from the first of the places that has a tokenizer.

    A place is a folder, a file of weights, or a list of such files (their folders are searched);
    None is skipped. Give the weights first and the card's folder after. The tokenizer comes from
    `tokenizer.json`, else from a GGUF file's metadata; the template and the generation defaults
    come from the same search. Raises `TextError` that names the places.
    """
    folders, ggufs = text_places(places)
    for folder in folders:
        if (folder / "tokenizer.json").is_file():
            return _from_folder(folder, folders)
    for path in ggufs:
        found = _from_gguf(path, folders)
        if found is not None:
            return found
    where = ", ".join(str(p) for p in [*folders, *ggufs]) or "nowhere"
    raise TextError(
        f"no tokenizer.json and no GGUF file with a tokenizer in: {where}"
        "; expected one there, or in the folder that --tokenizer names"
    )


def text_places(places: tuple[Any, ...]) -> tuple[list[Path], list[Path]]:
    folders: list[Path] = []
    ggufs: list[Path] = []
    for place in places:
        for item in place if isinstance(place, (list, tuple)) else (place,):
            if item is None:
                continue
            path = Path(item)
            if not path.exists():
                raise TextError(f"{path}: no such file or folder")
            if path.suffix == ".gguf":
                ggufs.append(path)
            folder = path if path.is_dir() else path.parent
            if path.is_dir():
                ggufs.extend(sorted(path.glob("*.gguf")))
            if folder not in folders:
                folders.append(folder)
    return folders, list(dict.fromkeys(ggufs))


def _from_folder(folder: Path, folders: list[Path]) -> TextModel:
    from linnet.text.template import read_template

    tokenizer = Tokenizer.from_folder(folder)
    order = [folder, *(f for f in folders if f != folder)]
    template = None
    for place in order:
        template = read_template(place, tokenizer.names)
        if template is not None:
            break
    return TextModel(tokenizer, template, _settings(order, tokenizer), str(folder))


def _from_gguf(path: Path, folders: list[Path]) -> TextModel | None:
    from linnet.text.template import ChatTemplate, read_template
    from linnet.weights.gguf import GgufFile

    file = GgufFile(path)
    try:
        if file.metadata("tokenizer.ggml.model") is None:
            return None
        tokenizer = Tokenizer.from_gguf(file.metadata, str(path))
        source = file.metadata("tokenizer.chat_template")
    finally:
        file.close()
    template = None
    for place in folders:
        template = read_template(place, tokenizer.names)
        if template is not None:
            break
    if template is None and isinstance(source, str):
        template = ChatTemplate(source, tokenizer.names, f"{path}: tokenizer.chat_template")
    return TextModel(tokenizer, template, _settings(folders, tokenizer), str(path))


def _settings(folders: list[Path], tokenizer: Tokenizer) -> Settings:
    """The defaults of the first folder that states some; the tokenizer's end token always ends."""
    settings = next(
        (read_settings(f) for f in folders if (f / "generation_config.json").is_file()),
        Settings().change(temperature=0.0),
    )
    if tokenizer.eos is not None:
        settings = settings.change(stop_tokens=settings.stop_tokens | {tokenizer.eos})
    return settings
