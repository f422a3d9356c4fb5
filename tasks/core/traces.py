"""The spans of calls, in whichever process they run: each belongs to the trace of the run.

The place in the trace travels with the call, not with its job: a part's key and receipt do not know of it.
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
    """The span of a call: picklable, and small.

    headers: the place in the trace that it belongs to, as W3C headers. facts: a module-level function that says what of
    a result the span shows.
    """

    name: str
    attributes: Mapping[str, str | int]
    facts: Callable[[Any], Mapping[str, Any]]
    headers: Mapping[str, str] = field(default_factory=dict)

    def span(self) -> telemetry.Span:
        """The span, which begins now in this process."""
        return telemetry.span(self.name, {**self.attributes, "process.pid": os.getpid()}, inner=True)


def run_traced(trace: CallTrace, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a worker, within its span.

    A worker sets up what the environment asks for when the first traced call reaches it.
    """
    telemetry_sdk.configure()
    with telemetry.joined(trace.headers), trace.span() as told:
        result = function(*arguments)
        told.set(trace.facts(result))
        return result


@contextlib.contextmanager
def traced_here(trace: CallTrace | None) -> Iterator[Callable[[Any], None]]:
    """The span of a call in the process of the run; a call without one shows nothing of what it does.

    Yields a function that is told the result.
    """
    if trace is None:
        with telemetry.muted() if telemetry.is_traced() else contextlib.nullcontext():
            yield lambda result: None
        return
    with trace.span() as told:
        yield lambda result: told.set(trace.facts(result))
