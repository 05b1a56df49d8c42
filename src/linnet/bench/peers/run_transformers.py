"""transformers on the CPU: a folder with a config and weights, or with a config alone."""

import json
import sys
import time
from pathlib import Path

job = json.loads(sys.argv[1])
at = Path(job["weights"])

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

torch.set_num_threads(job["threads"])
dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[job["dtype"]]
start = time.perf_counter()
if job.get("save"):  # the config of a GGUF file, for engines that read folders
    AutoConfig.from_pretrained(at.parent, gguf_file=at.name).save_pretrained(job["save"])
    print("RESULT {}")
    sys.exit()
if any(at.glob("*.safetensors")):
    model = AutoModelForCausalLM.from_pretrained(at, dtype=dtype, local_files_only=True)
else:  # a config alone: random weights, from one pool of numbers, so that billions take seconds
    config = AutoConfig.from_pretrained(at, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to_empty(device="cpu")
    pool = (torch.randn(1_048_573) * 0.02).to(dtype)
    for parameter in model.parameters():
        flat = parameter.data.view(-1)
        for begin in range(0, flat.numel(), pool.numel()):
            piece = flat[begin : begin + pool.numel()]
            piece.copy_(pool[: piece.numel()])
    # Tables that are no parameters are made again: `to_empty` left them undefined.
    for name, module in list(model.named_modules()):
        if name.endswith("rotary_emb"):
            parent = model.get_submodule(name.rpartition(".")[0])
            parent.rotary_emb = type(module)(model.config)
model = model.eval()
load = time.perf_counter() - start

prompt = torch.tensor(job["prompt"])
steps = [torch.tensor(step) for step in job["steps"]]
prompts: list[float] = []
tokens: list[float] = []
first = 0.0
with torch.inference_mode():
    for turn in range(job["repeat"] + 1):
        cache = None
        if prompt.shape[1]:
            start = time.perf_counter()
            out = model(prompt, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            prompts.append(time.perf_counter() - start)
        for step in steps[: 1 if turn == 0 else None]:
            start = time.perf_counter()
            out = model(step, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            tokens.append(time.perf_counter() - start)
        if turn == 0:
            first, prompts, tokens = sum(prompts) + sum(tokens), [], []
print(
    "RESULT "
    + json.dumps(
        {
            "version": transformers.__version__, "dtype": job["dtype"], "prompt": prompts,
            "token": tokens, "load": load, "first": first,
        }
    )
)  # fmt: skip
