"""Find the documents of a shard that make a stage fail: tried alone, such a document kills its process or raises.

A shard's documents are tried in blocks of about the square root of their number, one block after the other, in a child
process that runs `tasks.core.trial`; the documents of a block that fails are tried one by one. A child is reused until
it dies, so a shard with one failing document costs four children and about twice the work. A document is blamed for the
death of a process only if, alone, it killed two processes. The results of trials are discarded, so trials call no
encoder behind an endpoint. Only trials of a stage that asks a language model get the model's key.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.errors import IndexmillError
from schemas.config import EndpointSettings
from schemas.tables import DOCUMENTS
from storage.stores import open_store
from storage.table_blobs import read_table
from tasks.core.child import ending, import_path
from tasks.core.executor import StoppedError, stopped
from tasks.core.process_environment import worker_environment
from tasks.core.stage import Job, stage_of

MOST = 16
"""The maximum number of failing documents in a shard; if more fail, the stage is at fault."""

Rows = tuple[int, int]
"""A range of a shard's documents in the order of their ids: the first, and the end (excluded)."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A document that makes a stage fail."""

    document_id: str
    content_hash: str
    kills: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial of some rows; `detail` is empty if it succeeded."""

    rows: Rows
    detail: str = ""
    kills: bool = False


class DocumentsRefused(Exception):
    """Raised by a stage that names the documents it cannot process."""

    def __init__(self, failing: Sequence[Failing]) -> None:
        super().__init__(f"the stage cannot process {len(failing)} documents")
        self.failing = tuple(failing)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failing,)


class DocumentsFailed(Exception):
    """Documents that make a stage fail were found and recorded: the stages can restart without them."""


def blames_documents(error: Exception) -> bool:
    """Return True if a document may have caused an exception, rather than the store, the settings or the machine."""
    return not isinstance(error, (IndexmillError, MemoryError, OSError, ImportError))


def failing_documents(job: Job, endpoints: Sequence[EndpointSettings] = ()) -> list[Failing]:
    """Return the documents that make the stage of a job fail, ordered by id.

    The list is empty if each document succeeds alone, if the stage fails without documents, or if more than MOST fail.
    Raises exceptions that no document caused. endpoints: the endpoints of the models that the run may ask.
    """
    table = read_table(
        open_store(job.store_url), job.inputs["documents"], DOCUMENTS, columns=["document_id", "content_hash"]
    )
    size = max(math.isqrt(table.num_rows), 1)
    blocks = [(at, min(at + size, table.num_rows)) for at in range(0, table.num_rows, size)]
    stage = stage_of(job)
    environment = worker_environment(endpoints, job.store_url, asks=stage.requests is not None)
    suspects: list[Rows] = []
    for trial in _tried(job, [(0, 0), *blocks], environment):
        if trial.detail:
            suspects.append(trial.rows)
        if trial.detail and (trial.rows == (0, 0) or len(suspects) > MOST):
            return []
    alone = [(row, row + 1) for first, last in suspects for row in range(first, last)]
    failures: list[Trial] = []
    for trial in _tried(job, alone, environment):
        if trial.detail:
            failures.append(trial)
        if len(failures) > MOST:
            return []
    deadly = [one.rows for one in failures if one.kills]
    survived = {trial.rows for trial in _tried(job, deadly, environment) if not trial.detail}
    rows = table.to_pylist()
    return [
        Failing(rows[trial.rows[0]]["document_id"], rows[trial.rows[0]]["content_hash"], trial.kills, trial.detail)
        for trial in failures
        if trial.rows not in survived
    ]


def _tried(job: Job, trials: Sequence[Rows], environment: Mapping[str, str]) -> Iterator[Trial]:
    """Yield the trials in turn; a new process starts whenever one dies."""
    remaining = list(trials)
    while remaining:
        for trial in _in_a_process(job, tuple(remaining), environment):
            remaining.remove(trial.rows)
            yield trial


def _in_a_process(job: Job, trials: Sequence[Rows], environment: Mapping[str, str]) -> Iterator[Trial]:
    """Yield the trials that one process completes, and the trial that ended the process."""
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.core.trial"],
            env={**environment, "PYTHONPATH": import_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,  # so that Ctrl-C reaches only this process
        ) as child,
    ):
        try:
            if child.stdin is None or child.stdout is None:
                raise RuntimeError("a child without pipes")
            pickle.dump((job, trials), child.stdin)
            child.stdin.flush()  # stdin stays open: the child ends when this process does
            for number in range(len(trials) + 1):
                if stopped():
                    raise StoppedError
                try:
                    message = pickle.load(child.stdout)  # noqa: S301 - from our own child
                except (EOFError, pickle.UnpicklingError):
                    how = ending(child.wait())
                    if not number:
                        stderr.seek(0)
                        words = stderr.read().decode(errors="replace").strip()[-1500:]
                        raise IndexmillError(f"a process that tries documents {how} at its start: {words}") from None
                    yield Trial(trials[number - 1], f"its process {how}", kills=True)
                    return
                if isinstance(message, Exception):
                    raise message
                if isinstance(message, Trial):
                    yield message
        finally:
            child.kill()
