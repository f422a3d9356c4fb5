"""What the stages `hetero_first` and `hetero_elements_read` share: reading nodes, naming sources, a table per group.

Each says what texts of one kind are made of: which nodes of the graph are read for each text, and, where a language
model writes it, from which passages they come. The tables `<kind>_read`, `<kind>_made` and `<kind>_sources` are cut
into groups, so that a part of the stage that writes reads only its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.tables import ENTITIES, EXTRACTED, MENTIONS, RELATIONS, UNITS, conform
from tasks.core.stage import Input, Output, Part, Settings
from tasks.families.heterograph.graph import relation_nodes
from tasks.families.heterograph.reading import capped, first_of, rows_of
from tasks.families.heterograph.sources import about
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ, HETERO_SOURCES
from tasks.families.heterograph.texts import digested, relation_table

__all__ = ["CORPUS", "Corpus", "ReadingSettings", "grouped", "outputs_of", "read_nodes", "tables_of"]

Tables = Mapping[str, pa.Table]

CORPUS = (
    Input("units", UNITS, each=True),
    Input("relations", RELATIONS, stage="extract", each=True),
    Input("entities", ENTITIES, each=True),
    Input("mentions", MENTIONS, each=True, optional=True),
    Input("extracted", EXTRACTED, each=True, optional=True),
)
"""What both stages read. Mentions and extracted entities only where a model is asked: a passage that writes a name as
it is shown is among the sources of a prompt."""


def outputs_of(kind: str) -> tuple[Output, ...]:
    """The outputs of a stage. kind: `attribute` or `element`."""
    schemas = {"read": HETERO_READ, "made": HETERO_MADE, "sources": HETERO_SOURCES}
    return tuple(Output(f"{kind}_{name}", schema, each=True) for name, schema in schemas.items())


@dataclass(frozen=True, kw_only=True)
class ReadingSettings(Settings):
    """units, relations: read for one text at most. input_tokens: of all that is read for it.

    writer: the fingerprint of what writes the texts, which is part of what each is made of.
    """

    units: int
    relations: int
    input_tokens: int
    seed: int
    writer: Mapping[str, Any]

    @property
    def caps(self) -> dict[str, int]:
        """How many nodes of each kind are read for one text at most."""
        return {"S": self.units, "R": self.relations}

    @property
    def asks(self) -> bool:
        """True if a language model writes the texts."""
        return bool(self.writer["backend"] != "extractive")


@dataclass(frozen=True)
class Corpus:
    """What all passages say: schemas UNITS and RELATIONS; surfaces: columns entity_id and surface of all entities."""

    units: pa.Table
    relations: pa.Table
    surfaces: pa.Table

    @classmethod
    def of(cls, part: Part[Any]) -> Corpus:
        """The columns of a part's inputs that its work needs."""
        return cls(
            part.tables("units", "unit_id", "passage_id", "text"),
            part.tables("relations", "passage_id", "source", "target", "text"),
            part.tables("entities", "entity_id", "surface"),
        )


def read_nodes(
    pairs: pa.Table, corpus: Corpus, settings: ReadingSettings, attributes: pa.Table | None = None
) -> pa.Table:
    """What is read of some pairs (columns owner, node_id, kind) within the settings' bounds: HETERO_READ with `tokens`.

    attributes: HETERO_ATTRIBUTES, where any may be read.
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
    """Columns node_id and text, of the columns that hold these."""
    return pa.table({"node_id": table[key], "text": table[text]})


def tables_of(
    part: Part[Any],
    kind: str,
    corpus: Corpus,
    read: pa.Table,
    made: pa.Table,
    shown: pa.Table | None,
    attributes: pa.Table | None = None,
) -> dict[str, pa.Table]:
    """The tables of a part before they are cut into groups, by output.

    read, made: as `read_nodes` and `reading.made_of` give them. shown: columns owner and entity_id, of the entities
    whose names a prompt shows; None where no model is asked. attributes: as above.
    """
    found = {f"{kind}_read": conform(read, HETERO_READ), f"{kind}_made": made}
    if shown is not None:
        texts = [*part.paths("mentions"), *part.paths("extracted")]
        sources = about(read, corpus.units, corpus.relations, shown, corpus.surfaces, texts, attributes)
        found[f"{kind}_sources"] = sources
    return found


def grouped(tables: Tables, owners: Mapping[str, pa.Array]) -> dict[str, pa.Table]:
    """The rows of each group of owners, by `<output>/<label>`."""
    return {
        f"{name}/{label}": table.filter(pc.is_in(table["owner"], own))
        for label, own in owners.items()
        for name, table in tables.items()
    }
