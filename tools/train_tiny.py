"""Train the small model of the founding architecture that ships with the zoo, once.

    python tools/train_tiny.py --text Opticks.txt --minutes 10

The text is Isaac Newton's Opticks (1730, in the public domain; Project Gutenberg's e-book 33504),
read as bytes. Nine tenths of it are trained on; the last tenth is held out, and its start goes
along with the model as `held_out.txt`, so that qualities can be measured on text it never saw.
Writes `models/qwen3.5-moe-tiny/model.safetensors` and the byte tokenizer beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import linnet
from linnet.weights.safetensors import save

FOLDER = Path(__file__).resolve().parent.parent / "models" / "qwen3.5-moe-tiny"
SIZES = {"Batch": 1, "MaxSeq": 1024, "T": "f32"}
ROWS, LENGTH, RATE = 12, 96, 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=FOLDER)
    args = parser.parse_args()
    data = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8).long()
    edge = len(data) * 9 // 10
    trained, held = data[:edge], data[edge:]
    if len(held) <= LENGTH:
        raise SystemExit(f"{args.text}: {len(data)} bytes, expected at least {10 * (LENGTH + 1)}")
    model = linnet.load(FOLDER, weights="random", generics=SIZES, trainable=True, seed=args.seed)
    with torch.no_grad():
        for path, tensor in model.named_parameters():
            if path.endswith("norm.weight"):  # a norm's weight is an offset from one, but for this
                tensor.fill_(1.0 if path.endswith("linear_attn.norm.weight") else 0.0)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.98), weight_decay=0.05)
    draw = torch.Generator().manual_seed(args.seed)
    start, step = time.monotonic(), 0
    while (share := (time.monotonic() - start) / (args.minutes * 60)) < 1:
        rate = (
            RATE * min(1, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = torch.randint(0, edge - LENGTH - 1, (ROWS,), generator=draw)
        text = torch.stack([trained[i : i + LENGTH + 1] for i in at.tolist()])
        loss = cross_entropy(model, text)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{share:5.1%} step {step}: {loss.item() / math.log(2):.3f} bits", flush=True)
        step += 1
    with torch.no_grad():
        count = min(64, len(held) // (LENGTH + 1))
        rows = held[: count * (LENGTH + 1)].view(count, -1)
        print(f"{step} steps, held out: {cross_entropy(model, rows).item() / math.log(2):.3f} bits")
    write(model, args.output, bytes(held[:16384].tolist()))


def cross_entropy(model: Any, text: torch.Tensor) -> torch.Tensor:
    """Mean over bytes, in nats, of rows of text `[B, S + 1]`."""
    logits = model.forward(text[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())


def write(model: Any, folder: Path, held: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    items = []
    for path, tensor in model.named_parameters():
        narrow = tensor.detach().to(torch.bfloat16).contiguous()
        raw = memoryview(narrow.view(torch.int16).numpy()).cast("B")
        items.append((path, "bf16", tuple(tensor.shape), raw))
    save(folder, items)
    (folder / "held_out.txt").write_bytes(held)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")


def tokenizer() -> dict[str, Any]:
    """A token a byte: a byte-level vocabulary without merges, each byte's number its id."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in shown}
    spelled.update({b: chr(256 + i) for i, b in enumerate(set(range(256)) - set(shown))})
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {**bytes_, "use_regex": False},
        "decoder": bytes_,
        "model": {"type": "BPE", "vocab": {spelled[b]: b for b in range(256)}, "merges": []},
    }


if __name__ == "__main__":
    main()
