"""The entities that what is read of a community names: which are shown in it, and which name it where no model does."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tasks.families.heterograph.graph import TypedGraph

__all__ = ["named", "titles"]

_SIDES = (("mention", 0), ("source", 1), ("target", 0), ("attribute", 1))
"""The edges between entities and what names them, and at which side that stands."""

_NAMES = 3  # in a title


def named(graph: TypedGraph, read: pa.Table) -> pa.Table:
    """The entities that the nodes that are read name: columns owner, node_id, kind and entity_id, each row once.

    A unit names those that it mentions, a relation its two ends, an attribute its entity. read: HETERO_READ. Raises
    ValueError for a node that is none of the graph's.
    """
    at = pc.index_in(read["node_id"].combine_chunks(), graph.ids)
    if at.null_count:
        missing = read["node_id"].combine_chunks().filter(at.is_null())[0].as_py()
        raise ValueError(f"the node {missing!r} that is read is none of the graph; read the graph that was grouped")
    edges = np.concatenate([graph.of(kind)[:, [side, 1 - side]] for kind, side in _SIDES])
    ends = pl.DataFrame({"row": edges[:, 0], "entity": edges[:, 1]}, schema={"row": pl.Int32, "entity": pl.Int32})
    columns = {name: pl.Series(read[name], dtype=pl.String) for name in ("owner", "node_id", "kind")}
    rows = pl.DataFrame(columns | {"row": pl.Series(at, dtype=pl.Int32)}).join(ends, on="row").unique()
    rows = rows.sort("owner", "kind", "node_id", "entity")
    entities = graph.ids.take(rows["entity"].to_arrow())
    return pa.table({name: rows[name].to_arrow().cast(pa.string()) for name in columns} | {"entity_id": entities})


def titles(names: pa.Table, surfaces: pa.Table, owners: pa.Array) -> pa.Table:
    """What each owner is called: columns owner and shown, in the order of owners.

    The three entities that most of what is read names, ties by id, as they are shown; nothing where none is named.
    names: as `named` gives them. surfaces: columns entity_id, once each, and surface; those of all that are named.
    """
    counted = pl.DataFrame({name: pl.Series(names[name], dtype=pl.String) for name in ("owner", "entity_id")})
    counted = counted.group_by("owner", "entity_id").len()
    first = counted.sort("owner", "len", "entity_id", descending=[False, True, False])
    first = first.filter(pl.col("entity_id").cum_count().over("owner") <= _NAMES)
    at = pc.index_in(first["entity_id"].to_arrow().cast(pa.string()), surfaces["entity_id"].combine_chunks())
    if at.null_count:
        missing = first["entity_id"].filter(pl.Series(at.is_null()))[0]
        raise ValueError(f"the entity {missing!r} has no surface; give those of all entities")
    shown: dict[str, list[str]] = {owner: [] for owner in owners.to_pylist()}
    told = surfaces["surface"].combine_chunks().take(at).to_pylist()
    for owner, surface in zip(first["owner"].to_list(), told, strict=True):
        shown[owner].append(surface)
    joined = pa.array([", ".join(dict.fromkeys(held)) for held in shown.values()], pa.string())
    return pa.table({"owner": owners, "shown": joined})
