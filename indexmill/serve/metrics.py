"""The metrics of a server, for Prometheus. No label contains a caller or text."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels, registry = ("path", "status"), self._registry
        self._requests = Counter("indexmill_requests", "Requests by path and status.", labels, registry=registry)
        self._seconds = Histogram(
            "indexmill_request_seconds",
            "Seconds from a request's head to the end of its response.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._batches = Histogram(
            "indexmill_batch_questions", "Questions retrieved together.", buckets=_SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "indexmill_batch_seconds", "Seconds of a batch's retrieval.", buckets=_SECONDS, registry=registry
        )

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed on each read."""
        Gauge(f"indexmill_{name}", about, registry=self._registry).set_function(value)

    def request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        self._batches.observe(size)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry)
