"""The floor that Linnet must not fall through: transformers, side by side, in bf16 on the CPU.

    python bench/floor.py [--rounds 2] [--part slice|smollm2|all] [--threads 2] [--json]

Two models. The slice is four layers of Qwen3.6-35B-A3B and its head at the card's widths, 256
experts, random weights (9 GB); SmolLM2-135M-Instruct has its real weights. Each engine runs in a
process of its own, in turn, so that both meet the machine in the same state and never share its
memory. Figures are medians over all rounds: a prompt of 512 tokens, and one token after it. What
counts are the ratios; times alone say how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

PROMPT = 512
STEPS = 16
VOCAB = {"slice": 248320, "smollm2": 49152}


def measure(
    prefill: Callable[[Any], Any], step: Callable[[Any, int], Any], vocabulary: int
) -> dict[str, float]:
    """Milliseconds for the prompt and for a step; the first pass warms up."""
    import torch

    tokens = torch.randint(100, vocabulary - 100, (1, PROMPT))
    prompts, steps = [], []
    for round_ in range(3):
        start = time.perf_counter()
        last = prefill(tokens)
        prompts.append(time.perf_counter() - start)
        for at in range(STEPS):
            token = last.float().argmax(-1).reshape(1, 1)
            start = time.perf_counter()
            last = step(token, PROMPT + at)
            steps.append(time.perf_counter() - start)
        if round_ == 0:
            prompts, steps = [], []
    return {
        "prompt": 1000 * statistics.median(prompts),
        "token": 1000 * statistics.median(steps),
    }


def ours(part: str) -> dict[str, float]:
    import linnet

    model: Any
    if part == "slice":
        model = linnet.load(
            "qwen3.6-35b-a3b", weights="random", generics={"Groups": 1, "MaxSeq": 1024}
        )
    else:
        model = linnet.load("smollm2-135m-instruct", generics={"MaxSeq": 1024})

    def prefill(tokens: Any) -> Any:
        return model.prefill(tokens, pos=0)

    return measure(prefill, lambda token, at: model.decode(token, pos=at), VOCAB[part])


def slice_reference() -> Any:
    import torch
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM

    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCAB["slice"],
        num_hidden_layers=4,
        rope_parameters={
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
        },
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        model = Qwen3_5MoeForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    pool = (torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)) * 0.02).bfloat16()
    for parameter in model.parameters():
        flat = parameter.data.view(-1)
        for at in range(0, flat.numel(), pool.numel()):
            piece = flat[at : at + pool.numel()]
            piece.copy_(pool[: piece.numel()])
    # Tables that are no parameters are made again: `to_empty` left them undefined.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def smollm2_reference() -> Any:
    """The same weights as ours, bit for bit, under transformers' names."""
    from transformers import LlamaConfig, LlamaForCausalLM

    import linnet

    mine: Any = linnet.load("smollm2-135m-instruct", generics={"MaxSeq": 8})
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).bfloat16()
    names = {"mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}
    tensors = {}
    for path, tensor in mine.state_dict().items():
        if path.startswith("lm_head"):
            continue
        for short, long in names.items():
            path = path.replace(f"{short}.", f"{long}.")
        tensors[f"model.{path}"] = tensor
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def transformers(part: str) -> dict[str, float]:
    import torch

    model = slice_reference() if part == "slice" else smollm2_reference()
    cache: list[Any] = []

    def run(tokens: Any, **more: Any) -> Any:
        out = model(tokens, use_cache=True, logits_to_keep=1, **more)
        cache[:] = [out.past_key_values]
        return out.logits[:, -1]

    with torch.inference_mode():
        return measure(
            lambda tokens: run(tokens),
            lambda token, at: run(token, past_key_values=cache[0]),
            VOCAB[part],
        )


ENGINES = {"linnet": ours, "transformers": transformers}


def child(engine: str, part: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    print("RESULT " + json.dumps(ENGINES[engine](part)))


def launch(engine: str, part: str, threads: int) -> dict[str, float]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    keep["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(
        [sys.executable, __file__, "--child", engine, "--part", part, "--threads", str(threads)],
        capture_output=True,
        text=True,
        env=keep,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise SystemExit(f"{engine} failed on {part}:\n{done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--part", choices=["slice", "smollm2", "all"], default="all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=list(ENGINES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.part, args.threads)
        return
    report: dict[str, Any] = {}
    for part in ["smollm2", "slice"] if args.part == "all" else [args.part]:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ENGINES}
        for _ in range(args.rounds):
            for name in ENGINES:
                runs[name].append(launch(name, part, args.threads))
        figures = {
            name: {key: statistics.median(run[key] for run in found) for key in found[0]}
            for name, found in runs.items()
        }
        report[part] = figures
        if args.json:
            continue
        print(f"{part}, bf16, {args.threads} threads: ms for a prompt of {PROMPT}, for a token")
        for name, found in figures.items():
            print(f"  {name:14}{found['prompt']:10.0f}{found['token']:10.1f}")
        ratio = {k: figures["transformers"][k] / figures["linnet"][k] for k in ("prompt", "token")}
        print(f"  {'times faster':14}{ratio['prompt']:10.2f}{ratio['token']:10.2f}", flush=True)
    if args.json:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
