"""The SDK as the standard environment asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk")

from indexmill.telemetry_sdk import requested_exporters
from tests.otlp import Collector
from tests.paths import ROOT

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environment", "signals"),
    [
        ({}, {}),
        ({OTLP: ""}, {}),
        ({OTLP: "http://h:4318"}, {"TRACES": ["otlp"], "METRICS": ["otlp"]}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h/v1/traces"}, {"TRACES": ["otlp"]}),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, {"TRACES": ["otlp", "console"]}),
        ({OTLP: "http://h:4318", "OTEL_METRICS_EXPORTER": "none"}, {"TRACES": ["otlp"]}),
        ({OTLP: "http://h:4318", "OTEL_SDK_DISABLED": "True"}, {}),
    ],
)
def test_the_environment_says_what_is_sent(environment: dict[str, str], signals: dict[str, list[str]]) -> None:
    assert requested_exporters(environment) == signals


def query(store: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    arguments = ["query", "Marrow Bridge", "--store", str(store), "--method", "dense", *words]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-m", "indexmill", *arguments],
        env=kept | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.slow
def test_a_command_sends_its_spans_and_metrics_before_it_ends(published: Path) -> None:
    with Collector() as collector:
        environment = {**collector.environment, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
        done = query(published, environment)
    assert done.stderr == ""
    (span,) = [one for one in collector.spans if one.name == "indexmill.retrieve"]
    assert span.resource["service.name"] == "indexmill"
    assert span.resource["deployment.environment.name"] == "test"
    assert "service.version" in span.resource
    assert {"indexmill.retrieve.duration", "indexmill.retrieve.hits"} <= collector.metrics
    assert not any(b"Marrow" in body for body in collector.bodies)


@pytest.mark.slow
def test_the_name_of_the_service_is_the_users(published: Path) -> None:
    with Collector() as collector:
        query(published, {**collector.environment, "OTEL_SERVICE_NAME": "search"})
    assert {one.resource["service.name"] for one in collector.spans} == {"search"}


@pytest.mark.slow
def test_a_collector_that_is_down_delays_the_end_of_a_command_by_seconds_at_most(published: Path) -> None:
    began = time.monotonic()
    query(published, {OTLP: "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"})
    assert time.monotonic() - began < 40


@pytest.mark.slow
def test_a_collector_that_stays_down_is_told_once() -> None:
    code = """
from opentelemetry import trace
from indexmill import telemetry_sdk
telemetry_sdk.configure()
for name in ("first", "second", "third"):
    with trace.get_tracer("test").start_as_current_span(name):
        pass
    telemetry_sdk.flush()
"""
    traces = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | traces,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr.count("Failed to export") == 1


@pytest.mark.slow
def test_an_exporter_that_is_not_installed_is_a_warning(published: Path) -> None:
    done = query(published, {"OTEL_TRACES_EXPORTER": "zipkin"})
    assert "there is no exporter 'zipkin' for traces; install opentelemetry-sdk" in done.stderr
    assert "Marrow" in done.stdout


@pytest.mark.slow
def test_a_provider_that_cannot_be_loaded_is_a_warning(published: Path) -> None:
    done = query(published, {OTLP: "http://127.0.0.1:9", "OTEL_PYTHON_TRACER_PROVIDER": "missing"})
    assert "a variable that begins with OTEL_ has an invalid value: " in done.stderr
    assert "Marrow" in done.stdout
