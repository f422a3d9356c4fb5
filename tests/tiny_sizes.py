"""The sizes by which the pipeline and the reader cut work and data, and values that cut a dozen documents many times.

A corpus that fits one piece, block or tile tells nothing about the code that puts several together. So each such size
is a constant that is read through its module when it is used, and is listed here: `tests/test_tiny_sizes.py` says which
constants those are.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

import pytest

from tasks.stages.ingest import spill, supervisor


@dataclass(frozen=True)
class Size:
    """A constant of a module. layout: True if it shapes what is published, so that another value gives other digests.

    close: True if it says above which number something is estimated, so that another value gives other hits.
    """

    module: str
    name: str
    tiny: Any
    layout: bool = False
    close: bool = False


@dataclass(frozen=True)
class Memo:
    """A function whose last results are cached for the process, up to a number that is fixed when it is imported."""

    module: str
    name: str


def _sizes(module: str, layout: bool = False, close: bool = False, **values: Any) -> tuple[Size, ...]:
    return tuple(Size(module, name, tiny, layout, close) for name, tiny in values.items())


SIZES: tuple[Size, ...] = (
    # What is published in pieces, blocks, groups and ranges.
    *_sizes("indexmill.store.table_reader", layout=True, ROWS_PER_GROUP=3),
    *_sizes("tasks.stages.embed.embed", layout=True, PIECE_BYTES=1),
    *_sizes("tasks.stages.resolve.name_counts", layout=True, SHARDS_PER_GROUP=2),
    *_sizes("tasks.stages.resolve.entity_ranges", layout=True, SHARDS_PER_RANGE=1),
    *_sizes("tasks.families.zoom_graph.compare", layout=True, PACKS_PER_RANGE=1),
    *_sizes("tasks.families.zoom_graph.blocks", layout=True, ROWS_PER_BLOCK=2),
    *_sizes("tasks.families.lsh_tree.blocks", layout=True, _MOST=(3, 2, 2)),
    *_sizes("tasks.stages.ingest.read_part", layout=True, _PART_WEIGHT=1),
    # Above which something is estimated.
    *_sizes("tasks.core.neighbours", close=True, EXACT_VECTORS=8),
    *_sizes("tasks.core.communities.augment", close=True, EXACT_NODES=8),
    *_sizes("tasks.stages.resolve.same_as", close=True, _EXACT=8),
    *_sizes("tasks.families.zoom_graph.choose", close=True, SAMPLE=8),
    *_sizes("tasks.llm.llm_recogniser", close=True, PIECE_BYTES=64),
    *_sizes("indexmill.families.heterograph.entries", close=True, _COMPARED=4),
    *_sizes("indexmill.families.zoom_graph.start", close=True, _NEAR=2),
    *_sizes("indexmill.families.zoom_graph.fine", close=True, DENSE_SENTENCES=4),
    # Reading a corpus.
    *_sizes("tasks.stages.ingest.source_files", _BATCH_BYTES=1_000, _BATCH_FILES=2),
    *_sizes("tasks.stages.ingest.spill", _BATCH_BYTES=500, _BATCH_ROWS=2),
    *_sizes("tasks.stages.ingest.spill_files", PIECE_BITS=6),
    *_sizes("tasks.stages.ingest.shard_plan", _GATHERED=2, _COMPARED=3),
    *_sizes("tasks.stages.ingest.known", _ROWS_PER_BUCKET=3),
    *_sizes("tasks.stages.ingest.fetching", _AT_ONCE=2, _PIECE=7),
    *_sizes("tasks.stages.ingest.readers", _CHUNK=64, _ROWS=2, _ROWS_BYTES=1, _REPEATED=1),
    *_sizes("tasks.stages.ingest.formats.json_array", _CHUNK=5),
    *_sizes("tasks.stages.ingest.formats.archive", _CHUNK=7),
    *_sizes("tasks.stages.ingest.formats.decompression", _CHUNK=16, _ZSTD_INPUT=5),
    *_sizes("tasks.stages.ingest.formats.extraction", _CHUNK=7),
    *_sizes("tasks.stages.ingest.formats.xml", _CHUNK=7),
    *_sizes("tasks.stages.ingest.sources.feed", _CHUNK=7),
    *_sizes("tasks.stages.ingest.sources.git", _CHUNK=7),
    *_sizes("tasks.stages.ingest.sources.plugin", _CHUNK=7),
    *_sizes("tasks.stages.ingest.sources.sitemap", _PIECE=7),
    *_sizes("tasks.stages.ingest.sources.sql_databases", _FETCHED=64, _MOST_ROWS=2),
    *_sizes("tasks.stages.ingest.sources.lake_table", _ROWS=2),
    # Computing a part.
    *_sizes("tasks.core.checks", _TILE=3),
    *_sizes("tasks.core.communities.graph", _TILE=3),
    *_sizes("tasks.core.communities.measures", _TILE=3),
    *_sizes("tasks.core.neighbours", _CELLS=4, _BLOCK=3, _FEW=1),
    *_sizes("tasks.core.part_runner", _READERS=2, _FAILED_TOGETHER=1),
    *_sizes("tasks.pipeline.backfill", WAVE_TOKENS=300),
    *_sizes("tasks.stages.resolve.name_similarity", _TILE=2),
    *_sizes("tasks.families.community_tree.chnsw", _TILE=3),
    *_sizes("tasks.families.community_tree.level_links", _TILE=2),
    *_sizes("tasks.families.heterograph.vector_edges", _TILE=3, _CELLS=8),
    *_sizes("tasks.families.lsh_tree.hyperplanes", _TILE=3),
    *_sizes("tasks.families.zoom_graph.blocks", _TILE=2, _PRODUCTS=4, _PIECE=3),
    *_sizes("tasks.families.zoom_graph.choose", _STRIP=2, _TILE=4, _PIECE=3, _MANY=1),
    *_sizes("tasks.families.zoom_graph.moments", _TILE=3),
    # Keeping it.
    *_sizes("flows.ledger", _AT_ONCE=2),
    *_sizes("storage.arrays", _SMALL=0),
    *_sizes("storage.deletions", _TOGETHER=1),
    *_sizes("storage.exports", _PIECE=100, _GROUP_BYTES=1_000),
    *_sizes("storage.folder", _PIECE=100),
    *_sizes("storage.object_store", _SEVERAL=1, _MANY=2),
    *_sizes("storage.table_blobs", _FEW=1),
    *_sizes("indexmill.store.bucket", _PIECE=100_000, _SLICE=10_000, _PAGE=3),
    *_sizes("indexmill.store.pack_checks", _PIECE=2),
    *_sizes("indexmill.export.entity_graph", _MANY=2),
    *_sizes("indexmill.export.export_tables", _MOST=2),
    # Finding hits.
    *_sizes("indexmill.snapshot", _MAX_BATCH=2),
    *_sizes("indexmill.evaluate.answer_evaluation", BATCH=2),
    *_sizes("indexmill.evaluate.recall", BATCH=2),
    *_sizes("indexmill.explore.node_layout", _BLOCK=3),
    *_sizes("tasks.llm.llm_recogniser", _AT_ONCE=1),
    *_sizes("indexmill.models.embedder", _CHUNK=3, _CHUNK_CHARACTERS=200),
    *_sizes("indexmill.models.endpoint_questions", _AT_ONCE=2),
    *_sizes("indexmill.models.rerank_endpoint", _MOST=2),
    *_sizes("indexmill.models.reranker", BATCH=2),
    *_sizes("indexmill.retrieve.retrieval_method", EXPLAINED_TOGETHER=2),
    *_sizes("indexmill.retrieve.columns", _PAIR_TILE=3),
    *_sizes("indexmill.retrieve.dense", QUESTION_TILE=2, FEW_QUESTIONS=1, ROW_TILE=3, DIRECTION_TILE=2, BLOCK_ROWS=5),
    *_sizes("indexmill.retrieve.dense", _GROUPS=1),
    *_sizes("indexmill.retrieve.document_rights", KEPT_READERS=1),
    *_sizes("indexmill.retrieve.entity_labels", KEPT_READERS=1),
    *_sizes("indexmill.retrieve.masks", KEPT_FILTERS=1, KEPT_FIELDS=1),
    *_sizes("indexmill.retrieve.code_scan", _CANDIDATES=1),
    *_sizes("indexmill.retrieve.table_rows", _FEW=1),
    *_sizes("indexmill.retrieve.term_index", HELD_POSTINGS=2),
    *_sizes("indexmill.retrieve.worker_pool", FEWEST=2, PART=1),
    *_sizes("indexmill.families.community_tree.chnsw", _TOGETHER=2),
    *_sizes("indexmill.families.community_tree.entities", _TOGETHER=2, _BLOCK=2),
    *_sizes("indexmill.families.community_tree.ranking", _TOGETHER=2),
    *_sizes("indexmill.families.community_tree.search", _TILE=3),
    *_sizes("indexmill.families.heterograph.retriever", _TOGETHER=1),
    *_sizes("indexmill.families.heterograph.name_words", _TOGETHER=1),
    *_sizes("indexmill.families.heterograph.search", _TILE=8, _LINKS=5),
    *_sizes("indexmill.families.tri_graph.search", QUESTION_TILE=2, TILE_LINKS=4),
    *_sizes("indexmill.families.zoom_graph.fine", _CELLS=64, _AT_ONCE=2, _BLOCKS=8, _BLOCK=3),
    *_sizes("indexmill.families.zoom_graph.graph", MOST_MATRICES=1),
    *_sizes("indexmill.families.zoom_graph.passages", MOST_SENTENCES=2),
    *_sizes("indexmill.families.zoom_graph.search", QUESTION_TILE=2, WALK_QUESTIONS=2, WALK_LINKS=2),
    *_sizes("indexmill.families.zoom_graph.start", _NEAR_ROWS=3),
    *_sizes("indexmill.families.zoom_graph.walk", MOST_LINKS=4),
)

MEMOS: tuple[Memo, ...] = (
    Memo("indexmill.models.embedder", "_features"),
    Memo("indexmill.text.terms", "_remembered"),
    Memo("tasks.families.lsh_tree.texts", "_summaries"),
    Memo("tasks.llm.answer_parsing", "_validator"),
    Memo("tasks.stages.ingest.source_files", "_source_of"),
    Memo("tasks.stages.ingest.formats.tesseract", "_content_digest"),
    Memo("tasks.stages.ingest.formats.tesseract", "_described"),
)


def value_of(size: Size) -> Any:
    """The value that a size has now."""
    return getattr(importlib.import_module(size.module), size.name)


def make_tiny(patch: pytest.MonkeyPatch, *, layout: bool = True, close: bool = False) -> None:
    """Make all sizes of this process tiny, which then scans its corpus itself.

    layout: also those that shape what is published. close: also the limits of exact results.
    """
    patch.setattr(
        supervisor, "_scan_here", lambda files, settings, folder, cuts: spill.scan(files, settings, folder, cuts=cuts)
    )
    for size in SIZES:
        if (layout or not size.layout) and (close or not size.close):
            patch.setattr(f"{size.module}.{size.name}", size.tiny)
    for memo in MEMOS:
        module = importlib.import_module(memo.module)
        patch.setattr(module, memo.name, functools.lru_cache(maxsize=1)(getattr(module, memo.name).__wrapped__))
