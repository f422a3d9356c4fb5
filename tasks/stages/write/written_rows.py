"""A part of written rows: rows of earlier parts are copied, the others are written once each, and all are embedded.

Texts by a language model are the most expensive rows of a build. A key hashes all sources of an item's text, so that an
earlier part's rows with this key are copied, even if their neighbours changed; fallbacks are not copied. Vectors are
looked up by text. A stage's subclass defines its items, rows and requests, and how an answer is parsed; the stage's
`compute` and `requests` then take one line each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.models.llm import Request
from schemas.tables import conform
from storage.table_blobs import read_table
from tasks.core.encoder import encoder_of
from tasks.core.shards import id_hashes
from tasks.core.stage import Outputs, Part, worker_arg
from tasks.stages.embed.embed import Vectors, embed_texts, keys_array, row_key
from tasks.stages.write.text_writer import I, T, TextWriter, WriterSettings

Row = dict[str, Any]
S = TypeVar("S", bound=WriterSettings)


class KnownRows:
    """The reusable rows of earlier tables, looked up by a key column; fallbacks are excluded.

    vectors: the reusable vectors, looked up by text (`text_keys`).
    """

    def __init__(self, part: Part[Any], schema: pa.Schema, key: str) -> None:
        self._key = key
        self._tables = [table.filter(pc.invert(table.column("stand_in"))) for table in part.reusable_tables(schema)]
        packs = (pack for pack in part.reusable_packs() if "text_keys" in pack)
        self.vectors = Vectors((pack["text_keys"], pack["vectors"]) for pack in packs)

    def rows(self, keys: Sequence[str]) -> dict[str, list[Row]]:
        """Return the rows with these keys, by key; a key's rows come from the first table that contains it."""
        rows: dict[str, list[Row]] = {}
        requested = pa.array(keys, pa.string())
        for table in self._tables:
            matches: dict[str, list[Row]] = {}
            for row in table.filter(pc.is_in(table.column(self._key), requested)).to_pylist():
                matches.setdefault(row[self._key], []).append(row)
            rows = matches | rows
        return rows


def text_vectors(
    part: Part[Any], texts: Sequence[str], reusable: Vectors, dimension: int
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the arrays `text_keys` (n, 16) uint8 and `vectors` (n, d) float32 of texts, and the number computed.

    The encoder is not opened if all vectors are reusable.
    """
    vectors, keys, computed = embed_texts(texts, lambda some: encoder_of(part).encode(some), reusable, dimension)
    return {"text_keys": keys_array(keys), "vectors": vectors}, computed


class WrittenRows(TextWriter[I, T], Generic[S, I, T]):
    """The rows of one part.

    table: the output that contains them. counted_as: their name in the run's report, if not `table`. schema: the rows'
    schema, which starts with the ids that order the rows, and has `text`, `tokens`, `digest` (of the embedded text),
    `stand_in` and the column `key`. vectors: the output with their vectors; "" if another stage makes them. with_ids:
    whether this output also has the array `keys`, the hashes of the rows' ids. several: whether an item may have
    several rows.
    """

    table: ClassVar[str]
    counted_as: ClassVar[str] = ""
    schema: ClassVar[pa.Schema]
    key: ClassVar[str] = "made_of"
    vectors: ClassVar[str] = ""
    with_ids: ClassVar[bool] = False
    several: ClassVar[bool] = False

    def __init__(self, part: Part[S]) -> None:
        super().__init__(part.settings)
        self.inputs: Part[Any] = part
        self.settings: S = part.settings

    # Defined by a stage's subclass, besides the methods of TextWriter.

    @abstractmethod
    def read(self) -> Iterable[I]:
        """Yield the items of the part."""

    @abstractmethod
    def rows_of(self, item: I, text: T) -> list[Row]:
        """Return the rows of a text, without the common columns `key`, `tokens`, `digest` and `stand_in`."""

    def placed(self, item: I, row: Row) -> Row:
        """Return a row, new or copied, with the columns that depend on the item and not on the key."""
        return row

    def embedded(self, row: Row) -> str:
        """Return the embedded text of a row."""
        return str(row["text"])

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text."""
        counted: list[int] = encoder_of(self.inputs).count_tokens(texts).tolist()
        return counted

    def counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """Return additional counts for the run's report."""
        return {}

    # Common to all.

    @cached_property
    def items(self) -> list[I]:
        """The items of the part, in their order."""
        return list(self.read())

    @cached_property
    def written(self) -> list[I]:
        """The items without a fixed text, which a model writes if there is one."""
        return [item for item in self.items if self.fixed_text(item) is None]

    @cached_property
    def reusable(self) -> KnownRows:
        """The reusable rows and vectors of earlier parts."""
        return KnownRows(self.inputs, self.schema, self.key)

    @cached_property
    def known_rows(self) -> dict[str, list[Row]]:
        """The items' rows in earlier parts, by key."""
        matches = self.reusable.rows([self.key_of(item) for item in self.items])
        return matches if self.several else {key: rows[:1] for key, rows in matches.items()}

    @cached_property
    def missing(self) -> list[I]:
        """The items whose rows no earlier part has, one per key."""
        by_key = {self.key_of(item): item for item in self.items}
        return [item for key, item in by_key.items() if key not in self.known_rows]

    @cached_property
    def unwritten(self) -> list[I]:
        """The missing items without a fixed text, which a model writes if there is one."""
        return [item for item in self.missing if self.fixed_text(item) is None]

    @classmethod
    def requests_of(cls, part: Part[S]) -> list[Request]:
        """Return a part's requests to the model."""
        rows = cls(part)
        return rows.requests(rows.missing)

    def compute(self) -> Outputs:
        """Compute the part: its rows and their vectors, with fallbacks counted as failed."""
        all_rows = self.known_rows | self._new_rows()
        rows = [self.placed(item, row) for item in self.items for row in all_rows[self.key_of(item)]]
        rows.sort(key=itemgetter(self.schema.names[0]))
        name = self.counted_as or self.table
        failed = sum(all_rows[self.key_of(item)][0]["stand_in"] for item in self.items)
        return Outputs(
            tables={self.table: conform(pa.Table.from_pylist(rows, self.schema), self.schema)},
            packs={self.vectors: self._vectors(rows)} if self.vectors else {},
            counts={
                f"{name}_made": len(self.unwritten),
                f"{name}_reused": len(self.written) - len(self.unwritten),
                "stand_ins": failed,
                **self.counts(rows),
            },
            failed=failed,
            texts=len(self.written),
        )

    def _new_rows(self) -> dict[str, list[Row]]:
        written = self.write(self.inputs, self.missing)
        new = {
            self.key_of(item): [{**row, self.key: self.key_of(item), "stand_in": fallback} for row in rows]
            for item, rows, fallback in zip(
                self.missing, map(self.rows_of, self.missing, written.texts), written.fallbacks, strict=True
            )
        }
        rows = list(chain.from_iterable(new.values()))
        texts = [self.embedded(row) for row in rows]
        for row, text, tokens in zip(rows, texts, self.count_tokens(texts) if texts else [], strict=True):
            row.update(tokens=tokens, digest=row_key(text).hex())
        return new

    def _vectors(self, rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
        texts = [self.embedded(row) for row in rows]
        dimension: int = self.inputs.settings.encoder["dimension"]
        arrays, _ = text_vectors(self.inputs, texts, self.reusable.vectors, dimension)
        if self.with_ids:
            arrays = {"keys": id_hashes(row[self.schema.names[0]] for row in rows), **arrays}
        return arrays


@dataclass(frozen=True, kw_only=True)
class SourcedSettings(WriterSettings):
    """Settings for texts with listed sources. sources: the digest of the table of sources; None without a model."""

    sources: str | None = worker_arg()


SourcedS = TypeVar("SourcedS", bound=SourcedSettings)


class SourcedRows(WrittenRows[SourcedS, I, T]):
    """Rows of texts whose sources are listed in a table of an earlier stage.

    sources: the schema of that table; its columns are the owner of a text, ascending, and the id of a source.
    """

    sources: ClassVar[pa.Schema]

    @abstractmethod
    def owner_of(self, item: I) -> str:
        """Return the owner under which the table of sources lists what the item's text was written from."""

    def load(self, items: Sequence[I]) -> None:
        """Read the sources of the items."""
        self._sources: dict[str, list[str]] = {}
        if self.settings.sources is not None:
            table = read_table(self.inputs.store, self.settings.sources, self.sources)
            owners = pa.array([self.owner_of(item) for item in items], pa.string())
            table = table.filter(pc.is_in(table.column(0), owners))
            for owner, source in zip(*(column.to_pylist() for column in table.columns), strict=True):
                self._sources.setdefault(owner, []).append(source)

    def about(self, item: I) -> Sequence[str]:
        """Return the sources of the text, ascending."""
        return self._sources.get(self.owner_of(item), ())
