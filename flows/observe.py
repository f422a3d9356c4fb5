"""What others see of a run: the root of its trace, its metrics, and its OpenLineage events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import indexmill
from flows.openlineage import RunLineage
from flows.operation import Operation
from indexmill import telemetry
from indexmill.errors import IndexmillError
from indexmill.models.secrets import redacted
from schemas.config import Configuration
from tasks.pipeline.build import Build

__all__ = ["Observed", "observed", "outcome_of"]

_OUTCOMES = {3: "refused", 4: "budget", 5: "superseded"}
"""As the run's record calls them, by exit code."""


class Observed:
    """A run that is watched. It has a record and a build once it holds the lease."""

    def __init__(self, command: str, configuration: Configuration, span: telemetry.Span) -> None:
        self.command, self.configuration = command, configuration
        self.record: Operation | None = None
        self.build: Build | None = None
        self._span = span
        self._lineage: RunLineage | None = None
        self._started = time.monotonic()

    def began(self, record: Operation, build: Build) -> None:
        """The run holds the lease, and its build is about to start."""
        self.record, self.build = record, build
        parent = {} if build.parent is None else {"indexmill.parent_version": build.parent.version}
        self._span.set({"indexmill.run.id": record.run_id, **parent})
        self._lineage = RunLineage(self.command, self.configuration, lambda message: build.progress.warn(message))
        self._lineage.started(record.run_id)

    def ended(self, error: BaseException | None) -> None:
        """The run has ended, its record is written."""
        outcome = outcome_of(self.record, error)
        labels = {"indexmill.command": self.command, "indexmill.outcome": outcome}
        telemetry.add("indexmill.runs", 1, labels)
        telemetry.record("indexmill.run.duration", time.monotonic() - self._started, labels)
        told: dict[str, Any] = {"indexmill.outcome": outcome}
        if self.record is not None and self.record.version is not None:
            told["indexmill.version"] = self.record.version
        if self.build is not None:
            told |= self._costs(self.build)
        self._span.set(told)
        if self._lineage is not None and self.record is not None and self.build is not None:
            manifest = self.build.manifest() if outcome == "published" else None
            self._lineage.ended(outcome, self.build.report, manifest, self.record.version, error)

    def _costs(self, build: Build) -> dict[str, Any]:
        report = build.report
        model = build.configuration.llm.model
        labels = {"indexmill.command": self.command} | ({} if model is None else {"gen_ai.request.model": model})
        tokens = {kind: report.total(f"llm_{kind}_tokens") for kind in ("input", "output")}
        for kind, count in tokens.items():
            if count:
                telemetry.add("indexmill.run.tokens", count, {**labels, "gen_ai.token.type": kind})
        if report.cost:
            telemetry.add("indexmill.run.cost", report.cost, labels)
        told: dict[str, Any] = {
            "indexmill.parts.made": report.parts_made,
            "indexmill.parts.reused": report.parts_reused,
        }
        for name in ("vectors_made", "vectors_reused", "quarantined", "llm_calls"):
            told[f"indexmill.{name}"] = report.total(name)
        told |= {f"gen_ai.usage.{kind}_tokens": count for kind, count in tokens.items() if count}
        return told | {"indexmill.cost": report.cost}


@contextlib.contextmanager
def observed(command: str, configuration: Configuration) -> Iterator[Observed]:
    """Watch the run of the block."""
    about = {
        "indexmill.command": command,
        "indexmill.store": redacted(str(configuration.store)),
        "indexmill.release": indexmill.__version__,
    }
    with telemetry.span(f"indexmill {command}", about) as span:
        seen = Observed(command, configuration, span)
        error: BaseException | None = None
        try:
            yield seen
        except BaseException as caught:
            error = caught
            raise
        finally:
            seen.ended(error)


def outcome_of(record: Operation | None, error: BaseException | None) -> str:
    """How a run ended, in the words of its record."""
    if error is None:
        return "published" if record is not None and record.published else "unchanged"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return _OUTCOMES.get(error.exit_code, "failed") if isinstance(error, IndexmillError) else "failed"
