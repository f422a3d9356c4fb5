"""Stage `hetero_first`: the important entities, and what an attribute of each is made of (NodeRAG, Algorithm 1).

    Want(WHOLE, {"units/<p>", "unit_entities/<p>", "relations/<p>", "entities/<e>", "same_as"},
         {"units", "relations", "input_tokens", "seed", "writer"})

`same_as` where there is one. writer: the fingerprint of what writes the attributes (`attribute_text.fingerprint`),
which is part of what each is made of. Where that is a model (its `backend` is not `extractive`) the inputs are
`mentions/<p>` and `extracted/<p>`, too: a passage that writes a name as it is shown is among those that a prompt is
about. Nothing here is dear, so no row is copied, and nothing depends on what was there before.

Tables, a pair, or three, for each shard of entities, so that a part of `attributes` reads its own alone:

    attribute_read/<e>      HETERO_READ: the units and relations that are read
    attribute_made/<e>      HETERO_MADE, with the entity's name as it is shown
    attribute_sources/<e>   where a model is asked: the passages that a prompt is about
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import (
    ENTITIES,
    EXTRACTED,
    HETERO_MADE,
    HETERO_READ,
    HETERO_SOURCES,
    MENTIONS,
    RELATIONS,
    SAME_AS,
    UNIT_ENTITIES,
    UNITS,
    conform,
)
from storage.tables import put_table
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import Input, Inputs, Output, Outputs, Stage
from tasks.families.heterograph.graph import decomposed, graph_of, relation_nodes
from tasks.families.heterograph.importance import important
from tasks.families.heterograph.reading import about_entities, capped, first_of, made_of, rows_of
from tasks.families.heterograph.sources import about
from tasks.families.heterograph.texts import digested, relation_table, relation_texts, unit_texts

__all__ = ["STAGE", "estimate", "named", "read_about"]


def read_about(
    units: pa.Table,
    unit_entities: pa.Table,
    relations: pa.Table,
    surfaces: pa.Table,
    same_as: pa.Table | None,
    settings: Mapping[str, Any],
) -> tuple[pa.Table, pa.Table]:
    """What the attributes of the important entities are made of: HETERO_READ with `tokens`, and HETERO_MADE.

    The tables of an extraction (`tasks.stages.extract.tables.EXTRACTION`); surfaces: columns entity_id and surface of
    all entities. settings: those of the stage.
    """
    seed, caps = settings["seed"], {"S": settings["units"], "R": settings["relations"]}
    graph = graph_of(decomposed(units, unit_entities, relations, same_as))
    pairs = first_of(about_entities(graph, important(graph, seed=seed).chosen), caps, seed=seed)
    nodes = relation_nodes(relations)
    texts = pa.concat_tables(
        [
            unit_texts(rows_of(units, "unit_id", pairs)),
            relation_texts(relation_table(rows_of(nodes, "node_id", pairs), surfaces)),
        ]
    )
    read = capped(pairs, digested(texts), caps, settings["input_tokens"], seed=seed)
    shown = surfaces.filter(pc.is_in(surfaces["entity_id"], pairs["owner"].combine_chunks()))
    owners = pa.table({"owner": shown["entity_id"], "shown": shown["surface"]})
    return read, made_of(read, {"writer": settings["writer"]}, owners)


def named(read: pa.Table, relations: pa.Table) -> pa.Table:
    """The entities whose names the prompts for some attributes show, columns owner and entity_id.

    The owners themselves, and the ends of the relations that are read. read, relations: as above.
    """
    owners = read["owner"].unique()
    of_relations = read.filter(pc.equal(read["kind"], "R")).select(["owner", "node_id"])
    ends = rows_of(relation_nodes(relations), "node_id", read).select(["node_id", "source", "target"])
    ended = of_relations.join(ends, "node_id", join_type="inner")
    return pa.table(
        {
            "owner": pa.chunked_array([owners, *ended["owner"].chunks, *ended["owner"].chunks], pa.string()),
            "entity_id": pa.chunked_array([owners, *ended["source"].chunks, *ended["target"].chunks], pa.string()),
        }
    )


def _tables(inputs: Inputs[Any], *, without_same_as: bool = False) -> tuple[dict[str, pa.Table], int]:
    """The tables of a part, and how many entities are important."""
    settings = inputs.settings
    units = inputs.tables("units", UNITS, "unit_id", "passage_id", "text")
    relations = inputs.tables("relations", RELATIONS, "passage_id", "source", "target", "text")
    surfaces = inputs.tables("entities", ENTITIES, "entity_id", "surface")
    same_as = None
    if "same_as" in inputs.job.inputs and not without_same_as:
        same_as = inputs.table("same_as", SAME_AS, "entity_id", "other_id")
    names = inputs.tables("unit_entities", UNIT_ENTITIES, "unit_id", "entity_id")
    read, made = read_about(units, names, relations, surfaces, same_as, settings)
    found = {"attribute_read": conform(read, HETERO_READ), "attribute_made": made}
    if settings["writer"]["backend"] != "extractive":
        texts = [*inputs.paths("mentions"), *inputs.paths("extracted")]
        found["attribute_sources"] = about(read, units, relations, named(read, relations), surfaces, texts)
    tables: dict[str, pa.Table] = {}
    for entities in sorted(name for name in inputs.job.inputs if name.startswith("entities/")):
        ids, label = inputs.table(entities, ENTITIES, "entity_id")["entity_id"].combine_chunks(), entities[9:]
        for name, table in found.items():
            tables[f"{name}/{label}"] = table.filter(pc.is_in(table["owner"], ids))
    return tables, len(made)


def _compute(inputs: Inputs[Any]) -> Outputs:
    tables, count = _tables(inputs)
    return Outputs(tables=tables, counts={"important_entities": count})


def estimate(inputs: Inputs[Any], expected: Mapping[str, Range]) -> Estimate:
    """What the part will hold, so that the plan knows the attributes that are missing.

    A plan takes as long for it as a build, 20 s CPU for a graph of a million nodes. Where the pairs of `same_as` are
    only planned, it is what the part would hold without them: a guess.
    """
    guessed = "same_as" in expected
    tables, _ = _tables(inputs, without_same_as=guessed)
    if guessed:  # not to be taken for what the part will hold
        tables = {
            name: table.append_column("planned", pa.array([inputs.job.key] * len(table), pa.string()))
            for name, table in tables.items()
        }
    kept = {name: put_table(inputs.store, table) for name, table in tables.items()}
    return Estimate(
        bytes={name: Range(0, 2 * size) if guessed else Range.exactly(size) for name, (_, size) in kept.items()},
        rows={name: Range.exactly(len(table)) for name, table in tables.items()},
        stand_ins={name: digest for name, (digest, _) in kept.items()},
        guessed=guessed,
    )


STAGE = Stage(
    "hetero_first",
    version=1,
    compute=_compute,
    libraries=("numpy", "polars"),
    estimate=estimate,
    inputs=(
        Input("units", UNITS, each=True),
        Input("unit_entities", UNIT_ENTITIES, each=True),
        Input("relations", RELATIONS, each=True),
        Input("entities", ENTITIES, each=True),
        Input("same_as", SAME_AS, optional=True),
        Input("mentions", MENTIONS, each=True, optional=True),
        Input("extracted", EXTRACTED, each=True, optional=True),
    ),
    outputs=(
        Output("attribute_read", HETERO_READ, each=True),
        Output("attribute_made", HETERO_MADE, each=True),
        Output("attribute_sources", HETERO_SOURCES, each=True),
    ),
)
