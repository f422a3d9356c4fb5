"""Spans and metrics through the API of OpenTelemetry.

Only the API is used: the process's provider exports what is reported; without a provider nothing is exported. No
provider can be set before the API is imported, so this module never imports it: without the API a span costs one
dictionary look-up. ``indexmill.telemetry_sdk`` sets a provider from the environment.

A span carries names, counts and times. It never carries a question, a prompt, a text or id of a document, or the
message of an error, which may repeat any of these.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]

_NAME = "indexmill"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RUN_SECONDS = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0)
_MODEL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
_HITS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""The bounds of histograms; those for models follow OpenTelemetry's conventions."""


class Metric(NamedTuple):
    """A metric: a histogram if it has bounds, else a counter."""

    unit: str
    description: str
    bounds: tuple[float, ...] = ()


METRICS: Mapping[str, Metric] = {
    "gen_ai.client.operation.duration": Metric("s", "Seconds of a call to a model.", _MODEL_SECONDS),
    "gen_ai.client.token.usage": Metric("{token}", "Tokens of a call to a model.", _TOKENS),
    "indexmill.parts": Metric("{part}", "Parts of runs, by stage and outcome."),
    "indexmill.retrieve.duration": Metric("s", "Seconds of a retrieval.", _SECONDS),
    "indexmill.retrieve.hits": Metric("{hit}", "Hits for a question.", _HITS),
    "indexmill.run.cost": Metric("1", "Cost of language models, in the currency of the configured prices."),
    "indexmill.run.duration": Metric("s", "Seconds of a run.", _RUN_SECONDS),
    "indexmill.run.tokens": Metric("{token}", "Tokens of language models that runs were or may have been billed."),
    "indexmill.runs": Metric("{run}", "Runs, by command and outcome."),
}


class Span:
    """A span of a trace, as a context manager; this base class records nothing."""

    recorded = False
    """True if attributes reach a trace."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def failed(self, kind: str) -> None:
        """Mark the span as failed with the name of an error, as an exception that leaves the block does."""


_NOTHING = Span()


class _Recorded(Span):
    """An OpenTelemetry span, which is the current span inside its block."""

    __slots__ = ("_attached", "_span", "recorded")

    def __init__(self, api: Any, started: Any) -> None:
        self.recorded = started.is_recording()
        self._span = started
        self._attached = _context().attach(api.set_span_in_context(started))

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def failed(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, GeneratorExit):
            self.failed(kind.__name__)
        self._span.end()
        _context().detach(self._attached)


_MUTED: ContextVar[bool] = ContextVar("muted", default=False)
_tracer: tuple[Any, Any] | None = None
_instruments: tuple[Any, dict[str, Callable[..., None]]] | None = None
"""The provider and the instruments created from it."""


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: Literal["internal", "client", "server"] = "internal",
    inner: bool = False,
    links: Iterable[Any] = (),
) -> Span:
    """Start a span that ends with its block; it records nothing without a provider.

    inner: start it only as a child of another span, never as the root of a trace. links: contexts of other traces that
    this work belongs to, from ``current``.
    """
    api, provider = _provider("trace")
    if provider is None or _MUTED.get():
        return _NOTHING
    if inner and not api.get_current_span().get_span_context().is_valid:
        return _NOTHING
    global _tracer
    if _tracer is None or _tracer[0] is not provider:
        _tracer = provider, provider.get_tracer(_NAME)
    started = _tracer[1].start_span(
        name,
        kind=getattr(api.SpanKind, kind.upper()),
        attributes=attributes,
        links=[api.Link(link) for link in links if link is not None],
    )
    return _Recorded(api, started) if started.get_span_context().is_valid else _NOTHING


def is_traced() -> bool:
    """Return True inside a recorded span."""
    api, provider = _provider("trace")
    return provider is not None and not _MUTED.get() and api.get_current_span().is_recording()


def current() -> Any:
    """Return the current span's context, for ``links``; None outside spans."""
    api, provider = _provider("trace")
    if provider is None:
        return None
    context = api.get_current_span().get_span_context()
    return context if context.is_valid else None


def carried() -> dict[str, str]:
    """Return the current span's context as W3C headers (``traceparent``); empty outside spans."""
    headers: dict[str, str] = {}
    if current() is not None:
        _headers().inject(headers)
    return headers


@contextlib.contextmanager
def joined(headers: Mapping[str, str]) -> Iterator[None]:
    """Continue the trace of a ``traceparent`` header in the block; does nothing without the header or a provider."""
    if "traceparent" not in headers or _provider("trace")[1] is None:
        yield
        return
    trace_headers = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    attached = _context().attach(_headers().extract(trace_headers))
    try:
        yield
    finally:
        _context().detach(attached)


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Start no span in the block; metrics are still reported."""
    before = _MUTED.set(True)
    try:
        yield
    finally:
        _MUTED.reset(before)


def record(name: str, value: float, attributes: Attributes | None = None) -> None:
    """Add a value to a counter or a histogram of ``METRICS``."""
    _, provider = _provider("metrics")
    if provider is None:
        return
    global _instruments
    if _instruments is None or _instruments[0] is not provider:
        _instruments = provider, {}
    reporters = _instruments[1]
    if name not in reporters:
        meter, metric = provider.get_meter(_NAME), METRICS[name]
        if metric.bounds:
            options = {"explicit_bucket_boundaries_advisory": metric.bounds}
            reporters[name] = meter.create_histogram(name, metric.unit, metric.description, **options).record
        else:
            reporters[name] = meter.create_counter(name, metric.unit, metric.description).add
    reporters[name](value, attributes)


class RetrievalReport:
    """Reports a retrieval as one span and two metrics. Stages are attributes, since spans can cost more than stages."""

    def __init__(self) -> None:
        self.attributes: dict[str, Value] = {}
        self.stages: dict[str, float] = {}
        self._hits: Sequence[int] = ()

    def result(self, attributes: Attributes, hits: Sequence[int]) -> None:
        """Report the result: attributes of the retrieval, and the number of hits of each question."""
        self.attributes |= attributes
        self._hits = hits

    def __enter__(self) -> Self:
        self._before = _AT_WORK.set(self)
        self._began = time.perf_counter()
        self._span = span("indexmill.retrieve")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        _AT_WORK.reset(self._before)
        if self._span.recorded:
            stage_times: dict[str, Value] = {
                f"indexmill.retrieve.{name}_ms": round(ms, 3) for name, ms in self.stages.items()
            }
            self._span.set({**self.attributes, "indexmill.retrieve.hits": sum(self._hits), **stage_times})
        self._span.__exit__(kind, error, trace)
        labels = {name: value for name, value in self.attributes.items() if name == "indexmill.method"}
        for hits in self._hits:
            record("indexmill.retrieve.hits", hits, labels)
        if kind is not None:
            labels["error.type"] = kind.__name__
        record("indexmill.retrieve.duration", seconds, labels)


_AT_WORK: ContextVar[RetrievalReport | None] = ContextVar("retrieval", default=None)
"""The current retrieval, if it is reported."""


_NO_REPORT = contextlib.nullcontext()


def retrieval() -> contextlib.AbstractContextManager[RetrievalReport | None]:
    """Report the block's retrieval: a span with its stages, duration and hits. Yields None if nothing is reported."""
    if _provider("trace")[1] is None and _provider("metrics")[1] is None:
        return _NO_REPORT
    return RetrievalReport()


class _Stage:
    """Measures the time of a block."""

    __slots__ = ("_began", "_name", "_stages")

    def __init__(self, name: str, stages: dict[str, float]) -> None:
        self._name, self._stages = name, stages

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        ms = (time.perf_counter() - self._began) * 1000
        self._stages[self._name] = self._stages.get(self._name, 0.0) + ms


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Add the block's time to a stage of the current retrieval."""
    outer = _AT_WORK.get()
    return _NO_REPORT if outer is None else _Stage(name, outer.stages)


def _provider(name: Literal["trace", "metrics"]) -> tuple[Any, Any]:
    """Return a module of the API and its provider; None for both if no provider was set."""
    api: Any = sys.modules.get(f"opentelemetry.{name}")
    if api is None:
        return None, None
    try:
        provider = api.get_tracer_provider() if name == "trace" else api.get_meter_provider()
    except Exception:  # another thread is importing it, or the environment names a provider that cannot be loaded
        return None, None
    # Without an SDK, the API returns a proxy for a provider that may be set later.
    return (None, None) if type(provider).__name__.strip("_").startswith("Proxy") else (api, provider)


def _context() -> Any:
    return sys.modules["opentelemetry.context"]


def _headers() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
