"""The texts of the nodes of a tree over passages: those of passages, and of the summaries above them.

They are read from tables by digest: `documents`, `passages` and `plain` of a shard, or `summaries` of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import DOCUMENTS, PASSAGES, PLAIN
from storage.stores import open_store
from storage.tables import read_table
from tasks.core.stage import Part
from tasks.families.lsh_tree.tables import LSH_SUMMARIES
from tasks.stages.split.plain import TEXT_COLUMNS, Plain
from tasks.stages.split.split import embedded_text

__all__ = ["texts_of"]

_READ = 96
"""Tables that a worker keeps: the nodes of a group have passages of any shard."""


def texts_of(part: Part[Any], digests: Mapping[str, str], chosen: pa.Array | None = None) -> Iterator[tuple[str, str]]:
    """The ids and texts of a shard's passages, as they are embedded, or of a group's summaries.

    chosen: the ids that are wanted; all by default.
    """
    if "summaries" in digests:
        table = _columns(part.store.url, digests["summaries"], LSH_SUMMARIES, "node_id", "text")
        table = table if chosen is None else table.filter(pc.is_in(table["node_id"], chosen))
        yield from zip(table["node_id"].to_pylist(), table["text"].to_pylist(), strict=True)
        return
    of_plain, of_passages = TEXT_COLUMNS
    table = _columns(part.store.url, digests["passages"], PASSAGES, *of_passages)
    markup = _columns(part.store.url, digests["plain"], PLAIN, *of_plain)
    if chosen is not None:
        table = table.filter(pc.is_in(table["passage_id"], chosen))
        markup = markup.filter(pc.is_in(markup["document_id"], table["document_id"].combine_chunks()))
    plain = Plain(markup, table)
    table = plain.passages
    titles = [""] * len(table)
    if part.settings.title_in_passage:
        documents = _columns(part.store.url, digests["documents"], DOCUMENTS, "document_id", "title")
        at = pc.index_in(table["document_id"], documents["document_id"].combine_chunks())
        titles = documents["title"].take(at).to_pylist()
    texts = map(embedded_text, titles, table["text"].to_pylist(), plain.headings)
    yield from zip(table["passage_id"].to_pylist(), texts, strict=True)


@lru_cache(maxsize=_READ)
def _columns(store_url: str, digest: str, schema: pa.Schema, *names: str) -> pa.Table:
    """Some columns of a table of texts: some megabytes, whose unpacking costs more than finding a few rows in them."""
    return read_table(open_store(store_url), digest, schema, columns=names)
