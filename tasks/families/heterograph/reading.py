"""What the text about an entity or a community is made of: nodes of the graph, capped (NodeRAG, section 2.3).

An attribute is made of the units and relations around its entity, the high-level elements of a community of the units,
relations and attributes in it. Prompts are bounded, so where there are many, those are read that come first in the
order of a seeded hash of their ids: of each kind at most so many, and of all together at most so many tokens. A node
that is added or removed then changes what is read with the probability that it is among the first, and nothing else
does: one edit makes few texts again. What is read is shown in the order of kinds and ids.
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

__all__ = ["Read", "about_communities", "about_entities", "capped", "first_of", "made_of", "reads", "rows_of"]

_PAIR = ("owner", "node_id", "kind")


@dataclass(frozen=True)
class Read:
    """What one text is made of. shown: of the owner itself, may be empty. texts: of the nodes that are read by kind."""

    owner: str
    shown: str
    made_of: str
    texts: Mapping[str, Sequence[str]]

    def of(self, *kinds: str) -> list[str]:
        """The texts of some kinds, one after the other."""
        return [text for kind in kinds for text in self.texts.get(kind, ())]


def about_entities(graph: TypedGraph, chosen: NDArray[np.bool_]) -> pa.Table:
    """The units and relations around some entities: columns owner (entity_id), node_id, kind.

    chosen: (n_entities,), which of the graph's entities.
    """
    names = graph.rows("N")
    found = [np.empty((0, 2), dtype=np.int32)]
    for kind, side in (("mention", 1), ("source", 0), ("target", 1)):
        edges = graph.of(kind)
        found.append(edges[chosen[edges[:, side] - names.start]][:, [side, 1 - side]])
    pairs = np.concatenate(found)
    return _pairs(graph, graph.ids.take(pa.array(pairs[:, 0])), pairs[:, 1])


def about_communities(graph: TypedGraph, communities: pa.Table, fewest: int = 2) -> pa.Table:
    """The units, relations and attributes of communities that have so many: columns owner, node_id, kind.

    The owner is a community_id. communities: HETERO_COMMUNITIES. A smaller community says what its one node says, so
    nothing is written of it.
    """
    rows = np.concatenate([np.arange(len(graph))[graph.rows(kind)] for kind in ("S", "A", "R")])
    at = pc.index_in(graph.ids.take(pa.array(rows)), communities["node_id"].combine_chunks())
    if at.null_count:
        missing = graph.ids[int(rows[at.is_null().to_numpy(zero_copy_only=False)][0])].as_py()
        raise ValueError(f"the node {missing!r} is in no community; group the same graph that is read")
    owners = communities["community_id"].combine_chunks().take(at).dictionary_encode()
    codes = owners.indices.to_numpy()
    large = np.bincount(codes, minlength=len(owners.dictionary))[codes] >= fewest
    return _pairs(graph, owners.dictionary_decode().filter(pa.array(large)), rows[large])


def capped(pairs: pa.Table, texts: pa.Table, caps: Mapping[str, int], tokens: int, *, seed: int = 0) -> pa.Table:
    """What is read of some pairs: HETERO_READ with one more column, `tokens`; ordered as HETERO_READ is.

    pairs: columns owner, node_id, kind. texts: columns node_id, text, digest and tokens, of the nodes that `first_of`
    gives. caps: nodes of a kind that one owner reads at most; kinds that it does not name are not read. tokens: of all
    that an owner reads, unless the first node alone has more. Raises ValueError for a node without a text.
    """
    held = pl.DataFrame(
        {name: pl.Series(texts[name], dtype=pl.String) for name in ("node_id", "digest", "text")}
        | {"tokens": pl.Series(texts["tokens"], dtype=pl.Int64)}
    ).unique("node_id")
    rows = _first(pairs, caps, seed).join(held.drop("text"), on="node_id", how="left")
    missing = rows.filter(pl.col("digest").is_null())["node_id"].min()
    if missing is not None:
        raise ValueError(f"the node {missing!r} has no text; give the texts of all nodes that are read")
    rows = rows.sort("owner", "place")
    upto = pl.col("tokens").cum_sum().over("owner")
    first = pl.col("place").cum_count().over("owner") == 1
    rows = rows.filter((upto <= tokens) | first)
    kinds = pl.DataFrame({"kind": list(KINDS), "rank": range(len(KINDS))})
    rows = rows.join(kinds, on="kind").join(held.select("node_id", "text"), on="node_id")
    rows = rows.sort("owner", "rank", "node_id")
    table = rows.select(*HETERO_READ.names, pl.col("tokens").cast(pl.Int64)).to_arrow()
    return conform(table.drop_columns("tokens"), HETERO_READ).append_column("tokens", table["tokens"])


def first_of(pairs: pa.Table, caps: Mapping[str, int], *, seed: int = 0) -> pa.Table:
    """The pairs that `capped` may keep: it needs the texts of no other nodes. Columns owner, node_id, kind."""
    rows = _first(pairs, caps, seed)
    return pa.table({name: rows[name].to_arrow().cast(pa.string()) for name in _PAIR})


def rows_of(table: pa.Table, name: str, pairs: pa.Table) -> pa.Table:
    """The rows of a table that are of the nodes of some pairs. name: the column that holds the nodes' ids."""
    return table.filter(pc.is_in(table[name], pairs["node_id"].combine_chunks()))


def _first(pairs: pa.Table, caps: Mapping[str, int], seed: int) -> pl.DataFrame:
    """The nodes of each kind that an owner may read, and the place of each in the order of all nodes."""
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
    """What each text is made of (HETERO_MADE), from what `capped` gives.

    settings: of what writes the text, as JSON holds them. owners: columns owner and shown, what is shown of the owner
    itself, such as an entity's name; None where nothing is, so that a community that changes beyond what is read of it
    keeps its elements.
    """
    own: dict[str, str] = {}
    if owners is not None:
        own = dict(zip(owners["owner"].to_pylist(), owners["shown"].to_pylist(), strict=True))
    names = read["owner"].to_pylist()
    starts = [row for row, name in enumerate(names) if not row or names[row - 1] != name]
    rows = list(zip(*(read[name].to_pylist() for name in ("kind", "node_id", "digest")), strict=True))
    tokens = np.add.reduceat(read["tokens"].to_numpy(), starts).tolist() if starts else []
    made = []
    for low, high, spent in zip(starts, [*starts, len(names)][1:], tokens, strict=True):
        if owners is not None and names[low] not in own:
            raise ValueError(f"nothing of {names[low]!r} itself is given to be shown, but of others")
        key = [dict(settings), own.get(names[low]), [list(row) for row in rows[low:high]]]
        digest = hashlib.sha256(canonical_json(key)).hexdigest()[:32]
        shown = own.get(names[low], "")
        made.append({"owner": names[low], "shown": shown, "made_of": digest, "nodes": high - low, "tokens": spent})
    return conform(pa.Table.from_pylist(made, HETERO_MADE), HETERO_MADE)


def reads(read: pa.Table, made: pa.Table) -> Iterator[Read]:
    """What each text of a group is made of, from its tables HETERO_READ and HETERO_MADE, in their order.

    Raises ValueError where the tables are not of the same owners.
    """
    told: dict[str, dict[str, list[str]]] = {}
    for owner, kind, text in zip(*(read[name].to_pylist() for name in ("owner", "kind", "text")), strict=True):
        told.setdefault(owner, {}).setdefault(kind, []).append(text)
    rows = list(zip(*(made[name].to_pylist() for name in ("owner", "shown", "made_of")), strict=True))
    other = told.keys() ^ {owner for owner, _, _ in rows}
    if other:
        raise ValueError(f"{min(other)!r} is in one of two tables: what is read and what is made are not of one build")
    for owner, shown, key in rows:
        yield Read(owner, shown, key, told[owner])


def _pairs(graph: TypedGraph, owners: pa.Array, rows: NDArray[np.integer]) -> pa.Table:
    kinds = pa.array(KINDS).take(pa.array(graph.node_kinds[rows]))
    table = pa.table({"owner": owners, "node_id": graph.ids.take(pa.array(rows)), "kind": kinds})
    return table.sort_by([(name, "ascending") for name in _PAIR])
