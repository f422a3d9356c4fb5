"""A child process that runs a stage on a few documents of a shard, discards the results, and may die.

`tasks.core.isolate` starts it, sends it a job and the rows to try, and reads the result of each trial.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.protocol import Store
from storage.stores import open_store
from tasks.core.isolate import Rows, Trial, blames_documents
from tasks.core.stage import Job, Part, stage_of


class SomeInputs(Part[Any]):
    """The inputs of a part, restricted to some documents of its shard."""

    is_trial = True

    def __init__(self, store: Store, job: Job, rows: Rows) -> None:
        super().__init__(store, job)
        self._rows = rows

    def table(self, name: str, *columns: str) -> pa.Table:
        """Return the rows of the input table that belong to the documents."""
        schema: pa.Schema = self.stage.input(name).schema
        key = "document_id" if "document_id" in schema.names else "passage_id"
        ids = self._documents() if key == "document_id" else self._passages()
        whole = super().table(name)
        return whole.filter(pc.is_in(whole[key], value_set=ids)).select(list(columns or schema.names))

    def _documents(self) -> pa.Array:
        first, last = self._rows
        return super().table("documents", "document_id")["document_id"][first:last].combine_chunks()

    def _passages(self) -> pa.Array:
        return self.table("passages", "passage_id")["passage_id"].combine_chunks()


def run(job: Job, rows: Rows) -> Trial:
    """Try the stage of a job on some documents; raises exceptions that no document caused."""
    stage = stage_of(job)
    try:
        stage.compute(SomeInputs(open_store(job.store_url), job, rows))
    except Exception as error:
        if not blames_documents(error):
            raise
        return Trial(rows, f"{type(error).__name__}: {error}"[:500])
    return Trial(rows)


def _die_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _main() -> None:
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed rather than a worker
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the results
    job, trials = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def tell(answer: object) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    tell("ready")
    for rows in trials:
        try:
            tell(run(job, rows))
        except Exception as error:
            tell(error)
            break
    answers.flush()
    os._exit(0)  # skip the cleanup of everything loaded for the trials


if __name__ == "__main__":
    _main()
