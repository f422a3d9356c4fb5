"""The telemetry of a run: the root span of its trace, its metrics, and its OpenLineage events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import indexmill
from flows.openlineage import RunLineage
from flows.operation import Operation
from indexmill import telemetry
from indexmill.errors import IndexmillError
from indexmill.models.secrets import redacted
from indexmill.text.printable import one_line
from schemas.config import Configuration
from tasks.pipeline.build import Build

_OUTCOMES = {3: "refused", 4: "budget", 5: "superseded"}
"""The outcomes in a run's record, by exit code."""

_LONGEST = 1000
"""The maximum length of an error's message."""


class Observed:
    """The telemetry of a run, whose record and build are set once the run holds the lease. Failures only warn."""

    def __init__(
        self, command: str, configuration: Configuration, span: telemetry.Span, warn: Callable[[str], None]
    ) -> None:
        self.command, self.configuration, self._warn = command, configuration, warn
        self.record: Operation | None = None
        self.build: Build | None = None
        self._span = span
        self._lineage: RunLineage | None = None
        self._started = time.monotonic()

    def began(self, record: Operation, build: Build) -> None:
        """Report that the run holds the lease and its build is about to start."""
        self.record, self.build = record, build
        parent = {} if build.parent is None else {"indexmill.parent_version": build.parent.version}
        with self._harmlessly():
            self._span.set({"indexmill.run.id": record.run_id, **parent})
            self._lineage = RunLineage(self.command, self.configuration, self._warn)
            self._lineage.started(record.run_id)

    def ended(self, error: BaseException | None) -> None:
        """Report the end of the run, once its record has been written."""
        with self._harmlessly():
            self._report(error)

    @contextlib.contextmanager
    def _harmlessly(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # SDKs and clients may raise any error
            description = redacted(f"{type(error).__name__}: {one_line(str(error))}")
            self._warn(f"the telemetry of this run is incomplete: {description}")

    def _report(self, error: BaseException | None) -> None:
        outcome = outcome_of(self.record, error)
        labels = {"indexmill.command": self.command, "indexmill.outcome": outcome}
        telemetry.record("indexmill.runs", 1, labels)
        telemetry.record("indexmill.run.duration", time.monotonic() - self._started, labels)
        attributes: dict[str, Any] = {"indexmill.outcome": outcome}
        if self.record is not None and self.record.version is not None:
            attributes["indexmill.version"] = self.record.version
        if self.build is not None:
            attributes |= self._costs(self.build)
        self._span.set(attributes)
        if self._lineage is not None and self.record is not None and self.build is not None:
            manifest = self.build.manifest() if outcome == "published" else None
            message = None if error is None else message_of(error)
            self._lineage.ended(outcome, self.build.report, manifest, self.record.version, message)

    def _costs(self, build: Build) -> dict[str, Any]:
        report = build.report
        model, embed = build.configuration.llm.model, build.configuration.embed
        labels = {"indexmill.command": self.command} | ({} if model is None else {"gen_ai.request.model": model})
        tokens = {kind: report.total(f"llm_{kind}_tokens") for kind in ("input", "output")}
        for kind, count in tokens.items():
            if count:
                telemetry.record("indexmill.run.tokens", count, {**labels, "gen_ai.token.type": kind})
        if embed.asks and (vectors := report.total("embed_tokens")):
            of_vectors = {**labels, "gen_ai.request.model": embed.model, "gen_ai.token.type": "input"}
            telemetry.record("indexmill.run.tokens", vectors, of_vectors)
        if report.cost:
            telemetry.record("indexmill.run.cost", report.cost, labels)
        attributes: dict[str, Any] = {
            "indexmill.parts.made": report.parts_made,
            "indexmill.parts.reused": report.parts_reused,
        }
        for name in ("vectors_made", "vectors_reused", "quarantined", "llm_calls"):
            attributes[f"indexmill.{name}"] = report.total(name)
        attributes |= {f"gen_ai.usage.{kind}_tokens": count for kind, count in tokens.items() if count}
        return attributes | {"indexmill.cost": report.cost}


@contextlib.contextmanager
def observed(command: str, configuration: Configuration, warn: Callable[[str], None]) -> Iterator[Observed]:
    """Record the telemetry of the run that the block carries out."""
    about = {
        "indexmill.command": command,
        "indexmill.store": redacted(str(configuration.store)),
        "indexmill.release": indexmill.__version__,
    }
    with telemetry.span(f"indexmill {command}", about) as span:
        seen = Observed(command, configuration, span, warn)
        error: BaseException | None = None
        try:
            yield seen
        except BaseException as caught:
            error = caught
            raise
        finally:
            seen.ended(error)


def outcome_of(record: Operation | None, error: BaseException | None) -> str:
    """Return the outcome of a run, as its record names it."""
    if error is None:
        return "published" if record is not None and record.published else "unchanged"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return _OUTCOMES.get(error.exit_code, "failed") if isinstance(error, IndexmillError) else "failed"


def message_of(error: BaseException) -> str:
    """Return an error's message for telemetry; only the class name of foreign errors, which may quote a text."""
    ours = isinstance(error, (IndexmillError, KeyboardInterrupt)) and str(error)
    return redacted(f"{type(error).__name__}: {error}" if ours else type(error).__name__)[:_LONGEST]
