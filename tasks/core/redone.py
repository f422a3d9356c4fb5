"""What the run's report counts of dear rows: those that the parent has, too, and those that it has not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from storage.tables import read_table
from tasks.core.run import Run
from tasks.core.stage import Stage

__all__ = ["count_redone"]


def count_redone(
    run: Run,
    stage: Stage[Any],
    output: str,
    digests: Iterable[str],
    key: str,
    *,
    named: str,
    layer: str = "",
    of_layer: Callable[[str], bool] = lambda _: True,
    where: pc.Expression | None = None,
    total: int | None = None,
) -> None:
    """Count `<named>_redone<layer>` and `<named>_kept<layer>` of a stage, where this run makes its parts.

    digests: of the tables that this run has, which are the outputs `output`, or `<output>/<label>`, of the stage.
    key: the column that says which rows are the same. of_layer: whether a part of the parent, by its shard, is of the
    same layer. where: which rows count. total: how many there are, if that is known.
    """
    if not run.makes_parts:
        return

    def keys(tables: Iterable[str]) -> set[str]:
        """The keys of some tables; none of a table that was lost or damaged."""
        found: set[str] = set()
        for digest in sorted(tables):
            with contextlib.suppress(CorruptBlob):
                table = read_table(run.store, digest)
                found.update((table if where is None else table.filter(where))[key].unique().to_pylist())
        return found

    before = {
        digest
        for entry in (run.parent.lineage.entries if run.parent else ())
        if entry.stage == stage.name and of_layer(entry.shard)
        for name, digest in entry.outputs.items()
        if name.partition("/")[0] == output
    }
    now = set(digests)
    redone = len(keys(now - before) - keys(before - now))
    counts = run.counts(stage.name)
    counts[f"{named}_redone{layer}"] = redone
    counts[f"{named}_kept{layer}"] = (len(keys(now)) if total is None else total) - redone
