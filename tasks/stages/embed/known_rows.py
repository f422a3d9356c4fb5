"""Rows of earlier parts that are expensive to make, found by a key, and vectors, found by text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.tables import read_table
from tasks.core.stage import Part
from tasks.stages.embed.embed import Vectors
from tasks.stages.split.node_texts import is_table

__all__ = ["KnownRows"]


class KnownRows:
    """The rows of the tables that a job may copy from, without stand-ins, by a column; `vectors`: by text.

    The tables have the schema, with a column `stand_in`; the packs have `text_keys` and `vectors`.
    """

    def __init__(self, part: Part[Any], schema: pa.Schema, key: str) -> None:
        self._key = key
        self._tables: list[pa.Table] = []
        packs = []
        for digest in part.job.reuse:
            if is_table(part, digest):
                table = read_table(part.store, digest, schema)
                self._tables.append(table.filter(pc.invert(table.column("stand_in"))))
            else:
                packs.append(part.pack_at(digest))
        self.vectors = Vectors((pack["text_keys"], pack["vectors"]) for pack in packs)

    def rows(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The first row of each key that is known."""
        return {key: rows[0] for key, rows in self.groups(keys).items()}

    def groups(self, keys: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """All rows of each key that is known: those of the first table that has the key."""
        found: dict[str, list[dict[str, Any]]] = {}
        wanted = pa.array(keys, pa.string())
        for table in self._tables:
            held: dict[str, list[dict[str, Any]]] = {}
            for row in table.filter(pc.is_in(table.column(self._key), wanted)).to_pylist():
                held.setdefault(row[self._key], []).append(row)
            found = held | found
        return found
