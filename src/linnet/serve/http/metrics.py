"""Prometheus metrics of an engine and of the requests to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect

from linnet.serve.http.errors import ApiError
from linnet.serve.observer import Observer

TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5)
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)

# Of Stats: the field, the metric, what it is.
_GAUGES = (
    ("prefilling", "linnet_requests_prefilling", "Requests whose prompt is being computed."),
    ("waiting", "linnet_requests_waiting", "Requests in the queue, and answers without a row."),
    ("rows", "linnet_rows", "Rows of the batch."),
    ("running", "linnet_rows_used", "Rows of the batch that hold an answer."),
    ("snapshot_bytes", "linnet_cache_bytes", "Bytes of the prefix snapshots held."),
    ("snapshot_count", "linnet_cache_snapshots", "Prefix snapshots held."),
)
_COUNTS = (
    ("steps", "linnet_steps", "Steps of the batch."),
    ("cache_hits", "linnet_cache_hits", "Prompts of which a prefix was found."),
    ("cache_misses", "linnet_cache_misses", "Prompts of which none was."),
)


class Metrics(Observer):
    """Told by the engine, read by `/metrics`. Each has a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self._running = Gauge(
            "linnet_requests_running", "Requests taken in and not ended.", registry=r
        )  # fmt: skip
        self._queued = Counter("linnet_requests_accepted", "Requests taken in.", registry=r)
        self._ended = Counter(
            "linnet_requests", "Requests that ended, by how.", ["reason"], registry=r
        )  # fmt: skip
        self._aborts = Counter(
            "linnet_aborts", "Requests that did not reach their end, by why.", ["reason"],
            registry=r,
        )  # fmt: skip
        for reason in ("cancelled", "timeout", "error"):
            self._aborts.labels(reason)
        self._in = Counter("linnet_prompt_tokens", "Tokens of prompts.", registry=r)
        self._cached = Counter(
            "linnet_cached_tokens", "Tokens of prompts that were not computed anew.", registry=r
        )
        self._out = Counter("linnet_generated_tokens", "Tokens drawn.", registry=r)
        self._first = Histogram(
            "linnet_time_to_first_token_seconds", "From submission to the first token.",
            buckets=_FIRST, registry=r,
        )  # fmt: skip
        self._between = Histogram(
            "linnet_inter_token_seconds", "From one token of a choice to the next.",
            buckets=_BETWEEN, registry=r,
        )  # fmt: skip
        self._whole = Histogram(
            "linnet_request_seconds", "From submission to the end.", buckets=_WHOLE, registry=r
        )
        self._step = Histogram(
            "linnet_step_seconds", "One step of the batch.", buckets=_BETWEEN, registry=r
        )
        self._chunk = Histogram(
            "linnet_chunk_seconds", "One chunk of a prompt.", buckets=_BETWEEN, registry=r
        )
        self._http = Counter(
            "linnet_http_responses", "Answers by endpoint and status.", ["endpoint", "status"],
            registry=r,
        )  # fmt: skip

    def watch(self, stats: Callable[[], Any]) -> None:
        """Reads an engine's `stats()` whenever the metrics are asked for."""
        self.registry.register(_Stats(stats))

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        lines = generate_latest(self.registry).splitlines(keepends=True)
        # When each began to be counted: as many lines again, and nobody asks for them.
        return b"".join(line for line in lines if b"_created" not in line)

    def answered(self, endpoint: str, status: int) -> None:
        self._http.labels(endpoint, str(status)).inc()

    @contextmanager
    def embedding(self) -> Iterator[None]:
        """While a request for embeddings is there; how it ended, and in which time."""
        began = time.monotonic()
        self.queued()
        reason = "error"
        try:
            yield
            reason = "stop"
        except ApiError as error:
            reason = {504: "timeout", 400: "refused"}.get(error.status, "error")
            raise
        except (ClientDisconnect, asyncio.CancelledError):
            reason = "cancelled"
            raise
        finally:
            if reason == "refused":  # it says nothing of how long requests take
                self._running.dec()
                self._ended.labels(reason).inc()
            else:
                self.finished(reason, time.monotonic() - began, 0, 0, 0)

    def embedded(self, tokens: int) -> None:
        """Inputs of an encoder were computed."""
        self._in.inc(tokens)

    # What the engine tells

    def queued(self) -> None:
        self._queued.inc()
        self._running.inc()

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def between_tokens(self, seconds: float) -> None:
        self._between.observe(seconds)

    def finished(
        self, reason: str, seconds: float, prompt_tokens: int, cached_tokens: int, new_tokens: int
    ) -> None:
        self._running.dec()
        self._ended.labels(reason).inc()
        if reason in ("cancelled", "timeout", "error"):
            self._aborts.labels(reason).inc()
        self._whole.observe(seconds)
        self._in.inc(prompt_tokens)
        self._cached.inc(cached_tokens)
        self._out.inc(new_tokens)

    def step(self, rows: int, seconds: float) -> None:
        self._step.observe(seconds)

    def chunk(self, tokens: int, seconds: float) -> None:
        self._chunk.observe(seconds)


class _Stats(Collector):
    def __init__(self, stats: Callable[[], Any]):
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for name, metric, text in _GAUGES:
            if hasattr(stats, name):
                yield GaugeMetricFamily(metric, text, value=float(getattr(stats, name)))
        for name, metric, text in _COUNTS:
            if hasattr(stats, name):
                family = Metric(f"{metric}", text, "counter")
                family.add_sample(f"{metric}_total", {}, float(getattr(stats, name)))
                yield family
        if hasattr(stats, "seconds"):
            family = Metric("linnet_engine_seconds", "What the engine's time went to.", "counter")
            for doing, seconds in stats.seconds.items():
                family.add_sample("linnet_engine_seconds_total", {"doing": doing}, seconds)
            yield family
