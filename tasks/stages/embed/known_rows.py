"""What earlier parts hold of texts that are dear to make: rows by a key, and vectors by text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.core.stage import Part
from tasks.stages.embed.embed import Vectors

__all__ = ["KnownRows"]


class KnownRows:
    """The rows of the tables that a job may copy from, stand-ins left out, by a column; and `vectors`, by text.

    The tables have the schema, with a column `stand_in`; the packs have `text_keys` and `vectors`.
    """

    def __init__(self, part: Part[Any], schema: pa.Schema, key: str) -> None:
        self._key = key
        self._tables = [table.filter(pc.invert(table.column("stand_in"))) for table in part.reusable_tables(schema)]
        self.vectors = Vectors((pack["text_keys"], pack["vectors"]) for pack in part.reusable_packs())

    def rows(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The rows of some keys, as far as they are known; the first of each."""
        return {key: rows[0] for key, rows in self.groups(keys).items()}

    def groups(self, keys: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """All rows of each of some keys, as far as they are known: those of the first table that has the key."""
        found: dict[str, list[dict[str, Any]]] = {}
        wanted = pa.array(keys, pa.string())
        for table in self._tables:
            held: dict[str, list[dict[str, Any]]] = {}
            for row in table.filter(pc.is_in(table.column(self._key), wanted)).to_pylist():
                held.setdefault(row[self._key], []).append(row)
            found = held | found
        return found
