"""What the text about an entity or a community is about: the passages that what is read for it comes from.

The ledger keeps these ids with an answer, so that the answer falls when a document is forgotten (storage.provenance).
A unit is one passage's, a relation that of all passages that say it. A name need not be told where it is read: one
passage that writes an entity as it is shown is among the sources of what shows it. An attribute that a model was asked
for stands for all that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import HETERO_SOURCES, conform
from tasks.families.heterograph.graph import relation_ids
from tasks.families.heterograph.reading import rows_of

__all__ = ["about", "by_owner", "passages_of", "passages_that_show", "sources_of"]

_PAIR = pa.schema([("node_id", pa.string()), ("source_id", pa.string())])


def about(
    read: pa.Table,
    units: pa.Table,
    relations: pa.Table,
    named: pa.Table,
    surfaces: pa.Table,
    tables: Iterable[Path],
    attributes: pa.Table | None = None,
) -> pa.Table:
    """What some texts are about (HETERO_SOURCES), from the tables of the whole corpus.

    read: HETERO_READ. units, relations: schemas UNITS and RELATIONS. attributes: HETERO_ATTRIBUTES, where any is read.
    named: see `sources_of`. surfaces, tables: see `passages_that_show`; the surfaces are those of all entities.
    """
    with_ids = relations.append_column("node_id", relation_ids(relations))
    nodes = passages_of(rows_of(units, "unit_id", read), rows_of(with_ids, "node_id", read))
    if attributes is not None:
        own = rows_of(attributes, "attribute_id", read)
        nodes = pa.concat_tables([nodes, pa.table({"node_id": own["attribute_id"], "source_id": own["made_of"]})])
    entities = pa.array(_series(named["entity_id"]).unique().to_list(), pa.string())
    shown = surfaces.filter(pc.is_in(surfaces["entity_id"], entities))
    return sources_of(read, nodes, named, passages_that_show(shown, tables))


def by_owner(table: pa.Table, owners: Sequence[str]) -> dict[str, list[str]]:
    """What the texts of some owners are about, ascending, from a table HETERO_SOURCES."""
    wanted = table.filter(pc.is_in(table["owner"], pa.array(owners, pa.string())))
    found: dict[str, list[str]] = {}
    for owner, source in zip(wanted["owner"].to_pylist(), wanted["source_id"].to_pylist(), strict=True):
        found.setdefault(owner, []).append(source)
    return found


def passages_of(units: pa.Table, relations: pa.Table) -> pa.Table:
    """Columns node_id and source_id, of units and relation nodes (schemas UNITS and RELATIONS), each pair once."""
    nodes = pl.DataFrame({"node_id": _series(relation_ids(relations)), "source_id": _series(relations["passage_id"])})
    own = pl.DataFrame({"node_id": _series(units["unit_id"]), "source_id": _series(units["passage_id"])})
    return pl.concat([own, nodes.unique()]).to_arrow().cast(_PAIR)


def passages_that_show(surfaces: pa.Table, tables: Iterable[Path]) -> pa.Table:
    """Columns entity_id and source_id: the least passage that writes each entity as it is shown.

    surfaces: columns entity_id and surface. tables: Parquet files with columns entity_id, surface and passage_id: the
    mentions and the extractions of all shards, read one after the other. An entity that none writes so is left out.
    """
    shown = pl.DataFrame({name: _series(surfaces[name]) for name in ("entity_id", "surface")})
    found = [pl.DataFrame(schema={"entity_id": pl.String, "source_id": pl.String})]
    for path in tables:
        rows = pl.read_parquet(path, columns=["entity_id", "surface", "passage_id"])
        rows = rows.join(shown, on=["entity_id", "surface"], how="semi")
        found.append(rows.group_by("entity_id").agg(source_id=pl.col("passage_id").min()))
    return pl.concat(found).group_by("entity_id").agg(pl.col("source_id").min()).sort("entity_id").to_arrow()


def sources_of(read: pa.Table, nodes: pa.Table, named: pa.Table, showing: pa.Table) -> pa.Table:
    """What each text is about (HETERO_SOURCES).

    read: columns owner and node_id. nodes: columns node_id and source_id, of all that is read: of units and relations
    their passages, of an attribute what it is made of. named: columns owner and entity_id, of the entities that are
    shown with a text. showing: columns entity_id and source_id. Raises ValueError for a node without a source.
    """
    rows = _frame(read, "owner", "node_id").join(_frame(nodes, "node_id", "source_id"), on="node_id", how="left")
    missing = rows.filter(pl.col("source_id").is_null())["node_id"].min()
    if missing is not None:
        raise ValueError(f"the node {missing!r} comes from nowhere; give the sources of all nodes that are read")
    also = _frame(named, "owner", "entity_id").join(_frame(showing, "entity_id", "source_id"), on="entity_id")
    found = pl.concat([one.select("owner", "source_id") for one in (rows, also)]).unique().sort("owner", "source_id")
    return conform(found.to_arrow(), HETERO_SOURCES)


def _frame(table: pa.Table | Mapping[str, pa.Array], *names: str) -> pl.DataFrame:
    return pl.DataFrame({name: _series(table[name]) for name in names})


def _series(values: pa.Array | pa.ChunkedArray) -> pl.Series:
    return pl.Series(values, dtype=pl.String)
