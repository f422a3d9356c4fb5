"""The inputs of the text about an entity or a community: nodes of the graph, capped (NodeRAG, section 2.3).

An attribute is made from the units and relations around its entity, the high-level elements of a community from its
units, relations and attributes. Prompts are bounded by a number of nodes of each kind and a total of tokens; within
these, the nodes with the smallest seeded hashes of their ids are read. An added or removed node then changes the
selection only if it is among the first, so one edit rewrites few texts. The nodes that are read are shown in the order
of kinds and ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.heterograph.search import KINDS
from indexmill.store.canonical import canonical_json
from schemas.tables import conform
from tasks.families.heterograph.graph import TypedGraph
from tasks.families.heterograph.importance import stable_order
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ

_PAIR = ("owner", "node_id", "kind")


@dataclass(frozen=True)
class Read:
    """The inputs of one text. shown: the owner's displayed name, or empty. texts: the nodes' texts, by kind."""

    owner: str
    shown: str
    made_of: str
    texts: Mapping[str, Sequence[str]]

    def of(self, *kinds: str) -> list[str]:
        return [text for kind in kinds for text in self.texts.get(kind, ())]


def about_entities(graph: TypedGraph, chosen: NDArray[np.bool_]) -> pa.Table:
    """Return units and relations around entities: columns owner, node_id, kind. chosen: a mask (n_entities,)."""
    names = graph.rows("N")
    selected = [np.empty((0, 2), dtype=np.int32)]
    for kind, side in (("mention", 1), ("source", 0), ("target", 1)):
        edges = graph.of(kind)
        selected.append(edges[chosen[edges[:, side] - names.start]][:, [side, 1 - side]])
    pairs = np.concatenate(selected)
    return _pairs(graph, graph.ids.take(pa.array(pairs[:, 0])), pairs[:, 1])


def about_communities(graph: TypedGraph, communities: pa.Table, fewest: int = 2) -> pa.Table:
    """Return units, relations and attributes of communities with at least `fewest` of them.

    Columns owner (a community_id), node_id, kind. communities: HETERO_COMMUNITIES. A text about a smaller community
    would repeat its one node. Raises ValueError for a node without a community.
    """
    rows = np.concatenate([np.arange(len(graph))[graph.rows(kind)] for kind in ("S", "A", "R")])
    at = pc.index_in(graph.ids.take(pa.array(rows)), communities["node_id"].combine_chunks())
    if at.null_count:
        missing = graph.ids[int(rows[at.is_null().to_numpy(zero_copy_only=False)][0])].as_py()
        raise ValueError(f"the node {missing!r} is in no community; cluster the graph that is read")
    owners = communities["community_id"].combine_chunks().take(at).dictionary_encode()
    codes = owners.indices.to_numpy()
    large = np.bincount(codes, minlength=len(owners.dictionary))[codes] >= fewest
    return _pairs(graph, owners.dictionary_decode().filter(pa.array(large)), rows[large])


def capped(pairs: pa.Table, texts: pa.Table, caps: Mapping[str, int], tokens: int, *, seed: int = 0) -> pa.Table:
    """Return the pairs that are read: HETERO_READ with one more column, `tokens`; ordered like HETERO_READ.

    pairs: columns owner, node_id, kind. texts: columns node_id, text, digest and tokens, for the nodes from `first_of`.
    caps: the maximum nodes of each kind per owner; a kind without a cap is not read. tokens: the maximum tokens per
    owner; the first node is read even if it has more. Raises ValueError for a node without a text.
    """
    node_texts = pl.DataFrame(
        {name: pl.Series(texts[name], dtype=pl.String) for name in ("node_id", "digest", "text")}
        | {"tokens": pl.Series(texts["tokens"], dtype=pl.Int64)}
    ).unique("node_id")
    rows = _first(pairs, caps, seed).join(node_texts.drop("text"), on="node_id", how="left")
    missing = rows.filter(pl.col("digest").is_null())["node_id"].min()
    if missing is not None:
        raise ValueError(f"the node {missing!r} has no text; give the texts of all nodes that are read")
    rows = rows.sort("owner", "place")
    upto = pl.col("tokens").cum_sum().over("owner")
    first = pl.col("place").cum_count().over("owner") == 1
    rows = rows.filter((upto <= tokens) | first)
    kinds = pl.DataFrame({"kind": list(KINDS), "rank": range(len(KINDS))})
    rows = rows.join(kinds, on="kind").join(node_texts.select("node_id", "text"), on="node_id")
    rows = rows.sort("owner", "rank", "node_id")
    table = rows.select(*HETERO_READ.names, pl.col("tokens").cast(pl.Int64)).to_arrow()
    return conform(table.drop_columns("tokens"), HETERO_READ).append_column("tokens", table["tokens"])


def first_of(pairs: pa.Table, caps: Mapping[str, int], *, seed: int = 0) -> pa.Table:
    """Return the pairs that `capped` may keep, so that only their texts are needed. Columns owner, node_id, kind."""
    rows = _first(pairs, caps, seed)
    return pa.table({name: rows[name].to_arrow().cast(pa.string()) for name in _PAIR})


def rows_of(table: pa.Table, name: str, pairs: pa.Table) -> pa.Table:
    """Return the rows of a table that belong to the nodes of `pairs`. name: the table's column of node ids."""
    return table.filter(pc.is_in(table[name], pairs["node_id"].combine_chunks()))


def _first(pairs: pa.Table, caps: Mapping[str, int], seed: int) -> pl.DataFrame:
    """Return the first nodes of each kind for each owner, with their place in the hash order of all nodes."""
    nodes: list[str] = pairs["node_id"].unique().to_pylist()
    order = stable_order(nodes, seed=seed)
    places = pl.DataFrame(
        {"node_id": [nodes[row] for row in order.tolist()], "place": np.arange(len(order))},
        schema={"node_id": pl.String, "place": pl.Int64},
    )
    rows = pl.DataFrame({name: pl.Series(pairs[name], dtype=pl.String) for name in _PAIR})
    most = pl.DataFrame({"kind": list(caps), "most": list(caps.values())}, schema={"kind": pl.String, "most": pl.Int64})
    rows = rows.unique().join(most, on="kind").join(places, on="node_id").sort("owner", "place")
    return rows.filter(pl.col("place").cum_count().over("owner", "kind") <= pl.col("most"))


def made_of(read: pa.Table, settings: Mapping[str, Any], owners: pa.Table | None = None) -> pa.Table:
    """Hash each text's inputs (HETERO_MADE), from the output of `capped`.

    settings: the settings of the writer, JSON values. owners: columns owner and shown, an owner's displayed name, such
    as an entity's; None if no name is shown, so that a community keeps its elements unless the nodes read for it
    change. Raises ValueError for an owner that `owners` lacks.
    """
    shown_names: dict[str, str] = {}
    if owners is not None:
        shown_names = dict(zip(owners["owner"].to_pylist(), owners["shown"].to_pylist(), strict=True))
    names = read["owner"].to_pylist()
    starts = [row for row, name in enumerate(names) if not row or names[row - 1] != name]
    rows = list(zip(*(read[name].to_pylist() for name in ("kind", "node_id", "digest")), strict=True))
    tokens = np.add.reduceat(read["tokens"].to_numpy(), starts).tolist() if starts else []
    records = []
    for low, high, spent in zip(starts, [*starts, len(names)][1:], tokens, strict=True):
        if owners is not None and names[low] not in shown_names:
            raise ValueError(f"{names[low]!r} has no displayed name; give one for each owner")
        key = [dict(settings), shown_names.get(names[low]), [list(row) for row in rows[low:high]]]
        digest = hashlib.sha256(canonical_json(key)).hexdigest()[:32]
        shown = shown_names.get(names[low], "")
        records.append({"owner": names[low], "shown": shown, "made_of": digest, "nodes": high - low, "tokens": spent})
    return conform(pa.Table.from_pylist(records, HETERO_MADE), HETERO_MADE)


def reads(read: pa.Table, input_hashes: pa.Table) -> Iterator[Read]:
    """Yield the inputs of a group's texts, in the order of HETERO_MADE; raises ValueError if the owners differ."""
    texts_by_owner: dict[str, dict[str, list[str]]] = {}
    for owner, kind, text in zip(*(read[name].to_pylist() for name in ("owner", "kind", "text")), strict=True):
        texts_by_owner.setdefault(owner, {}).setdefault(kind, []).append(text)
    rows = list(zip(*(input_hashes[name].to_pylist() for name in ("owner", "shown", "made_of")), strict=True))
    unpaired = texts_by_owner.keys() ^ {owner for owner, _, _ in rows}
    if unpaired:
        raise ValueError(f"{min(unpaired)!r} is in only one of two tables: they are not outputs of the same part")
    for owner, shown, key in rows:
        yield Read(owner, shown, key, texts_by_owner[owner])


def _pairs(graph: TypedGraph, owners: pa.Array, rows: NDArray[np.integer]) -> pa.Table:
    kinds = pa.array(KINDS).take(pa.array(graph.node_kinds[rows]))
    table = pa.table({"owner": owners, "node_id": graph.ids.take(pa.array(rows)), "kind": kinds})
    return table.sort_by([(name, "ascending") for name in _PAIR])
