"""The telemetry spans of a stage and of a sample of its parts."""

from __future__ import annotations

import contextlib
from collections import Counter
from types import TracebackType
from typing import Any, Self

from indexmill.telemetry import Span, carried, record, span
from tasks.core.call_traces import CallTrace
from tasks.core.stage import PartResult

FIRST = 8
EACH = 64
"""The first FIRST parts of a stage have a span, then every EACH-th part: a build may make a hundred thousand parts."""

_COUNTS = ("vectors_made", "vectors_reused", "llm_calls", "llm_ledger", "llm_input_tokens", "llm_output_tokens")
"""The counts of parts that spans show."""


class StageTrace:
    """The span of a stage's parts, as a context manager. Used by one thread."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._counts: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._headers: dict[str, str] = {}
        self._parts = 0

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        begun = span(f"stage {self._stage}", {"indexmill.stage": self._stage}, inner=True)
        self._span: Span = self._stack.enter_context(begun)
        if self._span.recorded:
            self._headers = carried()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._outcomes["reused"] = self._parts - self._outcomes["made"]
        for outcome, parts in sorted(self._outcomes.items()):
            if parts:
                record("indexmill.parts", parts, {"indexmill.stage": self._stage, "indexmill.outcome": outcome})
        shown_counts = {name: self._counts[name] for name in _COUNTS if self._counts[name]}
        self._span.set(
            {
                "indexmill.parts": self._parts,
                "indexmill.parts.made": self._outcomes["made"],
                "indexmill.parts.reused": self._outcomes["reused"],
                **{f"indexmill.{name}": count for name, count in shown_counts.items()},
            }
        )
        self._stack.__exit__(kind, error, trace)

    def begin(self, parts: int) -> None:
        self._parts = parts

    def of_call(self, number: int, key: str, shard: str) -> CallTrace | None:
        """Return the span of the call that makes the stage's part `number`; None if the part has no span."""
        if not self._headers or (number >= FIRST and number % EACH):
            return None
        attributes = {"indexmill.stage": self._stage, "indexmill.part.key": key, "indexmill.part.shard": shard}
        return CallTrace(f"part {self._stage}", attributes, facts_of, self._headers)

    def add(self, result: PartResult) -> None:
        """Count a part as made or reused, and add the part's counts."""
        self._outcomes["reused" if result.reused else "made"] += 1
        self._counts.update(result.counts)


def facts_of(result: Any) -> dict[str, Any]:
    if not isinstance(result, PartResult):
        return {}
    counts = {f"indexmill.{name}": result.counts[name] for name in _COUNTS if result.counts.get(name)}
    return {
        "indexmill.part.reused": result.reused,
        "indexmill.part.rows": max(result.receipt.rows.values(), default=0),
        "indexmill.part.bytes": sum(result.receipt.bytes.values()),
        "indexmill.part.failed": result.receipt.failed,
        **counts,
    }
