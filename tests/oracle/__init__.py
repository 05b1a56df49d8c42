"""Small random checkpoints made and saved by transformers: what the parity tests compare with."""

from oracle.checkpoint import Oracle, share_of_scale
from oracle.llama import llama_small, smollm2
from oracle.qwen import QWEN_SIZES, qwen_config, qwen_text, qwen_vision

__all__ = [
    "QWEN_SIZES",
    "Oracle",
    "llama_small",
    "qwen_config",
    "qwen_text",
    "qwen_vision",
    "share_of_scale",
    "smollm2",
]
