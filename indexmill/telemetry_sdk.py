"""Set up the SDK of OpenTelemetry from the standard environment variables, for the processes of indexmill's commands.

A library must not do this: an application that imports indexmill sets up its own provider. A command or a worker of a
run is the application. Nothing is set up unless a variable requests it, and an existing provider is kept, as under
``opentelemetry-instrument``.
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
"""The ids of the processes that called ``configure``; a forked child has its own."""


def requested_exporters(environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Return the exporters that the environment requests, by signal: ``{"TRACES": ["otlp"]}``.

    A signal is exported if ``OTEL_<SIGNAL>_EXPORTER`` names exporters, or if OTLP has an endpoint; the exporter
    ``none`` or ``OTEL_SDK_DISABLED=true`` turns it off.
    """
    variables = os.environ if environment is None else environment
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return {}
    exporters_of = {}
    for signal in _SIGNALS:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        default = "otlp" if any(variables.get(name) for name in endpoints) else ""
        named = [name.strip() for name in (variables.get(f"OTEL_{signal}_EXPORTER") or default).split(",")]
        if exporters := [name for name in named if name not in ("", "none")]:
            exporters_of[signal] = exporters
    return exporters_of


def configure() -> str | None:
    """Set up providers for the signals that the environment requests, once per process.

    Returns a warning if a package is missing or a variable is invalid; the command continues with less telemetry.
    """
    if os.getpid() in _configured:
        return None
    _configured.add(os.getpid())
    # The exporters log every failed attempt; log only the final failure.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
    try:
        for signal, exporters in requested_exporters().items():
            _set_up(signal, exporters)
    except (ImportError, LookupError) as error:
        return (
            f"the environment requests OpenTelemetry, but nothing is sent: {error}; install opentelemetry-sdk and "
            "opentelemetry-exporter-otlp-proto-http, or unset OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_EXPORTER"
        )
    except Exception as error:  # exporters raise anything for invalid variables
        return (
            "the environment requests OpenTelemetry, but not everything is sent: a variable that begins with OTEL_ has "
            f"an invalid value: {type(error).__name__}: {error}"
        )
    return None


def flush() -> None:
    """Send pending spans and metrics within a few seconds; does nothing without an SDK provider."""
    for name in ("trace", "metrics"):
        api: Any = sys.modules.get(f"opentelemetry.{name}")
        if api is None:
            continue
        provider = api.get_tracer_provider() if name == "trace" else api.get_meter_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH_MS)


class _Once(logging.Filter):
    """A log filter that passes each message once, so that a collector that is down all night causes a single line."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: set[object] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg in self._logged:
            return False
        self._logged.add(record.msg)
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

        if hasattr(trace.get_tracer_provider(), "force_flush"):  # set by another SDK
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
    """Create the exporter with this name for a signal; the exporter reads its own settings from the environment."""
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", general)
        name = _PROTOCOLS.get(protocol.strip(), protocol)
    from importlib.metadata import entry_points

    entries = entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=name)
    if not entries:
        raise LookupError(f"there is no exporter {name!r} for {signal.lower()}")
    return next(iter(entries)).load()()


def _resource() -> Any:
    """Return the resource that the environment describes; the service name defaults to ``indexmill``."""
    from opentelemetry.sdk.resources import Resource

    import indexmill

    named = Resource.create().attributes
    ours = {"service.version": indexmill.__version__}
    if str(named.get("service.name", "unknown_service")).startswith("unknown_service"):
        ours["service.name"] = "indexmill"
    return Resource.create({name: value for name, value in ours.items() if name == "service.name" or name not in named})
