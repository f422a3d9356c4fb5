"""Records spans for calls, whichever process runs them: every span belongs to the trace of the run.

The trace context travels with the call, not with its job, so a part's key and receipt do not depend on it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from indexmill import telemetry, telemetry_sdk


@dataclass(frozen=True, slots=True)
class CallTrace:
    """The span of a call, small and picklable.

    headers: the context of the parent span, as W3C headers. facts: a module-level function that returns the span's
    attributes for a result.
    """

    name: str
    attributes: Mapping[str, str | int]
    facts: Callable[[Any], Mapping[str, Any]]
    headers: Mapping[str, str] = field(default_factory=dict)

    def span(self) -> telemetry.Span:
        """Begin the span in this process."""
        return telemetry.span(self.name, {**self.attributes, "process.pid": os.getpid()}, inner=True)


def run_traced(trace: CallTrace, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in its span on a worker, which configures telemetry at its first traced call."""
    telemetry_sdk.configure()
    with telemetry.joined(trace.headers), trace.span() as span:
        result = function(*arguments)
        span.set(trace.facts(result))
        return result


@contextlib.contextmanager
def traced_here(trace: CallTrace | None) -> Iterator[Callable[[Any], None]]:
    """Trace a call in the process of the run. Yields a function that records the call's result in the span.

    Without a span, nothing within the call is traced.
    """
    if trace is None:
        with telemetry.muted() if telemetry.is_traced() else contextlib.nullcontext():
            yield lambda result: None
        return
    with trace.span() as span:
        yield lambda result: span.set(trace.facts(result))
