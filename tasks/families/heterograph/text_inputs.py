"""The code shared by `hetero_first` and `hetero_elements_read`: reading nodes, naming sources, grouping tables.

Each stage selects the inputs of one kind of text: the nodes of the graph that are read for each text and, if a language
model writes it, the passages that they come from. The tables `<kind>_read`, `<kind>_made` and `<kind>_sources` are
split into groups, so that each part of the writing stage reads only its own group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import RELATIONS, conform
from tasks.core.stage import Input, Output, Part, StageSettings, shared_tables
from tasks.families.heterograph.graph import relation_nodes
from tasks.families.heterograph.reading import capped, first_of, rows_of
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ, HETERO_SOURCES
from tasks.families.heterograph.text_sources import about
from tasks.families.heterograph.texts import digested, relation_table

Tables = Mapping[str, pa.Table]

CORPUS = (
    *shared_tables("units", "entities", each=True),
    Input("relations", RELATIONS, stage="extract", each=True),
    *shared_tables("mentions", "extracted", each=True, optional=True),
)
"""The inputs of both stages. Mentions and extracted entities are read only if a model is asked: a passage with a name's
displayed spelling is among the sources of a prompt."""


def outputs_of(kind: str) -> tuple[Output, ...]:
    """Return the outputs of a stage. kind: `attribute` or `element`."""
    schemas = {"read": HETERO_READ, "made": HETERO_MADE, "sources": HETERO_SOURCES}
    return tuple(Output(f"{kind}_{name}", schema, each=True) for name, schema in schemas.items())


@dataclass(frozen=True, kw_only=True)
class ReadingSettings(StageSettings):
    """units, relations, input_tokens: the maximum numbers of units, relations and tokens that are read for one text.

    writer: the fingerprint of the writer, which is part of each text's `made_of`.
    """

    units: int
    relations: int
    input_tokens: int
    seed: int
    writer: Mapping[str, Any]

    @property
    def caps(self) -> dict[str, int]:
        return {"S": self.units, "R": self.relations}

    @property
    def asks(self) -> bool:
        return bool(self.writer["backend"] != "extractive")


@dataclass(frozen=True)
class CorpusTexts:
    """Units and relations of all passages (UNITS, RELATIONS). surfaces: entity_id and surface of all entities."""

    units: pa.Table
    relations: pa.Table
    surfaces: pa.Table

    @classmethod
    def of(cls, part: Part[Any]) -> CorpusTexts:
        return cls(
            part.tables("units", "unit_id", "passage_id", "text"),
            part.tables("relations", "passage_id", "source", "target", "text"),
            part.tables("entities", "entity_id", "surface"),
        )


def read_nodes(
    pairs: pa.Table, corpus: CorpusTexts, settings: ReadingSettings, attributes: pa.Table | None = None
) -> pa.Table:
    """Return pairs (owner, node_id, kind) within the settings' bounds, as HETERO_READ with `tokens`.

    attributes: HETERO_ATTRIBUTES, if any may be read.
    """
    pairs = first_of(pairs, settings.caps, seed=settings.seed)
    relations = rows_of(relation_nodes(corpus.relations), "node_id", pairs)
    texts = [
        _texts(rows_of(corpus.units, "unit_id", pairs), "unit_id", "text"),
        _texts(relation_table(relations, corpus.surfaces), "node_id", "said"),
    ]
    if attributes is not None:
        texts.append(_texts(rows_of(attributes, "attribute_id", pairs), "attribute_id", "text"))
    return capped(pairs, digested(pa.concat_tables(texts)), settings.caps, settings.input_tokens, seed=settings.seed)


def _texts(table: pa.Table, key: str, text: str) -> pa.Table:
    return pa.table({"node_id": table[key], "text": table[text]})


def tables_of(
    part: Part[Any],
    kind: str,
    corpus: CorpusTexts,
    read: pa.Table,
    input_hashes: pa.Table,
    shown: pa.Table | None,
    attributes: pa.Table | None = None,
) -> dict[str, pa.Table]:
    """Return the tables of a part before they are split into groups, by output.

    read, input_hashes: the outputs of `read_nodes` and `reading.made_of`. shown: columns owner and entity_id, the
    entities whose names a prompt shows; None if no model is asked. attributes: see `read_nodes`.
    """
    tables = {f"{kind}_read": conform(read, HETERO_READ), f"{kind}_made": input_hashes}
    if shown is not None:
        texts = [*part.paths("mentions"), *part.paths("extracted")]
        sources = about(read, corpus.units, corpus.relations, shown, corpus.surfaces, texts, attributes)
        tables[f"{kind}_sources"] = sources
    return tables


def grouped(tables: Tables, owners: Mapping[str, pa.Array]) -> dict[str, pa.Table]:
    """Split tables into groups; returns them by `<output>/<label>`. owners: the owners in each group, by label."""
    return {
        f"{name}/{label}": table.filter(pc.is_in(table["owner"], own))
        for label, own in owners.items()
        for name, table in tables.items()
    }
