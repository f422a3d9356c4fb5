"""Count expensive rows for the run's report: rows kept from the parent, and rows made again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from storage.table_blobs import read_table
from tasks.core.run import Run
from tasks.core.stage import Stage


def count_redone(
    run: Run,
    stage: Stage[Any],
    output: str,
    digests: Iterable[str],
    key: str | Callable[[str], Iterable[Hashable]],
    *,
    named: str,
    layer: str = "",
    of_layer: Callable[[str], bool] = lambda _: True,
    where: pc.Expression | None = None,
    total: int | None = None,
) -> None:
    """Count `<named>_redone<layer>` and `<named>_kept<layer>` of a stage, if this run makes parts.

    digests: the digests of this run's outputs `output` or `<output>/<label>` of the stage. key: the column that
    identifies rows or, for outputs that are not tables, a function that returns an output's keys. of_layer: returns
    True if the parent's part for a label belongs to the same layer. where: a filter of the rows to count. total: the
    number of rows, if it is known.
    """
    if not run.makes_parts:
        return

    def keys_in(digest: str) -> Iterable[Hashable]:
        if not isinstance(key, str):
            return key(digest)
        table = read_table(run.store, digest)
        values: list[Hashable] = (table if where is None else table.filter(where))[key].unique().to_pylist()
        return values

    def keys(tables: Iterable[str]) -> set[Hashable]:
        """Return the keys in some tables. Tables that were lost or damaged are skipped."""
        present: set[Hashable] = set()
        for digest in sorted(tables):
            with contextlib.suppress(CorruptBlob):
                present.update(keys_in(digest))
        return present

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
