"""From a model's name to an engine: its text side, its weights, rows and a context that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import Error, InputError, WeightsError
from linnet.serve.engine import Engine
from linnet.serve.layout import BATCH, CONTEXT, layout_of

if TYPE_CHECKING:
    from linnet.nest.card import Card
    from linnet.serve.observer import Observer
    from linnet.text.open import TextModel

StrPath = str | Path
ROWS = 8
LANES = 2
SNAPSHOTS = 256 << 20
KEPT = 16


def open_engine(
    model: StrPath,
    *,
    weights: StrPath | Sequence[StrPath] | None = None,
    tokenizer: StrPath | None = None,
    root: str | None = None,
    generics: Mapping[str, int | str] | None = None,
    rows: int | None = None,
    max_seq: int | None = None,
    device: str = "cpu",
    numerics: str = "fast",
    quantize: str | None = None,
    embedding: int = 8,
    cache: str | None = None,
    snapshot_bytes: int | None = None,
    snapshot_folder: StrPath | None = None,
    max_waiting: int = 128,
    prompt_limit: int | None = None,
    name: str | None = None,
    observer: Observer | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Engine:
    """Loads a model and makes an engine for it, not yet started.

    `model` is a zoo name, a folder or a `.linnet` file; `weights` as in `linnet.load`, or
    "random". `rows` answers run at once. Without `max_seq` the context is the longest at which
    the rows fit the memory. `quantize`, `embedding` and `cache` as in `linnet.load`.
    `snapshot_bytes` by default holds 256 MB, or sixteen recurrent states where that is more.
    `progress` gets a line for each stage. Raises `linnet.Error`.
    """
    from linnet.nest.card import has_card, read_card
    from linnet.nest.described import described
    from linnet.nest.zoo import find_model
    from linnet.torch.load import load

    count = ROWS if rows is None else rows
    if count < 1:
        raise InputError(f"rows is {count}; expected an integer above 0")
    folder = described(model)
    if folder is not None:
        weights = folder.weights if weights is None else weights
        model, root = folder.home(), root or folder.root
        generics = {**folder.generics, **(generics or {})}
    path = find_model(model if isinstance(model, str) else Path(model))
    card = read_card(path) if path.is_dir() and has_card(path) else None
    random = isinstance(weights, str) and weights == "random"
    given = given_weights(path, card, weights)
    text = given_text(path, card, given, tokenizer)
    bound: dict[str, Any] = dict(card.generics) if card else {}
    bound.update(generics or {})
    bound[BATCH] = 1
    most = bound.get(CONTEXT)
    progress(f"checking {path}")
    few = {"quantize": quantize, "embedding": embedding}
    length, said = _context(
        path, card, root, bound, count + LANES, max_seq, most, device, given, few, cache
    )
    bound[CONTEXT] = length
    progress(said)
    progress("loading weights")
    loaded = load(
        path, root=root, weights="random" if random else given, generics=bound, device=device,
        numerics=numerics, quantize=quantize, embedding=embedding, cache=cache,
    )  # fmt: skip
    if snapshot_bytes is None:
        snapshot_bytes = max(SNAPSHOTS, KEPT * layout_of(loaded).recurrent_bytes)
    return Engine(
        loaded, text, rows=count, lanes=LANES, snapshot_bytes=snapshot_bytes,
        snapshot_folder=snapshot_folder, max_waiting=max_waiting, prompt_limit=prompt_limit,
        observer=observer, name=name, progress=progress,
    )  # fmt: skip


def given_weights(path: Path, card: Card | None, weights: Any) -> Any:
    if weights == "random":
        return None
    if weights is not None:
        return weights
    if card is None:
        raise WeightsError(f"{path}: has no card; give the weights")
    from linnet.nest.fetch import get_weights

    return get_weights(card)


def given_text(path: Path, card: Card | None, weights: Any, tokenizer: StrPath | None) -> TextModel:
    from linnet.nest.zoo import find_weights
    from linnet.text.open import open_text

    if tokenizer is not None:
        return open_text(tokenizer)
    places = [weights, path if path.is_dir() else path.parent]
    if card is not None:
        try:  # weights given without a tokenizer: the one of the card's own weights serves
            places.append(find_weights(card))
        except Error:
            pass
    return open_text(*places)


def _context(
    path: Path,
    card: Card | None,
    root: str | None,
    bound: dict[str, Any],
    rows: int,
    wanted: int | None,
    most: Any,
    device: str,
    weights: Any,
    few: dict[str, Any],
    cache: str | None,
) -> tuple[int, str]:
    """The context's length, and the line that says so."""
    from linnet.check.path import check_path
    from linnet.ir.manifest import root_block
    from linnet.text.context import choose_context
    from linnet.weights.bindings import read_bindings
    from linnet.weights.occupied import state_bytes, weight_bytes

    program = check_path(path)
    block = root_block(program, root or (card.root if card else None))
    bound.setdefault(CONTEXT, 1)
    names = read_bindings(card.weights.bindings) if card and card.weights.bindings else {}
    stored = weight_bytes(program, block, bound, names, weights, **few)
    one = state_bytes(program, block, bound, cache)
    free = None
    if device != "cpu":
        from linnet.torch.memory import free_memory

        free = free_memory(device)
    context = choose_context(
        lambda length: one(length) * rows,
        most if isinstance(most, int) else None,
        wanted=wanted, weights=stored, free=free,
    )  # fmt: skip
    return context.length, f"{rows - LANES} rows; {context}"
