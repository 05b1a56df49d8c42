"""A reference model with the checkpoint it was saved to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Oracle:
    """`model` holds in f32 exactly the values that `folder` holds in the stored dtype.

    `generics` are those of our programs (without Batch and MaxSeq, `T` the stored dtype), and
    `bindings` map their parameter paths to the checkpoint's tensor names.
    """

    folder: Path
    model: Any
    generics: dict[str, int | str]
    bindings: dict[str, str]

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """`[B, S]` → `[B, S, Vocab]` f32, without a cache."""
        with torch.no_grad():
            return self.model(input_ids=tokens, use_cache=False).logits.float()

    def greedy(self, tokens: torch.Tensor, count: int) -> list[int]:
        """The next `count` tokens after one prompt `[1, S]`, with the reference's cache."""
        with torch.no_grad():
            out = self.model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        return out[0, tokens.shape[1] :].tolist()

    def in_dtype(self, dtype: str) -> Any:
        """A copy of the reference that computes in `dtype`."""
        return copy.deepcopy(self.model).to(TORCH[dtype])

    def tokens(self, *shape: int, seed: int = 0) -> torch.Tensor:
        """Random token ids."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, int(self.generics["Vocab"]), shape, generator=generator)


def save(
    model: Any, folder: Path, dtype: str, shard: str | None, keep: Callable[[str], bool]
) -> None:
    """Save in `dtype`, tensors that `keep` names in f32, and set `model` to the values saved.

    Names are those of the running model (fused experts), as large checkpoints are published;
    transformers' default would split them. `shard` is a size such as "100KB" or None for one file.
    """
    stored = copy.deepcopy(model)
    for name, parameter in stored.named_parameters():
        if not keep(name):
            parameter.data = parameter.data.to(TORCH[dtype])
    folder.mkdir(parents=True, exist_ok=True)
    stored.save_pretrained(folder, save_original_format=False, max_shard_size=shard or "50GB")
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), stored.parameters(), strict=True):
            ours.copy_(theirs.float())


def randomize(model: Any, seed: int) -> None:
    """Values under which every part of the network matters: matrices that keep the scale, norm
    weights away from their rest, decay rates spread over two orders of magnitude.

    `A_log` is the logarithm of a number sampled in f32: sampled in bf16 it could be 0, and a head
    with a logarithm of minus infinity is dead.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size, scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * scale

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = parameter.shape
            if name.endswith("A_log"):
                spread = torch.rand(shape, generator=generator)
                parameter.copy_((0.05 * 160.0**spread).log())
            elif name.endswith("dt_bias"):
                parameter.copy_(normal(shape, 1.0) - 1.0)
            elif parameter.ndim == 0:
                parameter.copy_(normal(shape, 1.0))
            elif parameter.ndim == 1:
                # Norms stored around 1 are made with ones, the others with zeros.
                rest = 1.0 if parameter.float().mean() > 0.5 else 0.0
                parameter.copy_(rest + normal(shape, 0.3))
            elif "embed_tokens" in name:
                parameter.copy_(normal(shape, 1.0))
            elif "conv1d" in name:
                parameter.copy_(normal(shape, 0.6))
            else:
                parameter.copy_(normal(shape, shape[-1] ** -0.5))


def share_of_scale(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference over the largest magnitude of the reference."""
    assert ours.shape == reference.shape, (ours.shape, reference.shape)
    scale = reference.float().abs().max().item()
    return (ours.float() - reference.float()).abs().max().item() / max(scale, 1e-30)
