"""What few bits cost: logits beside those of the weights as they are.

    python bench/quality.py [--llama PYTHON] [--part tiny|minilm|stored]

Three parts, each against the same model in f32 with nothing rounded (torch backend):

- `tiny`: the zoo's trained model, whose weights were never small, on text that it never saw, in
  int8 and int4 beside plain rounding of the same tensors. On the native backend activations are
  rounded to 8 bits as well; a second row without that (torch backend) tells the two apart.
- `minilm`: similarity of sentence vectors, the same way.
- `stored`: SmolLM2's GGUF file as it lies (`--quantize stored`) against its own values widened,
  so that all there is to see is what activations in 8 bits do; llama.cpp reads the same file
  and also rounds them, `--llama` names a Python with llama-cpp-python. A row shows the same
  weights, which are in 4 bits already, packed once more.

KL is the mean divergence in nats a token, from the exact model; top-1 the share of places whose
likeliest token is the same; perplexity that of the text. Nothing here depends on the hour.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import linnet
from linnet.nest.card import read_card
from linnet.nest.zoo import find_model, find_weights
from linnet.text.open import open_text
from linnet.torch.packed import PackedTensor
from linnet.weights.packed import round_rows

TINY, MINILM, SMOLLM2 = "qwen3.5-moe-tiny", "all-minilm-l6-v2", "smollm2-135m-instruct"
Tensor = torch.Tensor
LLAMA = """
import json, sys
import numpy as np
from llama_cpp import Llama
rows = json.load(sys.stdin)
model = Llama(sys.argv[1], n_ctx=len(rows[0]) + 8, n_threads=int(sys.argv[3]), verbose=False,
              logits_all=True)
with open(sys.argv[2], "wb") as out:
    for row in rows:
        model.reset()
        model.eval(row)
        out.write(np.array(model.scores[: len(row)], np.float32).tobytes())
"""


def weights_of(name: str) -> Path:
    found = find_weights(read_card(find_model(name)))
    return found[0] if isinstance(found, list) else found


def load(name: str, backend: str = "torch", **options: Any) -> Any:
    return linnet.load(name, generics={"T": "f32"}, backend=backend, **options)


def rounded(name: str, quantize: str) -> Any:
    """The tensors that `quantize` packs, each rounded plainly to the steps of its largest."""
    model = load(name)
    for path, tensor in load(name, quantize=quantize).state_dict().items():
        if isinstance(tensor, PackedTensor):
            values = round_rows(model.state_dict()[path].numpy(), tensor.source.kind)
            model.set_parameter(path, torch.from_numpy(values))
    return model


def forms(name: str) -> Iterator[tuple[str, Any]]:
    for quantize in ("int8", "int4"):
        yield f"{quantize}, plain rounding", rounded(name, quantize)
        yield f"{quantize}", load(name, quantize=quantize)
        yield f"{quantize}, activations in 8 bits", load(name, "native", quantize=quantize)


def logits(model: Any, text: Tensor) -> Tensor:
    """Log-softmax `[rows, length, vocabulary]` of all places but each row's last."""
    return torch.stack([model.forward(row[None, :-1])[0].log_softmax(-1) for row in text])


def perplexity(found: Tensor, text: Tensor) -> float:
    return math.exp(float(torch.nn.functional.nll_loss(found.flatten(0, 1), text[:, 1:].flatten())))


def line(name: str, exact: Tensor, found: Tensor, text: Tensor) -> str:
    divergence = float((exact.exp() * (exact - found)).sum(-1).mean())
    agreement = float((exact.argmax(-1) == found.argmax(-1)).float().mean())
    base, own = perplexity(exact, text), perplexity(found, text)
    return f"{name:<34}{divergence:>10.2g}{agreement:>9.1%}{own:>12.4f}{own / base - 1:>+9.2%}"


def head(title: str) -> None:
    print(f"\n{title}\n{'':<34}{'KL':>10}{'top-1':>9}{'perplexity':>12}", flush=True)


def tiny(_: argparse.Namespace) -> None:
    raw = (find_model(TINY) / "held_out.txt").read_bytes()
    text = torch.tensor(list(raw[: 64 * 193])).view(64, 193)
    head(f"{TINY}, {text.numel() - 64} bytes of text")
    exact = logits(load(TINY), text)
    print(line("exact", exact, exact, text))
    for name, model in forms(TINY):
        print(line(name, exact, logits(model, text), text), flush=True)


def minilm(_: argparse.Namespace) -> None:
    tokenizer = open_text(weights_of(MINILM)).tokenizer
    raw = (find_model(TINY) / "held_out.txt").read_text(encoding="utf-8", errors="ignore")
    sentences = [s for s in raw.replace("\n", " ").split(". ") if 40 < len(s) < 300][:100]
    batches = [tokenizer.encode(s)[:64] for s in sentences]
    print(f"\n{MINILM}, cosine similarity of {len(batches)} sentences' vectors to the exact ones")
    print(f"{'':<34}{'mean':>10}{'least':>9}")

    def embed(model: Any) -> Tensor:
        found = [model.embed(torch.tensor([ids]), torch.tensor([len(ids)]))[0] for ids in batches]
        return torch.nn.functional.normalize(torch.stack(found), dim=-1)

    exact = embed(load(MINILM))
    for name, model in forms(MINILM):
        near = (embed(model) * exact).sum(-1)
        print(f"{name:<34}{float(near.mean()):>10.5f}{float(near.min()):>9.5f}", flush=True)


def stored(args: argparse.Namespace) -> None:
    file = weights_of(SMOLLM2)
    raw = (find_model(TINY) / "held_out.txt").read_text(encoding="utf-8", errors="ignore")
    ids = open_text(file).tokenizer.encode(raw)[: 8 * 257]
    text = torch.tensor(ids[: len(ids) // 257 * 257]).view(-1, 257)
    head(f"{SMOLLM2}, {file.name} as stored, {text.numel() - len(text)} tokens of text")
    exact = logits(load(SMOLLM2), text)
    print(line("its values, widened", exact, exact, text))
    for backend, quantize, name in (
        ("torch", "stored", "as stored"),
        ("native", "stored", "as stored, activations in 8 bits"),
        ("native", "int4", "int4, from its 4 bits anew"),
    ):
        found = logits(load(SMOLLM2, backend, quantize=quantize), text)
        print(line(name, exact, found, text), flush=True)
    if args.llama is None:
        return
    with tempfile.TemporaryDirectory(prefix="quality-") as place:
        out = Path(place) / "logits"
        subprocess.run(
            [args.llama, "-c", LLAMA, str(file), str(out), str(torch.get_num_threads())],
            input=json.dumps(text[:, :-1].tolist()), text=True, check=True,
        )  # fmt: skip
        theirs = torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32)
    theirs = theirs.view(len(text), text.shape[1] - 1, -1).log_softmax(-1)
    print(line("llama.cpp on the same file", exact, theirs, text))


PARTS = {"tiny": tiny, "minilm": minilm, "stored": stored}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--part", choices=tuple(PARTS), action="append")
    parser.add_argument("--llama", metavar="PYTHON", help="one with llama-cpp-python")
    args = parser.parse_args()
    for part in args.part or PARTS:
        PARTS[part](args)


if __name__ == "__main__":
    main()
