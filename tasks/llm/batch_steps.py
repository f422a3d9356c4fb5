"""The steps of one batch at an endpoint, each recorded before the next, so that another run can take over.

Each batch is started with one request only. If the response is lost, in a crash or in transit, the endpoint's lists are
searched for the batch for as long as they may lag. If it is not listed, its file is deleted, so that a request still in
transit starts nothing, and the lists are checked once more before any question is sent again. So no question is in two
paid batches, provided that lists are complete after `LAG` seconds and a batch does not start without its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from indexmill.errors import LeaseLost
from indexmill.models.chat import LARGEST_ANSWER
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected, LlmUnusable
from indexmill.models.openai_llm import OpenAiLlm
from storage import batches
from storage.batches import Batch, Ended, Outcome, Started, Starting, Uploaded
from storage.clock import Clock, from_timestamp, timestamp
from storage.faults import fault_point
from storage.lease import holding
from storage.protocol import Store
from tasks.llm.collect import BatchResults, collect
from tasks.llm.openai_batches import BatchState, NotStarted, OpenAiBatches

LAG = 600.0
"""Seconds after which an endpoint's lists are complete."""

_PER_QUESTION, _PER_TOKEN = 64_000, 64
"""Maximum bytes of an answer file per question, and per output token allowed."""

_OUTCOMES: dict[str, Outcome] = {"expired": "expired", "cancelled": "cancelled", "failed": "failed"}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rhythm:
    """The polling intervals and timeouts of a run, in seconds.

    lag: the delay until lists are complete. first, longest: the first and the longest interval between polls of a
    batch. away: the timeout for an endpoint that does not answer. patience: the same timeout while a run waits for a
    batch.
    """

    lag: float = LAG
    first: float = 5.0
    longest: float = 300.0
    away: float = 900.0
    patience: float = 6 * 3600.0


class BatchSteps:
    """Runs the steps of batches, for one run. wait, warn: see `tasks.llm.batch.PromptBatcher`."""

    def __init__(
        self,
        store: Store,
        llm: OpenAiLlm,
        run_id: str,
        *,
        wait: Callable[[float], None],
        warn: Callable[[str], None],
        clock: Clock,
        rhythm: Rhythm,
    ) -> None:
        self._store, self._llm, self._run_id = store, llm, run_id
        self._endpoint = OpenAiBatches(llm)
        self._wait, self._warn, self._clock, self._rhythm = wait, warn, clock, rhythm

    @property
    def where(self) -> str:
        return self._endpoint.where

    def start(self, batch: Batch, path: Path) -> Batch | None:
        """Upload a file and start its batch; closes the batch and returns None if it cannot have started.

        Raises LlmForbidden if the endpoint accepts no batches, LlmError if it is unreachable for too long.
        """
        self._hold_lease()
        fault_point("batch-upload")
        try:
            file_id = self._patiently(partial(self._endpoint.upload, path, batch.file_name))
        except LlmError as error:
            if not error.retry:
                self.end(batch, "never-started", str(error))
            raise
        fault_point("batch-uploaded")
        batch = batches.record(self._store, batch, Uploaded(file_id=file_id, created=self.now()))
        self._hold_lease()
        batch = batches.record(self._store, batch, Starting(created=self.now()))
        fault_point("batch-start")
        try:
            batch_id = self._patiently(partial(self._endpoint.start, file_id, batch.id), only=NotStarted)
        except LlmError as error:
            if error.retry and not isinstance(error, NotStarted):
                return self._find_started(batch)
            self.end(batch, "never-started", str(error))
            if isinstance(error, LlmRejected):
                raise LlmForbidden(f"{error}: a batch cannot be started there: set llm.batch to false") from error
            raise
        fault_point("batch-started")
        return batches.record(self._store, batch, Started(batch_id=batch_id, created=self.now()))

    def take_over(self, batch: Batch) -> Batch | None:
        """Take over the batch of a dead run; returns the started batch, or None if there is nothing to wait for."""
        if batch.ended is not None:
            self._clear(batch)
            return None
        if batch.started is not None:
            return batch
        if batch.starting is not None:
            return self._find_started(batch)
        if batch.uploaded is not None or self._files(batch) or self._is_listed(batch.request.created):
            self.end(batch, "never-started", "its run died before")
        return None  # a batch that is not closed may still have a file there: a later run deletes it

    def retrieve(self, batch: Batch, *, waiting: bool) -> BatchState | None:
        """Return the state of a started batch; None if the endpoint does not list it yet.

        waiting: use the longer timeout. Raises LlmForbidden if the endpoint does not know the batch after the lag.
        """
        assert batch.started is not None  # noqa: S101 - callers ensure it
        patience = self._rhythm.patience if waiting else self._rhythm.away
        shown = self._patiently(partial(self._endpoint.retrieve, batch.started.batch_id), patience)
        if shown is None and self._is_listed(batch.started.created):
            raise LlmForbidden(
                f"{self.where} does not know {batch}: use the API key of the project that started it, or give "
                f"up its answers with `indexmill batches --give-up {batch.id}`"
            )
        return shown

    def collect(self, batch: Batch, shown: BatchState) -> tuple[Outcome, BatchResults]:
        """Store an ended batch's answers in the ledger; if a file is too large, the rest is not batched again."""
        most = LARGEST_ANSWER + _PER_QUESTION * len(batch.keys) + _PER_TOKEN * batch.request.output_tokens
        paths: list[Path] = []
        aside: frozenset[str] = frozenset()
        try:
            for file_id in (shown.output_file_id, shown.error_file_id):
                if file_id is not None:
                    paths.append(self._store.scratch(self._run_id) / f"{batch.id}-{len(paths)}.jsonl")
                    try:
                        self._patiently(partial(self._endpoint.download, file_id, paths[-1], most))
                    except LlmUnusable as error:
                        aside = batch.keys
                        self._warn(f"{batch}: {error}; its unanswered questions are sent directly")
            downloaded = [path for path in paths if path.exists()]
            came = collect(self._store, self._llm, batch, downloaded, self._run_id, self.now())
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
        came.aside |= aside
        return _OUTCOMES.get(shown.status, "completed"), came

    def end(
        self, batch: Batch, outcome: Outcome, why: str, came: BatchResults | None = None, files: Iterable[str] = ()
    ) -> None:
        """Record the outcome of a batch and delete its files at the endpoint. files: the ids of its answer files."""
        came = came or BatchResults(unanswered=len(batch.keys))
        uploaded = [batch.uploaded.file_id] if batch.uploaded is not None else []
        ended = Ended(
            outcome=outcome,
            why=why,
            answered=came.good_answers,
            unusable=came.unusable,
            unanswered=came.unanswered,
            ignored=came.ignored,
            input_tokens=came.input_tokens,
            output_tokens=came.output_tokens,
            file_ids=(*uploaded, *files),
            run_id=self._run_id,
            created=self.now(),
        )
        self._clear(batches.record(self._store, batch, ended))

    def now(self) -> str:
        """Return the current timestamp, in the format of records."""
        return timestamp(self._clock())

    def _find_started(self, batch: Batch) -> Batch | None:
        """Find a batch that may have started; closes it and returns None if it never started."""
        assert batch.uploaded is not None  # noqa: S101 - uploaded before it is started
        assert batch.starting is not None  # noqa: S101
        file_id, delay = batch.uploaded.file_id, self._rhythm.first
        find = partial(self._patiently, partial(self._endpoint.find, file_id, batch.id))
        listed = find()
        while not listed and not self._is_listed(batch.starting.created):
            self._wait(delay)
            delay = min(2 * delay, self._rhythm.longest)
            listed = find()
        if not listed:
            self._patiently(partial(self._endpoint.delete, file_id))
            fault_point("batch-barred")
            listed = find()
        if not listed:
            self.end(batch, "never-started", "the endpoint lists no such batch")
            return None
        for twin in listed[1:]:
            self._warn(f"{batch} is at the endpoint twice: {twin} will be cancelled")
            self._patiently(partial(self._endpoint.cancel, twin))
        return batches.record(self._store, batch, Started(batch_id=listed[0], created=self.now()))

    def _is_listed(self, created: str) -> bool:
        """Return True if the endpoint's lists now include everything created up to a timestamp."""
        return self._clock() >= from_timestamp(created) + self._rhythm.lag

    def _files(self, batch: Batch) -> list[str]:
        return self._patiently(partial(self._endpoint.files, batch.file_name))

    def _clear(self, batch: Batch) -> None:
        """Delete an ended batch's files at the endpoint, including unrecorded ones, and close it."""
        assert batch.ended is not None  # noqa: S101 - callers ensure it
        for file_id in dict.fromkeys((*batch.ended.file_ids, *self._files(batch))):
            self._patiently(partial(self._endpoint.delete, file_id))
        fault_point("batch-cleared")
        batches.close(self._store, batch)

    def _patiently(self, call: Callable[[], _T], patience: float | None = None, only: type[LlmError] = LlmError) -> _T:
        delay = 1.0
        until = self._clock() + (self._rhythm.away if patience is None else patience)
        while True:
            try:
                return call()
            except only as error:
                seconds = max(delay, error.retry_after or 0.0)
                if not error.retry or self._clock() + seconds > until:
                    raise
                self._wait(seconds)
                delay = min(2 * delay, 60.0)

    def _hold_lease(self) -> None:
        """Raise LeaseLost if another run has taken over: only that run may start batches."""
        current = holding(self._store)
        if current is not None and current.run_id != self._run_id:
            raise LeaseLost(f"another run writes to {self._store.url}: {current}; this run starts no batch")
