"""GGUF files of the Qwen3.5 family (`qwen35moe`, `qwen35`) under the names of its checkpoints.

The format keeps these weights in other places than the checkpoints do: value heads go round the
key heads (head `r * K + k` is the checkpoint's `k * R + r`, R value heads for each of K key
heads); gate and up projections of experts lie apart; the layers' norms hold one plus the
weight; `ssm_a` holds `-exp(A_log)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from linnet.weights.gguf_header import StoredTensor

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ARCHITECTURES = ("qwen35moe", "qwen35")
PREFIX = "model.language_model."
_WHOLE = {
    "token_embd.weight": (f"{PREFIX}embed_tokens.weight", None),
    "output_norm.weight": (f"{PREFIX}norm.weight", "less one"),
    "output.weight": ("lm_head.weight", None),
}
# A layer's tensors by their stored names: the checkpoint's name, and what differs.
_LAYER = {
    "attn_norm.weight": ("input_layernorm.weight", "less one"),
    "post_attention_norm.weight": ("post_attention_layernorm.weight", "less one"),
    "attn_q.weight": ("self_attn.q_proj.weight", None),
    "attn_k.weight": ("self_attn.k_proj.weight", None),
    "attn_v.weight": ("self_attn.v_proj.weight", None),
    "attn_output.weight": ("self_attn.o_proj.weight", None),
    "attn_q_norm.weight": ("self_attn.q_norm.weight", "less one"),
    "attn_k_norm.weight": ("self_attn.k_norm.weight", "less one"),
    "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", "values last"),
    "attn_gate.weight": ("linear_attn.in_proj_z.weight", "values"),
    "ssm_beta.weight": ("linear_attn.in_proj_b.weight", "heads"),
    "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", "heads"),
    "ssm_a": ("linear_attn.A_log", "heads, log"),
    "ssm_dt.bias": ("linear_attn.dt_bias", "heads"),
    "ssm_conv1d.weight": ("linear_attn.conv1d.weight", "values last"),
    "ssm_norm.weight": ("linear_attn.norm.weight", None),
    "ssm_out.weight": ("linear_attn.out_proj.weight", "columns"),
    "ffn_gate_inp.weight": ("mlp.gate.weight", None),
    "ffn_gate_inp_shexp.weight": ("mlp.shared_expert_gate.weight", None),
    "ffn_gate_shexp.weight": ("mlp.shared_expert.gate_proj.weight", None),
    "ffn_up_shexp.weight": ("mlp.shared_expert.up_proj.weight", None),
    "ffn_down_shexp.weight": ("mlp.shared_expert.down_proj.weight", None),
    "ffn_down_exps.weight": ("mlp.experts.down_proj", None),
    "ffn_gate_up_exps.weight": ("mlp.experts.gate_up_proj", None),
    "ffn_gate.weight": ("mlp.gate_proj.weight", None),
    "ffn_up.weight": ("mlp.up_proj.weight", None),
    "ffn_down.weight": ("mlp.down_proj.weight", None),
}


@dataclass(frozen=True, slots=True)
class Heads:
    """Of linear attention: key heads and their size, value heads and theirs."""

    keys: int
    key_dim: int
    values: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint's tensor out of stored ones.

    Its rows come in turns of `unit` from each of `parts`; row i of a part is its stored row
    `order[i]`. `columns` likewise. `value` is "less one", "log" or None.
    """

    parts: tuple[StoredTensor, ...]
    shape: tuple[int, ...]
    unit: int
    order: Array | None = None
    columns: Array | None = None
    value: str | None = None

    @property
    def width(self) -> int:
        stored = self.parts[0].shape
        return stored[-1] if len(stored) > 1 else 1

    def segments(self, start: int, stop: int) -> Iterator[tuple[StoredTensor, int, int]]:
        """The parts' rows that make rows `start` up to `stop`."""
        turn = self.unit * len(self.parts)
        while start < stop:
            which, inside = divmod(start % turn, self.unit)
            count = min(self.unit - inside, stop - start)
            at = start // turn * self.unit + inside
            yield self.parts[which], at, at + count
            start += count

    def changed(self, x: Array) -> Array:
        import numpy as np

        if self.columns is not None:
            x = x[:, self.columns]
        if self.value == "less one":
            return x - np.float32(1)
        return np.log(-x) if self.value == "log" else x


def sources(
    stored: Mapping[str, StoredTensor], heads: Heads, fail: Callable[[str, str], Exception]
) -> dict[str, Source]:
    """By checkpoint name. `fail(text, tensor)` makes the error for a tensor that cannot be."""
    found: dict[str, Source] = {}
    for name, tensor in stored.items():
        match = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
        if match is None:
            own, change = _WHOLE.get(name, (name, None))
            found[own] = _one(tensor, change, heads, fail)
            continue
        layer, rest = f"{PREFIX}layers.{match[1]}.", match[2]
        if rest in _LAYER:
            own, change = _LAYER[rest]
            found[layer + own] = _one(tensor, change, heads, fail)
        elif rest == "ffn_gate_exps.weight":
            up = stored.get(f"blk.{match[1]}.ffn_up_exps.weight")
            if up is None or up.shape != tensor.shape or len(tensor.shape) != 3:
                raise fail("expected `ffn_up_exps` of the same shape [E, Out, In] beside it", name)
            experts, out, width = tensor.shape
            shape = (experts, 2 * out, width)
            found[f"{layer}mlp.experts.gate_up_proj"] = Source((tensor, up), shape, out)
        elif rest != "ffn_up_exps.weight":
            found[name] = _one(tensor, None, heads, fail)
    return found


def _one(
    tensor: StoredTensor, change: str | None, heads: Heads, fail: Callable[[str, str], Exception]
) -> Source:
    import numpy as np

    shape = tensor.shape
    rows = prod(shape[:-1]) if len(shape) > 1 else prod(shape)
    order = columns = None
    value = None
    if change == "less one":
        value = change
    elif change is not None:
        values = heads.values * heads.value_dim
        keys = 2 * heads.keys * heads.key_dim
        each = heads.value_dim
        expected, axis = {
            "values": (values, rows),
            "values last": (keys + values, rows),
            "heads": (heads.values, rows),
            "heads, log": (heads.values, rows),
            "columns": (values, shape[-1]),
        }[change]
        if expected != axis:
            raise fail(f"shape {list(shape)} does not go with heads of {heads}", tensor.name)
        if change.startswith("heads"):
            each = 1
            value = "log" if change.endswith("log") else None
        moved = _grouped(heads, each)
        if change == "values last":
            moved = np.concatenate([np.arange(keys), keys + moved])
        order, columns = (None, moved) if change == "columns" else (moved, None)
    if tensor.name.endswith("ssm_conv1d.weight") and len(shape) == 2:
        shape = (shape[0], 1, shape[1])
    if tensor.name.endswith("ffn_gate_inp_shexp.weight") and len(shape) == 1:
        shape = (1, *shape)
    return Source((tensor,), shape, max(1, rows), order, columns, value)


def _grouped(heads: Heads, each: int) -> Array:
    """Where, in the stored order, the checkpoint's elements of all value heads are."""
    import numpy as np

    share = heads.values // heads.keys
    stored = np.arange(heads.values * each).reshape(share, heads.keys, each)
    return stored.swapaxes(0, 1).reshape(-1)
