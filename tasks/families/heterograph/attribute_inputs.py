"""Stage `hetero_first`: the important entities, and the inputs of their attributes (NodeRAG, Algorithm 1).

The stage is cheap, so it copies no rows, and it does not depend on the previous version. For each shard `<e>` of
entities:

    attribute_read/<e>      HETERO_READ: the units and relations that are read
    attribute_made/<e>      HETERO_MADE, with the entity's displayed name
    attribute_sources/<e>   HETERO_SOURCES, if a model is asked: the source passages of each prompt
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import SAME_AS, UNIT_ENTITIES
from tasks.core.estimate import Estimate, Expected
from tasks.core.request_estimate import holding
from tasks.core.stage import Input, Outputs, Part, Stage
from tasks.families.heterograph.graph import TypedGraph, decomposed, graph_of
from tasks.families.heterograph.importance import important
from tasks.families.heterograph.reading import about_entities, made_of
from tasks.families.heterograph.text_inputs import (
    CORPUS,
    CorpusTexts,
    ReadingSettings,
    grouped,
    outputs_of,
    read_nodes,
    tables_of,
)
from tasks.families.heterograph.text_sources import named


def read_about(
    corpus: CorpusTexts, unit_entities: pa.Table, same_as: pa.Table | None, settings: ReadingSettings
) -> tuple[TypedGraph, pa.Table, pa.Table]:
    """Return the graph of the extracted pieces [G1], and the inputs of the attributes of the important entities.

    The inputs are HETERO_READ with `tokens`, and HETERO_MADE. unit_entities, same_as: tables of these schemas.
    """
    graph = graph_of(decomposed(corpus.units, unit_entities, corpus.relations, same_as))
    pairs = about_entities(graph, important(graph, seed=settings.seed).chosen)
    read = read_nodes(pairs, corpus, settings)
    shown = corpus.surfaces.filter(pc.is_in(corpus.surfaces["entity_id"], read["owner"].combine_chunks()))
    owners = pa.table({"owner": shown["entity_id"], "shown": shown["surface"]})
    return graph, read, made_of(read, {"writer": settings.writer}, owners)


def _shown(graph: TypedGraph, read: pa.Table) -> pa.Table:
    """Return the entities whose names a prompt shows: the owners, and the ends of the relations that are read."""
    ends = named(graph, read.filter(pc.equal(read["kind"], "R"))).select(["owner", "entity_id"])
    owners = read["owner"].unique()
    return pa.concat_tables([ends, pa.table({"owner": owners, "entity_id": owners})])


def _tables(part: Part[ReadingSettings], *, without_same_as: bool = False) -> tuple[dict[str, pa.Table], int]:
    corpus, same_as = CorpusTexts.of(part), None
    if part.has("same_as") and not without_same_as:
        same_as = part.table("same_as", "entity_id", "other_id")
    names = part.tables("unit_entities", "unit_id", "entity_id")
    graph, read, input_hashes = read_about(corpus, names, same_as, part.settings)
    shown = _shown(graph, read) if part.settings.asks else None
    owners = {
        label: part.table(f"entities/{label}", "entity_id")["entity_id"].combine_chunks()
        for label in part.labels("entities")
    }
    return grouped(tables_of(part, "attribute", corpus, read, input_hashes, shown), owners), len(input_hashes)


def _compute(part: Part[ReadingSettings]) -> Outputs:
    tables, count = _tables(part)
    return Outputs(tables=tables, counts={"important_entities": count})


def estimate(part: Part[ReadingSettings], expected: Expected) -> Estimate:
    """Estimate the rows of the part, so that the plan knows the missing attributes.

    This takes as long in a plan as in a build: 20 s of CPU for a graph of a million nodes. If `same_as` itself is only
    planned, the estimate ignores its pairs and is marked as a guess.
    """
    guessed = "same_as" in expected
    tables, _ = _tables(part, without_same_as=guessed)
    return holding(part, tables, guessed=guessed)


STAGE = Stage(
    "hetero_first",
    version=1,
    compute=_compute,
    libraries=("numpy", "polars"),
    estimate=estimate,
    inputs=(*CORPUS, Input("unit_entities", UNIT_ENTITIES, each=True), Input("same_as", SAME_AS, optional=True)),
    outputs=outputs_of("attribute"),
)
