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
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from indexmill.names import NameIndex
from tasks.embed import row_key
from tasks.estimate import Estimate, Range
from tasks.extraction import EXTRACTION
from tasks.ingest.shards import id_hash, id_hashes
from tasks.lsh_segments import LETTERS
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "CheckError", "check_extraction", "check_postings", "check_tree", "estimate"]

_UNIT = 1e-3  # how far from 1 the length of a published vector may be


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


def _compute(inputs: Inputs) -> Outputs:
    if "documents" in inputs.job.inputs:
        counts = _check_documents(inputs)
    elif "entities" in inputs.job.inputs:
        counts = _check_entities(inputs)
    elif "summaries" in inputs.job.inputs:
        counts = _check_group(inputs, _SUMMARIES)
    elif "communities" in inputs.job.inputs:
        counts = _check_group(inputs, _REPORTS)
    else:
        counts = _check_whole(inputs)
    return Outputs(files={"checked": json.dumps(counts, sort_keys=True).encode()})


def _check_documents(inputs: Inputs) -> dict[str, int]:
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
    if "bm25" in inputs.job.inputs:
        check_postings(inputs.pack(inputs.job.inputs["bm25"]), passages.height, f"bm25/{label}")
    if "units" in inputs.job.inputs:
        tables = {name: _columns(inputs, name, *schema.names) for name, schema in EXTRACTION.items()}
        check_extraction(tables, passages["passage_id"], label)
    return counts


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


def _check_entities(inputs: Inputs) -> dict[str, int]:
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
    return {"entities": len(keys)}


@dataclass(frozen=True)
class _Grouped:
    """What a group of nodes of one layer became, by names: the table of their texts, and the two that must agree.

    title: whether the embedded text begins with the column `title`.
    """

    table: str
    key: str
    layer: str
    vectors: str
    made_of: str
    letters: str
    title: bool


_SUMMARIES = _Grouped("summaries", "node_id", "layer", "summary_vectors", "segments", lsh_segments.LETTERS, False)
_REPORTS = _Grouped(
    "communities", "community_id", "level", "community_vectors", "members", community_graph.LETTERS, True
)


def _check_group(inputs: Inputs, what: _Grouped) -> dict[str, int]:
    """Hold a group's texts against what they are made of, and their vectors; returns how many they are."""
    label = inputs.job.shard
    rows = _columns(inputs, what.table, what.key, what.layer, *(["title"] if what.title else []), "text", "digest")
    nodes, where = rows[what.key].to_list(), f"{what.table}/{label}"
    of = _columns(inputs, what.made_of, what.key)[what.key].unique(maintain_order=True).to_list()
    _refuse_if(nodes != of, f"{where}: not one row for each of {what.made_of}, in the order of their ids")
    _refuse_if(bool((rows[what.layer] != what.letters.index(label[0]) + 1).any()), f"{where}: nodes of another layer")
    strange = [node for node in nodes if not bits_of(node).startswith(label[1:])]
    _refuse_if(bool(strange), f"{where}: {strange[:1]} belongs to another group")
    texts = rows["text"].to_list()
    if what.title:
        texts = [community_text(*both) for both in zip(rows["title"].to_list(), texts, strict=True)]
    digests = [row_key(text).hex() for text in texts]
    _refuse_if(digests != rows["digest"].to_list(), f"{where}: a text is not that of its digest")
    pack, where = inputs.pack(inputs.job.inputs[what.vectors]), f"{what.vectors}/{label}"
    _refuse_if(len(pack["vectors"]) != len(nodes), f"{where}: {len(pack['vectors'])} rows for {len(nodes)} nodes")
    _refuse_if(not np.array_equal(pack["keys"], id_hashes(nodes)), f"{where}: vectors of other nodes")
    own = [key.tobytes().hex() for key in pack["text_keys"]]
    _refuse_if(own != digests, f"{where}: vectors of other texts")
    _check_lengths(pack["vectors"], where)
    return {what.table: len(nodes)}


def _check_whole(inputs: Inputs) -> dict[str, int]:
    """Hold what is made of the whole corpus against its shards, each of which has been checked."""
    labels = _labels(inputs, "checked")
    nested = [one for one, other in pairwise(labels) if other.startswith(one)]
    _refuse_if(bool(nested), f"the shard {nested[:1]} holds another: rows may be there twice")
    summed: Counter[str] = Counter()
    for label in labels:
        summed.update(json.loads(inputs.path(inputs.job.inputs[f"checked/{label}"]).read_bytes()))
    counts = {name: summed[name] for name in ("documents", "entities", "passages", "sentences")}
    mentions = [inputs.path(inputs.job.inputs[f"mentions/{label}"]) for label in _labels(inputs, "mentions")]
    mentioned = pl.scan_parquet(mentions).select(pl.col("entity_id").n_unique()).collect().item() if mentions else 0
    _refuse_if(mentioned != counts["entities"], f"{counts['entities']} entities for {mentioned} mentioned ids")
    if "zoom_graph/matrices" in inputs.job.inputs:
        _check_zoom_graph(inputs, counts["documents"], counts["passages"], counts["entities"])
    if "lsh_tree/tree" in inputs.job.inputs:
        check_tree(inputs.pack(inputs.job.inputs["lsh_tree/tree"]), counts["passages"], summed["summaries"])
    if "community_tree/tree" in inputs.job.inputs:
        tree, index = (inputs.pack(inputs.job.inputs[f"community_tree/{name}"]) for name in ("tree", "index"))
        check_communities(tree, index, counts["passages"], summed["described"], summed["communities"])
    return counts


def _check_zoom_graph(inputs: Inputs, documents: int, passages: int, entities: int) -> None:
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


def check_tree(pack: Mapping[str, NDArray[Any]], passages: int, summaries: int) -> None:
    """Raise CheckError where the tree is not one over all passages, within its bounds.

    Each row below the uppermost layer has its parent in the next, which makes each reachable from one root.
    """
    smallest, largest, layers, _ = pack["bounds"].tolist()
    offsets, parents = pack["layer_offsets"], pack["parents"].astype(np.int64)
    sizes = np.diff(offsets)
    built, rows = len(sizes) - 1, passages + summaries
    fits = offsets[0] == 0 and sizes[0] == passages and len(parents) == len(pack["codes"]) == offsets[-1] == rows
    _refuse_if(not fits, f"lsh_tree: {len(parents)} rows for {passages} passages and {summaries} summaries")
    _refuse_if(built > layers or bool((sizes[:-1] <= largest).any()), f"lsh_tree: layers of {sizes.tolist()} nodes")
    _refuse_if(built < layers and bool(sizes[-1] > largest), f"lsh_tree: {sizes[-1]} roots, and no layer over them")
    layer = np.repeat(np.arange(built + 1), sizes)
    _refuse_if(bool((parents[layer == built] != -1).any()), "lsh_tree: a root has a parent")
    below = np.flatnonzero(layer < built)
    above = parents[below]
    inside = bool(((above >= passages) & (above < rows)).all()) and bool((layer[above] == layer[below] + 1).all())
    _refuse_if(not inside, "lsh_tree: a node's parent is not in the layer above it")
    held = np.diff(pack["children.indptr"])
    _refuse_if(len(held) != summaries or pack["children.indptr"][0] != 0, "lsh_tree: not every summary has children")
    broken = (held < smallest) | (held > largest)
    _refuse_if(bool(broken.any()), f"lsh_tree: {np.count_nonzero(broken)} segments are not of {smallest} to {largest}")
    owners = np.repeat(np.arange(passages, rows), held)
    same = len(owners) == len(pack["children.indices"]) == len(below)
    same = same and np.array_equal(np.sort(pack["children.indices"]), below)
    same = same and np.array_equal(parents[pack["children.indices"]], owners)
    _refuse_if(not same, "lsh_tree: children and parents do not agree")


def check_communities(
    tree: Mapping[str, NDArray[Any]],
    index: Mapping[str, NDArray[Any]],
    passages: int,
    entities: int,
    communities: int,
) -> None:
    """Raise CheckError where the tree is not one over all entities, or the index is not one over the tree."""
    most, fewest, least = tree["bounds"].tolist()
    offsets, parents = tree["level_offsets"], tree["parents"].astype(np.int64)
    sizes = np.diff(offsets)
    built, rows = len(sizes) - 1, entities + communities
    fits = offsets[0] == 0 and sizes[0] == entities and len(parents) == offsets[-1] == rows
    _refuse_if(not fits, f"community_tree: {len(parents)} rows for {entities} entities and {communities} communities")
    shrinks = bool((sizes[1:] < sizes[:-1]).all()) and bool((sizes[1:] > 0).all())
    low = built > most or bool((sizes[:-1] < fewest).any())
    _refuse_if(low or not shrinks, f"community_tree: levels of {sizes.tolist()} nodes")
    _check_parents("community_tree", tree, sizes)
    for name, values in (("passages", passages), ("relations", entities)):
        indptr, indices = tree[f"{name}.indptr"], tree[f"{name}.indices"]
        held = np.diff(indptr)
        fits = len(held) == entities and indptr[0] == 0 and indptr[-1] == len(indices) and bool((held >= 0).all())
        fits = fits and bool(((indices >= 0) & (indices < values)).all())
        _refuse_if(not fits, f"community_tree: the {name} of entities do not fit each other")
    owners = np.repeat(np.arange(entities), np.diff(tree["relations.indptr"]))
    ends = np.stack([owners, tree["relations.indices"], tree["relations.rows"]])
    back = ends[:, np.lexsort((ends[0], ends[1]))]
    there = ends[:, np.lexsort((ends[1], ends[0]))]
    same = all(
        np.array_equal(one[np.lexsort((one_rows, one, other))], two[np.lexsort((two_rows, two, another))])
        for one, other, one_rows, two, another, two_rows in ((there[0], there[1], there[2], back[1], back[0], back[2]),)
    )
    _refuse_if(not same, "community_tree: relations do not lead both ways")
def _labels(inputs: Inputs, name: str) -> list[str]:
    return sorted(key.partition("/")[2] for key in inputs.job.inputs if key.startswith(name + "/"))


def _columns(inputs: Inputs, name: str, *columns: str) -> pl.DataFrame:
    """Some columns of an input table."""
    return pl.scan_parquet(inputs.path(inputs.job.inputs[name])).select(*columns).collect()


def _bits(hashed: bytes) -> str:
    return f"{int.from_bytes(hashed):0256b}"


def _check_lengths(vectors: NDArray[Any], where: str) -> None:
    for first in range(0, len(vectors), 65_536):
        lengths = np.linalg.norm(vectors[first : first + 65_536], axis=1)
        _refuse_if(bool((np.abs(lengths - 1) > _UNIT).any()), f"{where}: a vector is not of unit length")


def check_postings(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    """Raise CheckError where a shard's bm25 arrays do not fit each other or its passages."""
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


def _refuse_if(broken: bool, message: str) -> None:
    if broken:
        raise CheckError(
            f"{message}; nothing was published. `indexmill build --cold` makes every part again; please report this"
        )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """A few words."""
    return Estimate(bytes={"checked": Range(0, 200)})


STAGE = Stage("check", version=4, compute=_compute, libraries=("polars", "numpy"), estimate=estimate)
