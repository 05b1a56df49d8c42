"""Decoding and prompts of the founding model's slice on the native backend, beside what the machine
can do in the same run.

    python bench/native.py [--experts 32] [--vocab 62080] [--groups 1] [--form bf16 int4] [--torch]

The slice is one group of four layers at the card's widths with random weights. Fewer experts and a
smaller vocabulary than the card's take less memory; a token reads the same bytes a layer. Rates are
measured in between: `reach` is `../shared/peers/kernels_reach.c`, compiled here where it is found.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import linnet

ROOT = Path(__file__).resolve().parent.parent
REACH = ROOT.parent / "shared" / "peers" / "kernels_reach.c"
H = 2048
GROUP = 128
# Which parameters are packed: the large maps. Router, gates, norms and convolutions stay.
LARGE = ("in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj",
         "gate_up_proj", "down_proj", "shared_expert.", "lm_head")  # fmt: skip


DENSE: dict[str, torch.Tensor] = {}  # the weights as they were before any was packed


class Packed:
    """A weight rounded to nearest, in the layout of the native kernels."""

    def __init__(self, weight: torch.Tensor, form: str):
        rows = weight.reshape(-1, weight.shape[-1])
        parts = [self.pack(part, form) for part in rows.split(1 << 15)]
        data, scale = (torch.cat(items) for items in zip(*parts, strict=True))
        self.packed = (form, data, scale, None, GROUP)
        self.nbytes = data.nbytes + scale.nbytes

    @staticmethod
    def pack(rows: torch.Tensor, form: str) -> tuple[torch.Tensor, torch.Tensor]:
        groups = rows.float().reshape(rows.shape[0], -1, GROUP)
        most = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12)
        if form == "int8":
            scale = most / 127
            return (groups / scale).round().to(torch.int8).flatten(1), scale.squeeze(-1)
        scale = most / 7
        q = ((groups / scale).round() + 8).clamp(0, 15).to(torch.uint8)
        half = GROUP // 2
        return (q[..., :half] | q[..., half:] << 4).flatten(1), scale.squeeze(-1).contiguous()


def pack(model: Any, form: str) -> int:
    """Pack the large weights in place; the bytes that a token reads of what is packed."""
    total = 0
    for path, (block, name, _) in model._params.items():
        if any(part in path for part in LARGE):
            held = DENSE.setdefault(path, getattr(block, name))
            if held.shape[-1] % GROUP == 0:
                made = Packed(held, form)
                setattr(block, name, made)
                total += made.nbytes
    return total


def token_bytes(groups: int, vocab: int, experts: int, form: str) -> int:
    """Bytes that one token reads and writes: weights once, the recurrent states both ways."""
    each = {"bf16": 2.0, "int8": 1 + 4 / GROUP, "int4": 0.5 + 4 / GROUP}[form]
    linear = (8192 + 4096) * H + 4096 * H
    full = (8192 + 512 + 512) * H + 4096 * H
    mixture = 8 * (1024 * H + H * 512) + 3 * 512 * H
    small = 4 * (experts * H + H) + 3 * 64 * H
    states = groups * 3 * 2 * 32 * 128 * 128 * 4
    large = groups * (3 * linear + full + 4 * mixture) + vocab * H
    return int(large * each + groups * small * 2 + states)


def prompt_flops(groups: int, vocab: int, experts: int, length: int) -> float:
    linear = (8192 + 4096 + 64) * H + 4096 * H
    full = (8192 + 512 + 512) * H + 4096 * H
    mixture = 8 * (1024 * H + H * 512) + 3 * 512 * H + experts * H
    return 2.0 * length * groups * (3 * linear + full + 4 * mixture) + 2.0 * vocab * H


def timed(run: Callable[[], Any], times: int) -> list[float]:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


class Reach:
    """The plain loops of `kernels_reach.c`, as rates in GB/s at this moment."""

    def __init__(self) -> None:
        self.library: Any = None
        if REACH.is_file():
            made = Path(tempfile.mkdtemp()) / "reach.so"
            command = ["cc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(REACH)]
            if subprocess.run([*command, "-o", str(made)], check=False).returncode == 0:
                self.library = ctypes.CDLL(str(made))
                self.library.omp_set_num_threads(torch.get_num_threads())
        rows = 65536
        self.weight = torch.randint(0, 1000, (rows, H), dtype=torch.int16)
        self.x, self.y = torch.ones(H, dtype=torch.bfloat16), torch.zeros(2 * rows)
        self.scale = torch.full((2 * rows, H // GROUP), 0.01)
        self.bytes8 = torch.ones(H, dtype=torch.int8)
        self.ones, self.sums = torch.ones(H // GROUP), torch.ones(H // GROUP, dtype=torch.int32)

    def rate(self, form: str) -> float | None:
        if self.library is None:
            return None
        long, at = ctypes.c_long, lambda t: ctypes.c_void_p(t.data_ptr())
        if form == "int4":
            rows = 131072
            size = rows * (H // 2 + H // GROUP * 4)
            args = (self.weight, self.scale, self.bytes8, self.ones, self.sums, self.y)
            best = min(timed(lambda: self.library.gemv_q4(*map(at, args), long(rows), long(H)), 8))
        else:
            rows = 65536
            size = rows * H * 2
            args = (self.weight, self.x, self.y)
            best = min(
                timed(lambda: self.library.gemv_bf16(*map(at, args), long(rows), long(H)), 8)
            )
        return size / best / 1e9


def matrix_rate() -> float:
    a = torch.randn(2048, 2048, dtype=torch.bfloat16)
    return 2 * 2048**3 / min(timed(lambda: a @ a, 6)) / 1e12


def measure(model: Any, name: str, options: Any, form: str, reach: Reach) -> None:
    random = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, options.vocab, (1, 64), generator=random)
    model.prefill(prompt, pos=0)
    model.decode([[1]], pos=64)
    size = token_bytes(options.groups, options.vocab, options.experts, form)
    can = reach.rate(form)
    times = [timed(lambda i=i: model.decode([[5]], pos=65 + i), 1)[0] for i in range(options.steps)]
    again = reach.rate(form)
    median = statistics.median(times)
    rate = size / median / 1e9
    share = f"{rate / max(can, again):6.0%} of reach" if can and again else ""
    print(f"{name:14} token   {median * 1e3:8.2f} ms  {rate:6.1f} GB/s  {share}", flush=True)
    length = options.prompt
    long = torch.randint(0, options.vocab, (1, length), generator=random)
    took = min(timed(lambda: model.prefill(long, pos=0), 3))
    flops = prompt_flops(options.groups, options.vocab, options.experts, length) / took / 1e12
    matrix = matrix_rate()
    print(f"{name:14} prompt  {took * 1e3:8.0f} ms  {flops:6.3f} TFLOP/s  "
          f"{flops / matrix:6.0%} of torch's bf16 product", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=62080)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--form", nargs="+", default=["bf16", "int4"])
    parser.add_argument("--torch", action="store_true", help="the torch backend beside it")
    options = parser.parse_args()
    reach = Reach()
    generics = {"Groups": options.groups, "Experts": options.experts, "Vocab": options.vocab,
                "MaxSeq": max(1024, options.prompt + 64)}  # fmt: skip
    model = linnet.load(ROOT / "models" / "qwen3.6-35b-a3b", weights="random", generics=generics)
    for form in options.form:
        if form != "bf16":
            pack(model, form)
        measure(model, f"native {form}", options, form, reach)
        if form == "bf16" and options.torch:
            reason, model.native.reason = model.native.reason, "asked for"
            measure(model, "torch bf16", options, form, reach)
            model.native.reason = reason


if __name__ == "__main__":
    main()
