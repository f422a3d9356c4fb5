"""The SDK of OpenTelemetry, set up from the standard environment, for the processes of indexmill's commands.

A library must not do this: an application that imports indexmill sets up its own provider, and a command, or a worker
of a run, has no other application around it. Nothing is set up unless a variable asks for it, and what is set up
already stays, as under ``opentelemetry-instrument``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

_SIGNALS = ("TRACES", "METRICS")
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The entry points of OTLP's exporters, by the value of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""

_FLUSH_MS = 5_000

_configured: set[int] = set()
"""The processes in which ``configure`` was called; a forked child is another one."""


def wanted(environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """The exporters that the environment asks for, by signal: ``{"TRACES": ["otlp"]}``.

    A signal is wanted if ``OTEL_<SIGNAL>_EXPORTER`` names exporters, or if OTLP has an endpoint; an exporter ``none``
    and ``OTEL_SDK_DISABLED=true`` turn it off.
    """
    given = os.environ if environment is None else environment
    if given.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return {}
    found = {}
    for signal in _SIGNALS:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        default = "otlp" if any(given.get(name) for name in endpoints) else ""
        named = [name.strip() for name in (given.get(f"OTEL_{signal}_EXPORTER") or default).split(",")]
        if exporters := [name for name in named if name not in ("", "none")]:
            found[signal] = exporters
    return found


def configure() -> str | None:
    """Set up providers for the signals that the environment asks for, once in a process.

    Returns a warning if something that they need is not installed, or is set up wrongly; the work goes on without them.
    """
    if os.getpid() in _configured:
        return None
    _configured.add(os.getpid())
    # Each failed attempt to send would be a line; only what is given up is told.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
    try:
        for signal, exporters in wanted().items():
            _set_up(signal, exporters)
    except (ImportError, LookupError) as error:
        return (
            f"the environment asks for OpenTelemetry, and nothing is sent: {error}; install opentelemetry-sdk and "
            "opentelemetry-exporter-otlp-proto-http, or unset OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_EXPORTER"
        )
    except Exception as error:  # whatever exporters say of the values of their variables
        return (
            "the environment asks for OpenTelemetry, and not everything is sent: a variable that begins with OTEL_ has "
            f"a value that cannot be used: {type(error).__name__}: {error}"
        )
    return None


def flush() -> None:
    """Send what is waiting to be sent, within some seconds; does nothing without a provider that can."""
    for name in ("trace", "metrics"):
        api: Any = sys.modules.get(f"opentelemetry.{name}")
        if api is None:
            continue
        provider = api.get_tracer_provider() if name == "trace" else api.get_meter_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH_MS)


class _Once(logging.Filter):
    """Lets each message pass once: a collector that is down all night is told in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[object] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg in self._told:
            return False
        self._told.add(record.msg)
        return True


def _set_up(signal: str, exporters: list[str]) -> None:
    """Set the provider of a signal. Raises ImportError or LookupError if a package is missing."""
    opened = [_exporter(signal, name) for name in exporters]
    for module in {kind.__module__ for exporter in opened for kind in type(exporter).__mro__}:
        logging.getLogger(module).addFilter(_Once())
    if signal == "TRACES":
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if hasattr(trace.get_tracer_provider(), "force_flush"):  # another SDK's
            return
        provider = TracerProvider(resource=_resource())
        for exporter in opened:
            provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        return
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if not hasattr(metrics.get_meter_provider(), "force_flush"):
        readers = [PeriodicExportingMetricReader(exporter) for exporter in opened]
        metrics.set_meter_provider(MeterProvider(readers, resource=_resource()))


def _exporter(signal: str, name: str) -> Any:
    """An exporter by the name that the environment gives it, which finds its own settings there."""
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", general)
        name = _PROTOCOLS.get(protocol.strip(), protocol)
    from importlib.metadata import entry_points

    found = entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=name)
    if not found:
        raise LookupError(f"there is no exporter {name!r} of {signal.lower()}")
    return next(iter(found)).load()()


def _resource() -> Any:
    """The description of this process: what the environment says, named ``indexmill`` if it gives no name."""
    from opentelemetry.sdk.resources import Resource

    import indexmill

    named = Resource.create().attributes
    ours = {"service.version": indexmill.__version__}
    if str(named.get("service.name", "unknown_service")).startswith("unknown_service"):
        ours["service.name"] = "indexmill"
    return Resource.create({name: value for name, value in ours.items() if name == "service.name" or name not in named})
