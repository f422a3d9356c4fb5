"""Stage `check`: the artifacts held against each other before anything is published.

A build that gets here has made every part; what could still be wrong is a bug, or bytes that changed on disk. Either
way nothing is published: the check raises, and names the artifact. Each shard of documents and of entities has a check
of its own, so that a refresh looks at the shards that changed; that of the whole corpus (the shard `all`) relies on
them. No id can be in two shards, since each shard holds the ids that its label says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.bm25.retriever import FIELD_ARRAYS, FIELDS
from indexmill.text.names import NameIndex
from schemas.tables import DESCRIBED, RELATED, SAME_AS
from tasks.core.checks import CheckError
from tasks.core.checks import check_lengths as _check_lengths
from tasks.core.checks import columns as _columns
from tasks.core.checks import refuse_if as _refuse_if
from tasks.core.estimate import Estimate, Range
from tasks.core.shards import id_hash, id_hashes
from tasks.core.stage import Inputs, Output, Outputs, Stage
from tasks.families.community_tree import check as community_tree
from tasks.families.heterograph import check as heterograph
from tasks.families.lsh_tree import check as lsh_tree
from tasks.stages.embed.embed import keys_array, row_key
from tasks.stages.embed.titles import embedded_title, passage_documents
from tasks.stages.extract.tables import EXTRACTION
from tasks.stages.resolve.consolidate import entity_text

__all__ = [
    "STAGE",
    "CheckError",
    "check_descriptions",
    "check_extraction",
    "check_postings",
    "check_same_as",
    "estimate",
]


def _compute(inputs: Inputs[Any]) -> Outputs:
    if "documents" in inputs.job.inputs:
        counts = _check_documents(inputs)
    elif "entities" in inputs.job.inputs:
        counts = _check_entities(inputs)
    elif "summaries" in inputs.job.inputs:
        counts = lsh_tree.check_summaries(inputs, {})
    elif "communities" in inputs.job.inputs:
        counts = community_tree.check_reports(inputs, {})
    elif "elements" in inputs.job.inputs:
        counts = heterograph.check_elements(inputs, {})
    else:
        counts = _check_whole(inputs)
    return Outputs(files={"checked": json.dumps(counts, sort_keys=True).encode()})


def _check_documents(inputs: Inputs[Any]) -> dict[str, int]:
    """Hold what a shard's documents became against each other; returns how many rows there are."""
    label = inputs.job.shard
    documents = _columns(inputs, "documents", "document_id")["document_id"]
    passages = _columns(inputs, "passages", "passage_id", "document_id")
    counts = {"documents": documents.len(), "passages": passages.height}
    counts["sentences"] = _columns(inputs, "sentences", "passage_id").height
    strange = [name for name in documents.to_list() if not _bits(id_hash(name)).startswith(label[1:])]
    _refuse_if(bool(strange), f"documents/{label}: {strange[:1]} belongs to another shard")
    _refuse_if(documents.n_unique() != documents.len(), f"documents/{label}: document ids are not unique")
    unique = passages["passage_id"].n_unique()
    _refuse_if(unique != passages.height, f"passages/{label}: passage ids are not unique")
    orphans = passages.filter(~pl.col("document_id").is_in(documents.implode())).height
    _refuse_if(orphans > 0, f"passages/{label}: {orphans} passages belong to no document")
    vectors = inputs.pack(inputs.job.inputs["vectors"])
    for table in ("passages", "sentences"):
        rows = counts[table]
        _refuse_if(len(vectors[table]) != rows, f"vectors/{label}: {len(vectors[table])} rows for {rows} {table}")
        _check_lengths(vectors[table], f"vectors/{label}, {table}")
    if "titles" in inputs.job.inputs:
        _check_titles(inputs)
    if "bm25" in inputs.job.inputs:
        check_postings(inputs.pack(inputs.job.inputs["bm25"]), passages.height, f"bm25/{label}")
    if "units" in inputs.job.inputs:
        tables = {name: _columns(inputs, name, *schema.names) for name, schema in EXTRACTION.items()}
        check_extraction(tables, passages["passage_id"], label)
        counts["extracted_relations"] = tables["relations"].height
    if "unit_vectors" in inputs.job.inputs:
        counts |= heterograph.check_units(inputs, {})
    return counts


def _check_titles(inputs: Inputs[Any]) -> None:
    """Hold the vectors of a shard's titles against its documents and passages."""
    where, pack = f"titles/{inputs.job.shard}", inputs.pack(inputs.job.inputs["titles"])
    titles = [embedded_title(title) for title in _columns(inputs, "documents", "title")["title"].to_list()]
    vectors = pack["vectors"]
    _refuse_if(len(vectors) != len(titles), f"{where}: {len(vectors)} rows for {len(titles)} documents")
    keys = keys_array([row_key(title) for title in titles])
    _refuse_if(not np.array_equal(pack["text_keys"], keys), f"{where}: vectors of other titles")
    titled = np.array([bool(title) for title in titles], dtype=np.bool_)
    _check_lengths(vectors[titled], where)
    _refuse_if(bool(vectors[~titled].any()), f"{where}: a document without a title has a vector")
    rows = passage_documents(inputs)
    _refuse_if(not np.array_equal(pack["passage_document"], rows), f"{where}: passages of other documents")


def check_extraction(tables: Mapping[str, pl.DataFrame], passages: pl.Series, label: str) -> None:
    """Raise CheckError where a shard's extraction (schemas EXTRACTION) names what is not there."""
    units, links, entities, relations = (tables[name] for name in EXTRACTION)
    for name, key, table in (
        ("units", ["unit_id"], units),
        ("unit_entities", ["unit_id", "entity_id"], links),
        ("extracted", ["passage_id", "entity_id"], entities),
        ("relations", ["relation_id"], relations),
    ):
        where = f"{name}/{label}"
        _refuse_if(table.select(key).is_duplicated().any(), f"{where}: {' and '.join(key)} are not unique")
        strange = table.filter(~pl.col("passage_id").is_in(passages.implode())).height
        _refuse_if(strange > 0, f"{where}: {strange} rows belong to no passage")
    ends = [relations.rename({end: "entity_id"}).select(*links.columns) for end in ("source", "target")]
    for name, rows, key, known in (
        ("unit_entities", links, ["passage_id", "unit_id"], units),
        ("unit_entities", links, ["passage_id", "entity_id"], entities),
        ("relations", pl.concat(ends), ["passage_id", "unit_id", "entity_id"], links),
    ):
        dangling = rows.join(known, on=key, how="anti").height
        _refuse_if(dangling > 0, f"{name}/{label}: {dangling} rows name no {key[-1]} of their passage")
    _refuse_if(
        bool((relations["source"] == relations["target"]).any()), f"relations/{label}: an entity is related to itself"
    )


def _check_entities(inputs: Inputs[Any]) -> dict[str, int]:
    """Hold the vectors of an entity shard's names against its entities; returns how many those are."""
    label = inputs.job.shard
    keys = NameIndex.keys(_columns(inputs, "entities", "entity_id")["entity_id"].to_list())
    _refuse_if(bool((keys[1:] <= keys[:-1]).any()), f"entities/{label}: not in the order of their ids")
    bits = label[1:]
    strange = int(np.count_nonzero(keys >> np.uint64(64 - len(bits)) != int(bits, 2))) if bits else 0
    _refuse_if(strange > 0, f"entities/{label}: {strange} entities belong to another shard")
    pack = inputs.pack(inputs.job.inputs["names"])
    unknown = np.setdiff1d(pack["entity_keys"], keys)
    _refuse_if(len(unknown) > 0, f"names/{label}: {len(unknown)} vectors of entities that are not there")
    _check_lengths(pack["vectors"], f"names/{label}")
    counts = {"entities": len(keys)}
    if "described" in inputs.job.inputs:
        described = _columns(inputs, "described", *DESCRIBED.names)
        related = _columns(inputs, "related", *RELATED.names)
        vectors = inputs.pack(inputs.job.inputs["description_vectors"])
        counts |= check_descriptions(described, related, vectors, keys, label)
    if "attributes" in inputs.job.inputs:
        counts |= heterograph.check_attributes(inputs, {})
    return counts


def check_descriptions(
    described: pl.DataFrame,
    related: pl.DataFrame,
    vectors: Mapping[str, NDArray[Any]],
    entities: NDArray[np.uint64],
    label: str,
) -> dict[str, int]:
    """Raise CheckError where an entity shard's descriptions (schemas DESCRIBED, RELATED) and vectors do not agree.

    entities: the keys of all entities of the shard. Returns how many are described, and how many relations.
    """
    where = f"described/{label}"
    ids = described["entity_id"].to_list()
    _refuse_if(any(one >= other for one, other in pairwise(ids)), f"{where}: not in the order of their ids")
    unknown = np.setdiff1d(NameIndex.keys(ids), entities)
    _refuse_if(len(unknown) > 0, f"{where}: {len(unknown)} descriptions of entities that are not there")
    texts = [entity_text(*row) for row in described.select("surface", "type", "description").iter_rows()]
    digests = [row_key(text).hex() for text in texts]
    _refuse_if(digests != described["digest"].to_list(), f"{where}: a text is not that of its digest")
    _refuse_if(bool((described["passages"] < 1).any()), f"{where}: an entity that no passage tells of")
    where = f"description_vectors/{label}"
    _refuse_if(len(vectors["vectors"]) != len(ids), f"{where}: {len(vectors['vectors'])} rows for {len(ids)} entities")
    _refuse_if(not np.array_equal(vectors["keys"], id_hashes(ids)), f"{where}: vectors of other entities")
    own = [key.tobytes().hex() for key in vectors["text_keys"]]
    _refuse_if(own != digests, f"{where}: vectors of other texts")
    _check_lengths(vectors["vectors"], where)
    where = f"related/{label}"
    pairs = list(related.select("source", "target").iter_rows())
    _refuse_if(any(one >= other for one, other in pairwise(pairs)), f"{where}: not in the order of their ends")
    _refuse_if(any(one == other for one, other in pairs), f"{where}: an entity is related to itself")
    strange = related.filter(~pl.col("source").is_in(described["entity_id"].implode())).height
    _refuse_if(strange > 0, f"{where}: {strange} relations of entities that are not described there")
    digests = [row_key(text).hex() for text in related["description"].to_list()]
    _refuse_if(digests != related["digest"].to_list(), f"{where}: a text is not that of its digest")
    return {"described": len(ids), "related": len(pairs), "relations": int(related["relations"].sum())}


def _check_whole(inputs: Inputs[Any]) -> dict[str, int]:
    """Hold what is made of the whole corpus against its shards, each of which has been checked."""
    labels = _labels(inputs, "checked")
    nested = [one for one, other in pairwise(labels) if other.startswith(one)]
    _refuse_if(bool(nested), f"the shard {nested[:1]} holds another: rows may be there twice")
    summed: Counter[str] = Counter()
    for label in labels:
        summed.update(json.loads(inputs.path(inputs.job.inputs[f"checked/{label}"]).read_bytes()))
    counts = {name: summed[name] for name in ("documents", "entities", "passages", "sentences")}
    mentioned = _distinct(inputs, "entity_id", "mentions", "extracted")
    _refuse_if(
        mentioned != counts["entities"], f"{counts['entities']} entities for {mentioned} ids mentioned or extracted"
    )
    if "described" in summed:
        _check_descriptions(inputs, summed)
    if "zoom_graph/matrices" in inputs.job.inputs:
        _check_zoom_graph(inputs, counts["documents"], counts["passages"], counts["entities"])
    if "lsh_tree/tree" in inputs.job.inputs:
        lsh_tree.check_whole(inputs, summed)
    if "community_tree/tree" in inputs.job.inputs:
        community_tree.check_whole(inputs, summed)
    if "heterograph/graph" in inputs.job.inputs:
        heterograph.check_whole(inputs, counts)
    return counts


def _distinct(inputs: Inputs[Any], column: str, *tables: str) -> int:
    """How many different values a column has in all tables `<name>/<shard>` of some names."""
    paths = [path for name in tables for path in inputs.paths(name)]
    if not paths:
        return 0
    whole = pl.concat([pl.scan_parquet(path).select(column) for path in paths])
    return int(whole.select(pl.col(column).n_unique()).collect(engine="streaming").item())


def _check_descriptions(inputs: Inputs[Any], summed: Mapping[str, int]) -> None:
    """Hold what is described against what was extracted."""
    extracted = _distinct(inputs, "entity_id", "extracted")
    _refuse_if(
        summed["described"] != extracted, f"{summed['described']} described entities for {extracted} extracted ones"
    )
    told, there = summed["relations"], summed["extracted_relations"]
    _refuse_if(told != there, f"related pairs have {told} relations, of {there} extracted ones")
    ids = inputs.tables("described", DESCRIBED, "entity_id").column("entity_id").combine_chunks()
    related = inputs.tables("related", RELATED, "target").column("target")
    strange = len(related) - int(pc.sum(pc.is_in(related, ids)).as_py() or 0)
    _refuse_if(strange > 0, f"related: {strange} pairs lead to entities that are not described")
    if "same_as" in inputs.job.inputs:
        check_same_as(inputs.table("same_as", SAME_AS), ids)


def check_same_as(pairs: pa.Table, ids: pa.Array) -> None:
    """Raise CheckError where the pairs (schema SAME_AS) are not each one of two described entities, once, in order."""
    rows = list(zip(*(pairs.column(name).to_pylist() for name in ("entity_id", "other_id")), strict=True))
    _refuse_if(any(one >= other for one, other in pairwise(rows)), "same_as: not in the order of the ids")
    _refuse_if(any(one >= other for one, other in rows), "same_as: a pair is not in the order of its ids")
    for name in ("entity_id", "other_id"):
        known = pc.all(pc.is_in(pairs.column(name), ids)).as_py()
        _refuse_if(known is False, f"same_as: a pair names an entity that is not described ({name})")


def _check_zoom_graph(inputs: Inputs[Any], documents: int, passages: int, entities: int) -> None:
    pack = inputs.pack(inputs.job.inputs["zoom_graph/matrices"])
    _refuse_if(len(pack["passage_document"]) != passages, "zoom_graph: not every passage has a document")
    for name, rows in (("documents", documents), ("entities", entities)):
        indptr, indices = pack[f"{name}.indptr"], pack[f"{name}.indices"]
        _refuse_if(len(indptr) - 1 != rows, f"zoom_graph: {len(indptr) - 1} rows of links for {rows} {name}")
        owners = np.repeat(np.arange(rows), np.diff(indptr))
        back = np.lexsort((owners, indices))  # a symmetric matrix by columns is itself by rows
        same = np.array_equal(indices[back], owners) and np.array_equal(owners[back], indices)
        same = same and np.array_equal(pack[f"{name}.weights"][back], pack[f"{name}.weights"])
        _refuse_if(not same, f"zoom_graph: the links of {name} are not symmetric")
        _refuse_if(bool((owners == indices).any()), f"zoom_graph: some of {name} are linked to themselves")


def _labels(inputs: Inputs[Any], name: str) -> list[str]:
    return sorted(key.partition("/")[2] for key in inputs.job.inputs if key.startswith(name + "/"))


def _bits(hashed: bytes) -> str:
    return f"{int.from_bytes(hashed):0256b}"


def check_postings(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    """Raise CheckError where a shard's bm25 arrays do not fit each other or its passages."""
    for field in FIELDS:
        _check_field({name: pack[field + name] for name in FIELD_ARRAYS}, rows, f"{where} {field}".rstrip(" ."))


def _check_field(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    keys, ends, passages = pack["keys"], pack["indptr"].astype(np.int64), pack["passages"].astype(np.int64)
    _refuse_if(len(pack["lengths"]) != rows, f"{where}: {len(pack['lengths'])} lengths for {rows} passages")
    _refuse_if(bool((keys[1:] <= keys[:-1]).any()), f"{where}: the terms are not in the order of their keys")
    held = np.diff(ends)
    fits = len(held) == len(keys) and ends[:1].tolist() == [0] and bool((held > 0).all())
    fits = fits and held.sum() == len(passages) == len(pack["counts"])
    _refuse_if(not fits, f"{where}: the postings of the terms do not fit each other")
    place = np.arange(len(keys)).repeat(held) * rows + passages
    ordered = passages.max(initial=-1) < rows and bool((np.diff(place) > 0).all())
    _refuse_if(not ordered, f"{where}: a term's passages are not in the order of their rows")
    words = np.bincount(passages, pack["counts"], rows)
    _refuse_if(bool((words != pack["lengths"]).any()), f"{where}: occurrences do not add up to the passages' lengths")


def estimate(inputs: Inputs[Any], expected: Mapping[str, Range]) -> Estimate:
    """A few words."""
    return Estimate(bytes={"checked": Range(0, 200)})


STAGE = Stage(
    "check",
    version=8,
    compute=_compute,
    libraries=("polars", "numpy"),
    estimate=estimate,
    outputs=(Output("checked"),),
)
