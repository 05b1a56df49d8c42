"""llama.cpp through llama-cpp-python: a GGUF file, one sequence."""

import json
import sys
import time

job = json.loads(sys.argv[1])

import llama_cpp  # noqa: E402

prompt, steps = job["prompt"][0], [step[0][0] for step in job["steps"]]
start = time.perf_counter()
model = llama_cpp.Llama(
    job["weights"],
    n_ctx=len(prompt) + len(steps) + 8,
    n_threads=job["threads"],
    n_threads_batch=job["threads"],
    n_batch=max(32, min(512, len(prompt))),
    n_ubatch=max(32, min(512, len(prompt))),
    verbose=False,
)
load = time.perf_counter() - start
prompts: list[float] = []
tokens: list[float] = []
first = 0.0
for turn in range(job["repeat"] + 1):
    model.reset()
    try:
        model._ctx.kv_cache_clear()
    except AttributeError:  # its name differs between versions; evaluating at 0 overwrites it
        pass
    if prompt:
        start = time.perf_counter()
        model.eval(prompt)
        prompts.append(time.perf_counter() - start)
    for step in steps[: 1 if turn == 0 else None]:
        start = time.perf_counter()
        model.eval([step])
        tokens.append(time.perf_counter() - start)
    if turn == 0:
        first, prompts, tokens = sum(prompts) + sum(tokens), [], []
kind = str(model.metadata.get("general.file_type", ""))
names = {"0": "F32", "1": "F16", "2": "Q4_0", "3": "Q4_1", "7": "Q8_0", "15": "Q4_K_M",
         "17": "Q5_K_M", "18": "Q6_K", "32": "BF16"}  # fmt: skip
print(
    "RESULT "
    + json.dumps(
        {
            "version": llama_cpp.__version__, "dtype": names.get(kind, "as stored"),
            "prompt": prompts, "token": tokens, "load": load, "first": first,
        }
    )
)  # fmt: skip
