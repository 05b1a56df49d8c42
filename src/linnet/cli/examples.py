"""An example for the help of each command whose own text has none."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "inspect": """\
  linnet inspect --parameters smollm2-135m-instruct
  linnet inspect --tree src/lib.linnet
  linnet inspect --ir --entry decode --bind Batch=1 models/qwen3.6-35b-a3b
  linnet inspect --code --entry decode smollm2-135m-instruct""",
    "generate": """\
  linnet generate smollm2-135m-instruct "Once upon a time"
  linnet generate --chat smollm2-135m-instruct "What is a linnet?" """.rstrip(),
    "chat": "  linnet chat smollm2-135m-instruct",
    "serve": "  linnet serve smollm2-135m-instruct --port 8000",
    "memory": "  linnet memory smollm2-135m-instruct --bind Batch=4",
    "list": "  linnet list",
    "show": "  linnet show smollm2-135m-instruct",
    "pull": "  linnet pull smollm2-135m-instruct",
    "bench": "  linnet bench smollm2-135m-instruct",
    "quantize": "  linnet quantize smollm2-135m-instruct -o smaller/",
    "parity": "  linnet parity smollm2-135m-instruct --reference transformers",
    "nest": "  linnet nest check models/*",
    "nest check": "  linnet nest check models/*",
    "nest index": "  linnet nest index models -o index.json",
    "nest new": "  linnet nest new --from checkpoint/ mine",
    "nest site": "  linnet nest site -o site/",
    "nest serve": "  linnet nest serve",
}
