"""Tiny decoders with random weights in f32, a tokenizer of bytes, and a template that drops old
thoughts; and what each model answers alone."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import linnet

MODELS = Path(__file__).resolve().parents[2] / "models"
NAMES = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
VOCABULARY = 256 + len(NAMES)
IDS = {name: 256 + i for i, name in enumerate(NAMES)}

TEMPLATE = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and not loop.last -%}
{{ m.content.split('</think>')[-1].lstrip('\\n') }}
{%- else -%}
{{ m.content }}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false -%}
<think>

</think>

{% else -%}
<think>
{% endif -%}
{%- endif -%}
"""


# Sizes at which maps and experts have groups to be packed in, for both kinds of model.
WIDE: dict[str, Any] = {"H": 64, "HeadDim": 32}
WIDE_HYBRID: dict[str, Any] = {**WIDE, "ExpertInner": 64, "SharedInner": 64, "KeyDim": 16,
                               "ValueDim": 16, "Conv": 128}  # fmt: skip
WIDE_PLAIN: dict[str, Any] = {**WIDE, "Inner": 96}


def _load(package: str, generics: dict[str, Any], backend: str) -> Any:
    """On the torch backend unless said otherwise: compiling C for each size takes longer than
    these tests. `quantize` and `cache` among the generics are options of the load; packed weights
    come with sizes that have something to pack."""
    options = {name: generics.pop(name) for name in ("quantize", "cache") if name in generics}
    before = os.environ.get("LINNET_BACKEND")
    os.environ["LINNET_BACKEND"] = backend
    try:
        return linnet.load(MODELS / package, weights="random", generics=generics, **options)
    finally:
        if before is None:
            del os.environ["LINNET_BACKEND"]
        else:
            os.environ["LINNET_BACKEND"] = before


@cache
def hybrid(context: int = 256, backend: str = "torch", **more: Any) -> Any:
    """Linear and full attention, experts: the founding architecture with one group."""
    generics: dict[str, Any] = {
        "Vocab": VOCABULARY, "H": 32, "Groups": 1, "HeadDim": 8, "Heads": 4, "KvHeads": 2,
        "KeyHeads": 2, "KeyDim": 8, "ValueHeads": 4, "ValueDim": 8, "Width": 4, "Conv": 64,
        "TopK": 2, "Experts": 4, "ExpertInner": 16, "SharedInner": 16, "Batch": 1,
        "MaxSeq": context, "T": "f32",
    }  # fmt: skip
    wide = WIDE_HYBRID if "quantize" in more else {}
    return _load("qwen3.6-35b-a3b", {**generics, **wide, **more}, backend)


@cache
def plain(context: int = 256, backend: str = "torch", **more: Any) -> Any:
    """Full attention alone: the Llama architecture with two layers."""
    generics: dict[str, Any] = {
        "Vocab": VOCABULARY, "H": 32, "Inner": 48, "Heads": 4, "KvHeads": 2, "HeadDim": 8,
        "Layers": 2, "Batch": 1, "MaxSeq": context, "T": "f32",
    }  # fmt: skip
    wide = WIDE_PLAIN if "quantize" in more else {}
    return _load("smollm2-135m-instruct", {**generics, **wide, **more}, backend)


KINDS = {"hybrid": hybrid, "plain": plain}


@cache
def text(temperature: float = 0.0) -> Any:
    """Bytes as tokens, and the special ones of Qwen's chats. Thoughts and calls are no special
    tokens, as there."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    from linnet.text.open import TextModel
    from linnet.text.pieces import byte_alphabet
    from linnet.text.settings import Settings
    from linnet.text.template import ChatTemplate
    from linnet.text.tokenizer import Tokenizer

    vocabulary = dict(byte_alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    for name in NAMES:
        special = name.startswith("<|")
        backend.add_tokens([tokenizers.AddedToken(name, special=special, normalized=False)])
    tokenizer = Tokenizer(backend, {"eos_token": "<|im_end|>"}, "bytes")
    assert json.loads(backend.to_str())["added_tokens"][0]["id"] == 256
    settings = Settings(stop_tokens=frozenset([IDS["<|im_end|>"]]))
    template = ChatTemplate(TEMPLATE, tokenizer.names, "template")
    return TextModel(tokenizer, template, settings.change(temperature=temperature), "bytes")


def tokens(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), generator=generator).tolist()


def alone(model: Any, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The greedy answer of a model that serves nobody else: whole prompt, then single steps."""
    logits = model.prefill(torch.tensor([list(prompt)]), pos=0)
    drawn = [int(logits[0].argmax())]
    while len(drawn) < count:
        at = len(prompt) + len(drawn) - 1
        logits = model.decode(torch.tensor([[drawn[-1]]]), pos=at)
        drawn.append(int(logits[0].argmax()))
    return tuple(drawn)
