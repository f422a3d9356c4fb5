"""The vectors of a snapshot's passages and sentences, a row for each row of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from indexmill.errors import CorruptBlob
from indexmill.retrieve.consecutive import starts_of
from indexmill.retrieve.retrieval_method import Vectors

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def row_vectors(artifacts: Artifacts, table: str) -> Sequence[Vectors]:
    """The vectors of ``passages`` or ``sentences``: consecutive ``(n, d)`` maps, opened on first access.

    The vectors of sentences are directions (``indexmill.retrieve.directions``). Raises CorruptBlob unless there are as
    many vectors as rows of the table.
    """
    vectors = artifacts.vectors("vectors", table)
    rows = sum(shard.rows or 0 for shard in artifacts.shards(table))
    if (length := int(starts_of(vectors)[-1])) != rows:
        raise CorruptBlob(f"{artifacts.path}: there are {length} vectors for {rows} rows of {table!r}; build again")
    return vectors
