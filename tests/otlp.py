"""Spans and metrics in tests: kept in memory, or received over OTLP/HTTP from real processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from tests.posts import PostServer


@dataclass(frozen=True)
class Seen:
    """A span that has ended. process: of its resource."""

    name: str
    id: str
    trace: str
    parent: str
    attributes: Mapping[str, Any]
    failed: bool = False
    message: str = ""  # of its status
    events: int = 0
    links: tuple[str, ...] = ()  # traces
    kind: str = "INTERNAL"
    resource: Mapping[str, Any] = field(default_factory=dict)


def tree(spans: Sequence[Seen], parent: str = "") -> dict[str, Any]:
    """The spans below one, by name: those of equal names together, as what is below any of them."""
    found: dict[str, Any] = {}
    for one in spans:
        if one.parent == parent:
            found.setdefault(one.name, {}).update(tree(spans, one.id))
    return found


class Recording:
    """The spans and metrics of this process."""

    def __init__(self, spans: Any, reader: Any) -> None:
        self._spans, self._reader = spans, reader

    @property
    def spans(self) -> list[Seen]:
        """The spans that have ended."""
        return [
            Seen(
                one.name,
                f"{one.context.span_id:x}",
                f"{one.context.trace_id:032x}",
                f"{one.parent.span_id:x}" if one.parent else "",
                dict(one.attributes),
                one.status.status_code.name == "ERROR",
                one.status.description or "",
                len(one.events),
                tuple(f"{link.context.trace_id:032x}" for link in one.links),
                one.kind.name,
            )
            for one in self._spans.get_finished_spans()
        ]

    def named(self, name: str) -> list[Seen]:
        """The spans of a name."""
        return [one for one in self.spans if one.name == name]

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """The data points of every metric, by name."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found.setdefault(metric.name, []).extend(metric.data.data_points)
        return found


@contextlib.contextmanager
def recording(sampler: Any = None) -> Iterator[Recording]:
    """Record what this process reports during the block; a process may set its providers only once."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(sampler=sampler), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with (
        patch.object(trace, "get_tracer_provider", lambda: tracers),
        patch.object(metrics, "get_meter_provider", lambda: meters),
    ):
        yield Recording(spans, reader)
    meters.shutdown()
    tracers.shutdown()


class Collector(PostServer):
    """A receiver of OTLP over HTTP, as a context manager. environment: by which processes send to it."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(self._took)
        self.spans: list[Seen] = []
        self.metrics: set[str] = set()
        self.bodies: list[bytes] = []
        self.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}
        self._status = status

    def _took(self, path: str, body: bytes) -> int:
        self.bodies.append(body)
        if path == "/v1/traces":
            self.spans.extend(_spans(body))
        elif path == "/v1/metrics":
            self.metrics.update(_metrics(body))
        return self._status


def _spans(body: bytes) -> list[Seen]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            found += [
                Seen(
                    one.name,
                    one.span_id.hex(),
                    one.trace_id.hex(),
                    one.parent_span_id.hex(),
                    _attributes(one.attributes),
                    one.status.code == 2,
                    one.status.message,
                    len(one.events),
                    tuple(link.trace_id.hex() for link in one.links),
                    {1: "INTERNAL", 2: "SERVER", 3: "CLIENT"}[one.kind],
                    about,
                )
                for one in scope.spans
            ]
    return found


def _metrics(body: bytes) -> set[str]:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(body)
    return {
        metric.name
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = (
            [getattr(one, one.WhichOneof("value")) for one in value.values] if kind == "array_value" else value
        )
    return found
