"""The entities named in the text about an entity or a community, and the passages that the text comes from.

The ledger keeps the ids of these passages with an answer, so that the answer is deleted when a document is forgotten
(storage.provenance). A unit comes from one passage, a relation from all passages that state it. The texts that are read
may spell a name differently from the prompt, so a passage with the prompt's spelling is a source, too. An attribute
written by a model is listed as a source itself, in place of its own sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import conform
from tasks.families.heterograph.graph import TypedGraph, relation_ids
from tasks.families.heterograph.reading import rows_of
from tasks.families.heterograph.tables import HETERO_SOURCES

_PAIR = pa.schema([("node_id", pa.string()), ("source_id", pa.string())])
_SIDES = (("mention", 0), ("source", 1), ("target", 0), ("attribute", 1))
"""The edges between entities and the nodes that name them, with the side of these nodes."""

_NAMES = 3  # names in a title


# --- names -----------------------------------------------------------------------------------------------------------


def named(graph: TypedGraph, read: pa.Table) -> pa.Table:
    """Return the entities named by the nodes that are read: columns owner, node_id, kind and entity_id, each row once.

    A unit names the entities that it mentions, a relation its two ends, an attribute its entity. read: HETERO_READ.
    Raises ValueError for a node that is not in the graph.
    """
    at = pc.index_in(read["node_id"].combine_chunks(), graph.ids)
    if at.null_count:
        missing = read["node_id"].combine_chunks().filter(at.is_null())[0].as_py()
        raise ValueError(f"the node {missing!r} that is read is not in the graph; read the graph that was clustered")
    edges = np.concatenate([graph.of(kind)[:, [side, 1 - side]] for kind, side in _SIDES])
    ends = pl.DataFrame({"row": edges[:, 0], "entity": edges[:, 1]}, schema={"row": pl.Int32, "entity": pl.Int32})
    columns = _frame(read, "owner", "node_id", "kind")
    rows = columns.with_columns(row=pl.Series(at, dtype=pl.Int32)).join(ends, on="row").unique()
    rows = rows.sort("owner", "kind", "node_id", "entity")
    entities = graph.ids.take(rows["entity"].to_arrow())
    return pa.table(
        {name: rows[name].to_arrow().cast(pa.string()) for name in columns.columns} | {"entity_id": entities}
    )


def titles(names: pa.Table, surfaces: pa.Table, owners: pa.Array) -> pa.Table:
    """Return the title of each owner: columns owner and shown, in the order of `owners`.

    A title lists the displayed names of the three entities named most often, ties by id; it is empty if none is named.
    names: the output of `named`. surfaces: columns entity_id (unique) and surface, for all named entities. Raises
    ValueError for an entity without a surface.
    """
    counted = _frame(names, "owner", "entity_id").group_by("owner", "entity_id").len()
    first = counted.sort("owner", "len", "entity_id", descending=[False, True, False])
    first = first.filter(pl.col("entity_id").cum_count().over("owner") <= _NAMES)
    at = pc.index_in(first["entity_id"].to_arrow().cast(pa.string()), surfaces["entity_id"].combine_chunks())
    if at.null_count:
        missing = first["entity_id"].filter(pl.Series(at.is_null()))[0]
        raise ValueError(f"the entity {missing!r} has no surface; give the surfaces of all entities")
    shown: dict[str, list[str]] = {owner: [] for owner in owners.to_pylist()}
    written = surfaces["surface"].combine_chunks().take(at).to_pylist()
    for owner, surface in zip(first["owner"].to_list(), written, strict=True):
        shown[owner].append(surface)
    joined = pa.array([", ".join(dict.fromkeys(some)) for some in shown.values()], pa.string())
    return pa.table({"owner": owners, "shown": joined})


# --- passages --------------------------------------------------------------------------------------------------------


def about(
    read: pa.Table,
    units: pa.Table,
    relations: pa.Table,
    named: pa.Table,
    surfaces: pa.Table,
    tables: Iterable[Path],
    attributes: pa.Table | None = None,
) -> pa.Table:
    """Return the sources of some texts (HETERO_SOURCES), from the tables of the whole corpus.

    read: HETERO_READ. units, relations: schemas UNITS and RELATIONS. attributes: HETERO_ATTRIBUTES, if any is read.
    named: see `sources_of`. surfaces, tables: see `passages_that_show`; `surfaces` has all entities.
    """
    with_ids = relations.append_column("node_id", relation_ids(relations))
    nodes = passages_of(rows_of(units, "unit_id", read), rows_of(with_ids, "node_id", read))
    if attributes is not None:
        read_attributes = rows_of(attributes, "attribute_id", read)
        nodes = pa.concat_tables(
            [nodes, pa.table({"node_id": read_attributes["attribute_id"], "source_id": read_attributes["made_of"]})]
        )
    entities = pa.array(_series(named["entity_id"]).unique().to_list(), pa.string())
    shown = surfaces.filter(pc.is_in(surfaces["entity_id"], entities))
    return sources_of(read, nodes, named, passages_that_show(shown, tables))


def passages_of(units: pa.Table, relations: pa.Table) -> pa.Table:
    """Return the passages of units and relation nodes (UNITS, RELATIONS): columns node_id and source_id."""
    nodes = pl.DataFrame({"node_id": _series(relation_ids(relations)), "source_id": _series(relations["passage_id"])})
    unit_passages = pl.DataFrame({"node_id": _series(units["unit_id"]), "source_id": _series(units["passage_id"])})
    return pl.concat([unit_passages, nodes.unique()]).to_arrow().cast(_PAIR)


def passages_that_show(surfaces: pa.Table, tables: Iterable[Path]) -> pa.Table:
    """Return, for each entity, the smallest id of a passage with its displayed name: columns entity_id and source_id.

    surfaces: columns entity_id and surface. tables: Parquet files with columns entity_id, surface and passage_id: the
    mentions and the extractions of all shards, read one after the other. Entities without such a passage are left out.
    """
    shown = pl.DataFrame({name: _series(surfaces[name]) for name in ("entity_id", "surface")})
    frames = [pl.DataFrame(schema={"entity_id": pl.String, "source_id": pl.String})]
    for path in tables:
        rows = pl.read_parquet(path, columns=["entity_id", "surface", "passage_id"])
        rows = rows.join(shown, on=["entity_id", "surface"], how="semi")
        frames.append(rows.group_by("entity_id").agg(source_id=pl.col("passage_id").min()))
    return pl.concat(frames).group_by("entity_id").agg(pl.col("source_id").min()).sort("entity_id").to_arrow()


def sources_of(read: pa.Table, nodes: pa.Table, named: pa.Table, showing: pa.Table) -> pa.Table:
    """Return the sources of each text (HETERO_SOURCES).

    read: columns owner and node_id. nodes: columns node_id and source_id for all nodes that are read: the passages of
    units and relations, the `made_of` of attributes. named: columns owner and entity_id, the entities whose names a
    prompt shows. showing: the output of `passages_that_show`. Raises ValueError for a node without a source.
    """
    rows = _frame(read, "owner", "node_id").join(_frame(nodes, "node_id", "source_id"), on="node_id", how="left")
    missing = rows.filter(pl.col("source_id").is_null())["node_id"].min()
    if missing is not None:
        raise ValueError(f"the node {missing!r} has no source; give the sources of all nodes that are read")
    also = _frame(named, "owner", "entity_id").join(_frame(showing, "entity_id", "source_id"), on="entity_id")
    sources = pl.concat([one.select("owner", "source_id") for one in (rows, also)]).unique().sort("owner", "source_id")
    return conform(sources.to_arrow(), HETERO_SOURCES)


def _frame(table: pa.Table | Mapping[str, pa.Array], *names: str) -> pl.DataFrame:
    return pl.DataFrame({name: _series(table[name]) for name in names})


def _series(values: pa.Array | pa.ChunkedArray) -> pl.Series:
    return pl.Series(values, dtype=pl.String)
