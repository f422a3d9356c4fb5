"""The texts of the nodes of a tree over passages: those of passages, and of the summaries above them.

They are read from tables by digest: `documents`, `passages` and `plain` of a shard, or `summaries` of a block. The
passages of a group come from many shards, a few from each. So a worker that needs some texts of a shard writes all of
them to a file in the run's scratch folder and memory-maps it from then on, which takes a fraction of the time of
reading the tables. The files together are no larger than the texts of the corpus and are removed with the run; if the
store is a bucket, hosts other than the driver's remove them in a later run, after a day (`storage.object_store`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.store.canonical import canonical_json, digest_of
from schemas.tables import DOCUMENTS, PASSAGES, PLAIN
from storage.stores import open_store
from storage.table_blobs import read_table
from storage.write_errors import writing_to_store
from tasks.core.stage import Part
from tasks.families.lsh_tree.tables import LSH_SUMMARIES
from tasks.stages.split.plain import TEXT_COLUMNS, Plain
from tasks.stages.split.split import embedded_text

_READ = 96
"""The number of tables of summaries that a worker caches."""


def texts_of(part: Part[Any], digests: Mapping[str, str], chosen: pa.Array | None = None) -> Iterator[tuple[str, str]]:
    """Yield ids and texts of a shard's passages, as embedded, or of a block's summaries. chosen: ids; None for all."""
    if "summaries" in digests:
        table = _summaries(part.store.url, digests["summaries"])
    elif chosen is None:
        table = _passages(part, digests)
    else:
        table = _mapped(part, digests)
    if chosen is not None:
        table = table.filter(pc.is_in(table["id"], chosen))
    yield from zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)


@lru_cache(maxsize=_READ)
def _summaries(store_url: str, digest: str) -> pa.Table:
    table = read_table(open_store(store_url), digest, LSH_SUMMARIES, columns=("node_id", "text"))
    return table.rename_columns(["id", "text"])


def _passages(part: Part[Any], digests: Mapping[str, str]) -> pa.Table:
    of_plain, of_passages = TEXT_COLUMNS
    plain = Plain(
        read_table(part.store, digests["plain"], PLAIN, columns=of_plain),
        read_table(part.store, digests["passages"], PASSAGES, columns=of_passages),
    )
    table = plain.passages
    titles = [""] * len(table)
    if part.settings.title_in_passage:
        documents = read_table(part.store, digests["documents"], DOCUMENTS, columns=("document_id", "title"))
        at = pc.index_in(table["document_id"], documents["document_id"].combine_chunks())
        titles = documents["title"].take(at).to_pylist()
    texts = map(embedded_text, titles, table["text"].to_pylist(), plain.headings)
    return pa.table({"id": table["passage_id"], "text": pa.array(texts, pa.string())})


def _mapped(part: Part[Any], digests: Mapping[str, str]) -> pa.Table:
    """Return the ids and texts of a shard's passages from a file of the run that is written on first use."""
    which = digest_of(canonical_json([dict(digests), part.settings.title_in_passage]))
    path = part.scratch() / f"texts-{which}.arrow"
    if not path.exists():
        _write(path, _passages(part, digests))
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _write(path: Path, table: pa.Table) -> None:
    """Write a table for memory-mapping. Concurrent writers write the same bytes."""
    with writing_to_store(path):
        number, unfinished = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        Path(unfinished).replace(path)
