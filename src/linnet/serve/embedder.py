"""Encoder models: texts to vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import BackendError, InputError

if TYPE_CHECKING:
    from linnet.text.open import TextModel

ENTRY = "embed"
_BATCH = 32
# The generic that bounds the length of an input, where a model has learned positions.
_POSITIONS = "Positions"
_CONTEXT = 8192


class Embedder:
    """A loaded encoder with the entry `embed(tokens [B, S] i32, lengths [B] i32) -> [B, D]`, whose
    sequence `b` is the first `lengths[b]` tokens. Raises BackendError for another model."""

    def __init__(self, model: Any, text: TextModel):
        if ENTRY not in model.entries:
            raise BackendError(f"the model has no entry `{ENTRY}`, so it gives no embeddings")
        self.model, self.text = model, text
        bound = model.generics.get(_POSITIONS)
        self.context = bound if isinstance(bound, int) else _CONTEXT

    def embed(
        self, inputs: Sequence[Sequence[int]], gone: Callable[[], bool] = lambda: False
    ) -> list[list[float]]:
        """One vector for each input of token ids, in the order given. Where `gone` says that
        nobody waits for them any more, the rest is left empty. Raises InputError."""
        import torch

        for i, ids in enumerate(inputs):
            if not 0 < len(ids) <= self.context:
                raise InputError(f"input[{i}] has {len(ids)} tokens; expected 1 to {self.context}")
        # Inputs of like length together: the rest of a row is computed for nothing.
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        found: list[list[float]] = [[] for _ in inputs]
        for start in range(0, len(order), _BATCH):
            if gone():
                break
            some = order[start : start + _BATCH]
            lengths = torch.tensor([len(inputs[i]) for i in some])
            tokens = torch.zeros(len(some), int(lengths.max()), dtype=torch.long)
            for row, i in enumerate(some):
                tokens[row, : len(inputs[i])] = torch.tensor(inputs[i])
            with torch.inference_mode():
                vectors = self.model.embed(tokens, lengths).float().cpu().tolist()
            for i, vector in zip(some, vectors):
                found[i] = vector
        return found


def kind_of(model: str | Path, root: str | None = None) -> str:
    """How a model can be served: `decoder` or `encoder`. Raises `linnet.Error`, BackendError for
    one that is neither."""
    from linnet.check.path import check_path
    from linnet.ir.manifest import root_block
    from linnet.nest.card import has_card, read_card
    from linnet.nest.described import described
    from linnet.nest.zoo import find_model

    folder = described(model)
    if folder is not None:
        model, root = folder.home(), root or folder.root
    path = find_model(model if isinstance(model, str) else Path(model))
    card = read_card(path) if path.is_dir() and has_card(path) else None
    program = check_path(path)
    entries = program.entries(root_block(program, root or (card.root if card else None)))
    if "prefill" in entries and "decode_rows" in entries:
        return "decoder"
    if ENTRY in entries:
        return "encoder"
    found = ", ".join(entries) or "none"
    raise BackendError(
        f"{path}: cannot be served: its entries are {found}; expected prefill and decode_rows of a "
        f"decoder, or {ENTRY} of an encoder"
    )


def open_embedder(
    model: str | Path,
    *,
    weights: Any = None,
    tokenizer: str | Path | None = None,
    root: str | None = None,
    generics: Mapping[str, int | str] | None = None,
    device: str = "cpu",
    numerics: str = "fast",
    quantize: str | None = None,
    embedding: int = 8,
    progress: Callable[[str], None] = lambda line: None,
) -> Embedder:
    """Loads an encoder; arguments as of `open_engine`. Raises `linnet.Error`."""
    from linnet.nest.card import has_card, read_card
    from linnet.nest.described import described
    from linnet.nest.zoo import find_model
    from linnet.serve.open import given_text, given_weights
    from linnet.torch.load import load

    folder = described(model)
    if folder is not None:
        weights = folder.weights if weights is None else weights
        model, root = folder.home(), root or folder.root
        generics = {**folder.generics, **(generics or {})}
    path = find_model(model if isinstance(model, str) else Path(model))
    card = read_card(path) if path.is_dir() and has_card(path) else None
    random = weights == "random"
    given = given_weights(path, card, weights)
    text = given_text(path, card, given, tokenizer)
    progress("loading weights")
    loaded = load(
        path,
        root=root,
        weights="random" if random else given,
        generics=dict(generics or {}),
        device=device,
        numerics=numerics,
        quantize=quantize,
        embedding=embedding,
    )
    return Embedder(loaded, text)
