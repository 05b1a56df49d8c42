"""Small files of weights, right and wrong, written byte by byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

STRING, ARRAY, U32 = 8, 9, 4


def raw_safetensors(path: Path, header: dict[str, Any] | str | bytes, data: bytes) -> Path:
    """A file of exactly this header and data, whether or not they agree."""
    text = json.dumps(header) if isinstance(header, dict) else header
    raw = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_file(
    path: Path,
    metadata: dict[str, Any],
    tensors: list[tuple[str, list[int], int, bytes]],
    *,
    version: int = 3,
) -> Path:
    """Tensors are (name, row-major shape, ggml type, data). Integers are written as u32."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += gguf_string(key)
        if isinstance(value, str):
            head += struct.pack("<I", STRING) + gguf_string(value)
        elif isinstance(value, list):
            head += struct.pack("<IIQ", ARRAY, STRING, len(value))
            head += b"".join(gguf_string(item) for item in value)
        else:
            head += struct.pack("<II", U32, value)
    at = 0
    for name, shape, kind, data in tensors:
        head += gguf_string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", kind, at)
        at += -(-len(data) // 32) * 32
    body = b"".join(data + bytes(-len(data) % 32) for *_, data in tensors)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path
