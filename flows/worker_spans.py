"""Sends the last spans of workers before the workers end: a killed worker sends none."""

from __future__ import annotations

import contextlib
import functools

from distributed import Client

from flows.cluster import within
from indexmill import telemetry, telemetry_sdk

_SECONDS = 10.0
"""How long the end of a run waits for its workers to send."""


def send_spans(client: Client) -> None:
    """Have every worker send its spans, if this run is traced; waits for a bounded time, and never raises."""
    if not telemetry.is_traced():
        return
    with contextlib.suppress(Exception):
        within(_SECONDS, "send-spans", functools.partial(client.run, telemetry_sdk.flush, on_error="ignore"))
