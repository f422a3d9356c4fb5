"""The checks of the outputs that all families share: documents, passages, vectors, entities, relations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.retrieve.directions import unit_vectors
from indexmill.retrieve.shared_schema import MENTION_LINKS, TITLES, VECTORS
from indexmill.retrieve.shared_schema import NAMES as NAME_VECTORS
from indexmill.store.table_reader import LOCATIONS
from indexmill.text.canonical_names import NameIndex
from schemas.tables import DESCRIBED, PLAIN, RELATED
from tasks.core.checks import Check, check_lengths, check_pack, columns, refuse_if
from tasks.core.shards import id_hash, id_hashes
from tasks.core.stage import Input, Part, concatenated, shared_tables
from tasks.stages.embed.embed import TEXT_VECTORS, keys_array, row_key
from tasks.stages.embed.titles import embedded_title, passage_documents
from tasks.stages.extract.extraction_tables import EXTRACTION
from tasks.stages.resolve.consolidate import entity_text
from tasks.stages.resolve.entity_ranges import entity_keys
from tasks.stages.resolve.mention_links import layout_of


def _check_documents(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Compare a shard's documents, passages, sentences and vectors; return the number of rows of each table."""
    label = part.job.shard
    documents = columns(part, "documents", "document_id")["document_id"]
    passages = columns(part, "passages", "passage_id", "document_id")
    counts = {"documents": documents.len(), "passages": passages.height}
    counts["sentences"] = columns(part, "sentences", "passage_id").height
    strange = [
        name for name in documents.to_list() if not f"{int.from_bytes(id_hash(name)):0256b}".startswith(label[1:])
    ]
    refuse_if(bool(strange), f"documents/{label}: {strange[:1]} belongs to another shard")
    refuse_if(documents.n_unique() != documents.len(), f"documents/{label}: document ids are not unique")
    unique = passages["passage_id"].n_unique()
    refuse_if(unique != passages.height, f"passages/{label}: passage ids are not unique")
    _check_locations(part)
    orphans = passages.filter(~pl.col("document_id").is_in(documents.implode())).height
    refuse_if(orphans > 0, f"passages/{label}: {orphans} passages belong to no document")
    vectors = concatenated(part.packs("vectors"))
    for table in ("passages", "sentences"):
        rows = counts[table]
        refuse_if(len(vectors[table]) != rows, f"vectors/{label}: {len(vectors[table])} rows for {rows} {table}")
    check_lengths(vectors["passages"], f"vectors/{label}, passages")
    check_lengths(unit_vectors(vectors["sentences"]), f"vectors/{label}, sentences")
    return counts


def _check_locations(part: Part[Any]) -> None:
    """Raise CheckError unless a shard's locations, if any, are within their texts and have valid pages and boxes."""
    where = f"documents/{part.job.shard}"
    if LOCATIONS not in pl.read_parquet_schema(part.path(part.digest("documents"))):
        return
    table = part.table("documents", "text", LOCATIONS)
    lengths = pc.utf8_length(table["text"]).combine_chunks()
    column = table[LOCATIONS].combine_chunks()
    places = column.flatten()
    owners = pc.list_parent_indices(column).to_numpy()
    starts, pages = (places.field(name).to_numpy() for name in ("start", "page"))
    same = owners[1:] == owners[:-1]
    refuse_if(bool((same & (starts[1:] <= starts[:-1])).any()), f"{where}: locations do not ascend")
    outside = bool(((starts < 0) | (starts >= lengths.to_numpy()[owners])).any())
    refuse_if(outside, f"{where}: a location is outside its document's text")
    refuse_if(bool((pages < 1).any()), f"{where}: a location is on a page below 1")
    boxes = places.field("box").drop_null()
    strange = bool((pc.list_value_length(boxes).to_numpy() != 4).any()) or boxes.flatten().null_count > 0
    refuse_if(strange, f"{where}: a box does not have four sides")
    sides = boxes.flatten().to_numpy().reshape(-1, 4)
    ordered = np.isfinite(sides).all() and bool((sides[:, :2] <= sides[:, 2:]).all())
    refuse_if(not ordered, f"{where}: the sides of a box are not numbers or not in order")


def _check_titles(part: Part[Any], _: Mapping[str, int]) -> None:
    where, pack = f"titles/{part.job.shard}", part.pack("titles")
    titles = [embedded_title(title) for title in columns(part, "documents", "title")["title"].to_list()]
    vectors = unit_vectors(pack["vectors"])
    refuse_if(len(vectors) != len(titles), f"{where}: {len(vectors)} rows for {len(titles)} documents")
    keys = keys_array([row_key(title) for title in titles])
    refuse_if(not np.array_equal(pack["text_keys"], keys), f"{where}: the vectors belong to other titles")
    titled = np.array([bool(title) for title in titles], dtype=np.bool_)
    check_lengths(vectors[titled], where)
    refuse_if(bool(vectors[~titled].any()), f"{where}: a document without a title has a vector")
    rows = passage_documents(part)
    refuse_if(not np.array_equal(pack["passage_document"], rows), f"{where}: the passages belong to other documents")


def _check_mention_links(part: Part[Any], counts: Mapping[str, int]) -> None:
    where, pack = f"mention_links/{part.job.shard}", part.pack("mention_links")
    check_pack(MENTION_LINKS, pack, where, {f"own {table}": rows for table, rows in counts.items()})
    tables = [
        part.table("documents", "document_id"),
        part.table("passages", "passage_id", "document_id"),
        part.table("sentences", "passage_id"),
    ]
    for name, begins in layout_of(*tables).items():
        refuse_if(not np.array_equal(pack[name], begins), f"{where}: {name} belong to other rows")
    ids = [part.table(name, "entity_id").column(0) for name in ("mentions", "extracted") if part.has(name)]
    keys = entity_keys(pc.unique(pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())))
    refuse_if(not np.array_equal(pack["entity_keys"], np.sort(keys)), f"{where}: the links belong to other entities")


def _check_linked_entities(part: Part[Any], counts: Mapping[str, int]) -> None:
    packs = part.packs("mention_links")
    keys = np.concatenate([np.empty(0, np.uint64), *(pack["entity_keys"] for pack in packs)])
    linked = len(np.unique(keys))
    refuse_if(
        bool(packs) and linked != counts["entities"], f"mention_links: {linked} entities for {counts['entities']}"
    )


def _check_extraction(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    tables = {name: columns(part, name, *schema.names) for name, schema in EXTRACTION.items()}
    check_extraction(tables, columns(part, "passages", "passage_id")["passage_id"], part.job.shard)
    return {"extracted_relations": tables["relations"].height}


def check_extraction(tables: Mapping[str, pl.DataFrame], passages: pl.Series, label: str) -> None:
    """Raise CheckError if a shard's extraction (schemas EXTRACTION) has duplicate ids or dangling references."""
    units, links, entities, relations = (tables[name] for name in EXTRACTION)
    for name, key, table in (
        ("units", ["unit_id"], units),
        ("unit_entities", ["unit_id", "entity_id"], links),
        ("extracted", ["passage_id", "entity_id"], entities),
        ("relations", ["relation_id"], relations),
    ):
        where = f"{name}/{label}"
        refuse_if(table.select(key).is_duplicated().any(), f"{where}: {' and '.join(key)} are not unique")
        strange = table.filter(~pl.col("passage_id").is_in(passages.implode())).height
        refuse_if(strange > 0, f"{where}: {strange} rows belong to no passage")
    ends = [relations.rename({end: "entity_id"}).select(*links.columns) for end in ("source", "target")]
    for name, rows, key, targets in (
        ("unit_entities", links, ["passage_id", "unit_id"], units),
        ("unit_entities", links, ["passage_id", "entity_id"], entities),
        ("relations", pl.concat(ends), ["passage_id", "unit_id", "entity_id"], links),
    ):
        dangling = rows.join(targets, on=key, how="anti").height
        refuse_if(dangling > 0, f"{name}/{label}: {dangling} rows name no {key[-1]} of their passage")
    refuse_if(
        bool((relations["source"] == relations["target"]).any()), f"relations/{label}: an entity is related to itself"
    )


def _check_entities(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    """Compare the vectors of an entity shard's names with its entities; return the number of entities."""
    label, keys = part.job.shard, _entity_keys(part)
    refuse_if(bool((keys[1:] <= keys[:-1]).any()), f"entities/{label}: the rows are not in the order of their ids")
    bits = label[1:]
    strange = int(np.count_nonzero(keys >> np.uint64(64 - len(bits)) != int(bits, 2))) if bits else 0
    refuse_if(strange > 0, f"entities/{label}: {strange} entities belong to another shard")
    pack = part.pack("names")
    unknown = np.setdiff1d(pack["entity_keys"], keys)
    refuse_if(len(unknown) > 0, f"names/{label}: {len(unknown)} vectors belong to missing entities")
    check_lengths(unit_vectors(pack["vectors"]), f"names/{label}")
    return {"entities": len(keys)}


def _entity_keys(part: Part[Any]) -> NDArray[np.uint64]:
    return NameIndex.keys(columns(part, "entities", "entity_id")["entity_id"].to_list())


def _check_described(part: Part[Any], _: Mapping[str, int]) -> dict[str, int]:
    described = columns(part, "described", *DESCRIBED.names)
    related = columns(part, "related", *RELATED.names)
    vectors = part.pack("description_vectors")
    return check_descriptions(described, related, vectors, _entity_keys(part), part.job.shard)


def check_descriptions(
    described: pl.DataFrame,
    related: pl.DataFrame,
    vectors: Mapping[str, NDArray[Any]],
    entities: NDArray[np.uint64],
    label: str,
) -> dict[str, int]:
    """Raise CheckError if an entity shard's descriptions (schemas DESCRIBED, RELATED) and vectors disagree.

    entities: the keys of all entities of the shard. Returns counts of described entities, related pairs and relations.
    """
    where = f"described/{label}"
    ids = described["entity_id"].to_list()
    refuse_if(any(before >= after for before, after in pairwise(ids)), f"{where}: not in the order of their ids")
    unknown = np.setdiff1d(NameIndex.keys(ids), entities)
    refuse_if(len(unknown) > 0, f"{where}: {len(unknown)} descriptions belong to missing entities")
    texts = [entity_text(*row) for row in described.select("surface", "type", "description").iter_rows()]
    digests = [row_key(text).hex() for text in texts]
    refuse_if(digests != described["digest"].to_list(), f"{where}: a text does not match its digest")
    refuse_if(bool((described["passages"] < 1).any()), f"{where}: no passage mentions an entity")
    where = f"description_vectors/{label}"
    refuse_if(len(vectors["vectors"]) != len(ids), f"{where}: {len(vectors['vectors'])} rows for {len(ids)} entities")
    refuse_if(not np.array_equal(vectors["keys"], id_hashes(ids)), f"{where}: the vectors belong to other entities")
    text_keys = [key.tobytes().hex() for key in vectors["text_keys"]]
    refuse_if(text_keys != digests, f"{where}: the vectors belong to other texts")
    check_lengths(vectors["vectors"], where)
    where = f"related/{label}"
    pairs = list(related.select("source", "target").iter_rows())
    refuse_if(any(before >= after for before, after in pairwise(pairs)), f"{where}: not in the order of their ends")
    refuse_if(any(source == target for source, target in pairs), f"{where}: an entity is related to itself")
    strange = related.filter(~pl.col("source").is_in(described["entity_id"].implode())).height
    refuse_if(strange > 0, f"{where}: {strange} relations of entities that are not described there")
    digests = [row_key(text).hex() for text in related["description"].to_list()]
    refuse_if(digests != related["digest"].to_list(), f"{where}: a text does not match its digest")
    return {"described": len(ids), "related": len(pairs), "relations": int(related["relations"].sum())}


def _check_mentions(part: Part[Any], counts: Mapping[str, int]) -> None:
    mentioned = _distinct(part, "entity_id", "mentions", "extracted")
    refuse_if(
        mentioned != counts["entities"], f"{counts['entities']} entities for {mentioned} mentioned or extracted ids"
    )


def _distinct(part: Part[Any], column: str, *tables: str) -> int:
    paths = [path for name in tables for path in part.paths(name)]
    if not paths:
        return 0
    whole = pl.concat([pl.scan_parquet(path).select(column) for path in paths])
    return int(whole.select(pl.col(column).n_unique()).collect(engine="streaming").item())


def _check_all_described(part: Part[Any], counts: Mapping[str, int]) -> None:
    if "described" not in counts:
        return
    extracted = _distinct(part, "entity_id", "extracted")
    refuse_if(
        counts["described"] != extracted, f"{counts['described']} described entities for {extracted} extracted entities"
    )
    relations, expected = counts["relations"], counts["extracted_relations"]
    refuse_if(
        relations != expected,
        f"related pairs have {relations} relations for {expected} extracted relations",
    )
    ids = part.tables("described", "entity_id").column("entity_id").combine_chunks()
    related = part.tables("related", "target").column("target")
    strange = len(related) - int(pc.sum(pc.is_in(related, ids)).as_py() or 0)
    refuse_if(strange > 0, f"related: {strange} pairs lead to entities that are not described")
    if part.has("same_as"):
        check_same_as(part.table("same_as"), ids)


def check_same_as(pairs: pa.Table, ids: pa.Array) -> None:
    """Raise CheckError unless the pairs (schema SAME_AS) are distinct, in order, and name only described entities."""
    rows = list(zip(*(pairs.column(name).to_pylist() for name in ("entity_id", "other_id")), strict=True))
    refuse_if(any(before >= after for before, after in pairwise(rows)), "same_as: rows not in the order of their ids")
    refuse_if(any(first >= second for first, second in rows), "same_as: a pair is not in the order of its ids")
    for name in ("entity_id", "other_id"):
        described = pc.all(pc.is_in(pairs.column(name), ids)).as_py()
        refuse_if(described is False, f"same_as: a pair names an entity that is not described ({name})")


CHECKS = (
    Check(
        (
            *shared_tables("documents", "passages", "sentences"),
            Input("plain", PLAIN),
            Input("vectors", VECTORS, pieces=True),
        ),
        _check_documents,
    ),
    Check((Input("titles", TITLES), *shared_tables("documents", "passages")), _check_titles),
    Check(
        (
            Input("mention_links", MENTION_LINKS),
            *shared_tables("documents", "passages", "sentences", "mentions"),
            *shared_tables("extracted", optional=True),
        ),
        _check_mention_links,
    ),
    Check(shared_tables(*EXTRACTION, "passages"), _check_extraction),
    Check((*shared_tables("entities"), Input("names", NAME_VECTORS)), _check_entities),
    Check(
        (*shared_tables("described", "related", "entities"), Input("description_vectors", TEXT_VECTORS)),
        _check_described,
    ),
    Check(shared_tables("mentions", "extracted", each=True), _check_mentions, whole=True),
    Check((Input("mention_links", MENTION_LINKS, each=True),), _check_linked_entities, whole=True),
    Check(
        (
            *shared_tables("described", "related", "extracted", each=True),
            *shared_tables("same_as", optional=True),
        ),
        _check_all_described,
        whole=True,
    ),
)
"""The checks of the stages' outputs."""
