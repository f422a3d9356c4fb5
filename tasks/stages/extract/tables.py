"""What is extracted from passages, and the four tables that hold it.

One extraction serves two families: the units of NodeRAG's decomposition, with their entities and relations, and the
types and descriptions of ArchRAG's knowledge graph. Ids come from content, so that an unchanged passage keeps its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.text.names import entity_id
from schemas.tables import EXTRACTED, RELATIONS, UNIT_ENTITIES, UNITS, conform
from tasks.core.stage import Output, Part
from tasks.core.unchanged import in_order, unchanged
from tasks.stages.split.plain import Plain

__all__ = [
    "EXTRACTION",
    "EXTRACTION_OUTPUTS",
    "Entity",
    "Extraction",
    "Relation",
    "Texts",
    "Unit",
    "extracted_of",
    "new_texts",
    "tables_of",
]

EXTRACTION: Mapping[str, pa.Schema] = {
    "units": UNITS,
    "unit_entities": UNIT_ENTITIES,
    "extracted": EXTRACTED,
    "relations": RELATIONS,
}
"""The tables of an extraction and their schemas."""

EXTRACTION_OUTPUTS = tuple(Output(name, schema, artifact=name + "/{label}") for name, schema in EXTRACTION.items())


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity as one passage tells of it. name: canonical."""

    name: str
    surface: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Relation:
    """What a unit says of two entities. source, target: canonical names; text: the wording, read in that direction."""

    source: str
    target: str
    kind: str
    text: str
    description: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing that a passage says. entities: canonical names, those of the relations' ends among them."""

    text: str
    entities: tuple[str, ...]
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """All that is extracted from one passage: distinct entities, which hold those of the units, and distinct units."""

    entities: tuple[Entity, ...] = ()
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class Texts:
    """Some documents, with their passages, sentences and mentions (schemas of these names), in their order.

    Texts and offsets are those that a reader sees: see tasks.stages.split.plain.
    """

    documents: pa.Table
    passages: pa.Table
    sentences: pa.Table
    mentions: pa.Table

    def titles(self) -> list[str]:
        """The title of each passage's document."""
        row = pc.index_in(self.passages["document_id"], self.documents["document_id"].combine_chunks())
        found: list[str] = self.documents["title"].combine_chunks().take(row.combine_chunks()).to_pylist()
        return found


def tables_of(passage_ids: Sequence[str], extractions: Sequence[Extraction]) -> dict[str, pa.Table]:
    """The tables of some passages' extractions (`EXTRACTION`).

    In the order of the passages; then units by ordinal, their entities and those of a passage by entity id, the
    relations of a unit by relation id.
    """
    known: dict[str, str] = {}

    def ids(names: Iterable[str]) -> list[str]:
        return [known.get(name) or known.setdefault(name, entity_id(name)) for name in names]

    units: list[tuple[Any, ...]] = []
    links: list[tuple[Any, ...]] = []
    entities: list[tuple[Any, ...]] = []
    relations: list[tuple[Any, ...]] = []
    for passage, found in zip(passage_ids, extractions, strict=True):
        for ordinal, unit in enumerate(found.units):
            own = _id("unit", passage, unit.text)
            units.append((passage, own, ordinal, unit.text))
            links += [(passage, own, one) for one in sorted(set(ids(unit.entities)))]
            said: dict[str, tuple[str, ...]] = {}
            for one in unit.relations:
                source, target = ids((one.source, one.target))
                key = _id("relation", own, source, target, one.text)
                said.setdefault(key, (passage, key, own, source, target, one.kind, one.text, one.description))
            relations += [said[key] for key in sorted(said)]
        rows = zip(ids(entity.name for entity in found.entities), found.entities, strict=True)
        entities += sorted((passage, key, one.name, one.surface, one.type, one.description) for key, one in rows)
    return {
        "units": _table(units, UNITS, "passage_id", "unit_id", "ordinal", "text"),
        "unit_entities": _table(links, UNIT_ENTITIES, "passage_id", "unit_id", "entity_id"),
        "extracted": _table(entities, EXTRACTED, "passage_id", "entity_id", "name", "surface", "type", "description"),
        "relations": _table(
            relations,
            RELATIONS,
            *("passage_id", "relation_id", "unit_id", "source", "target", "kind", "text", "description"),
        ),
    }


def extracted_of(
    inputs: Part[Any], find: Callable[[Texts], Sequence[Extraction]], *, again: str | None = None
) -> tuple[dict[str, pa.Table], int]:
    """The tables of a shard's documents, and of how many documents they were made: those that the parent lacks.

    find: extracts from each passage of some documents. again: see `unchanged`.
    """
    documents, passages = inputs.table("documents"), inputs.table("passages")
    same, held = unchanged(inputs, documents, again=again)
    new = new_texts(inputs, documents.filter(pa.array(~held)))
    made = tables_of(new.passages["passage_id"].to_pylist(), find(new))
    found = {name: [table] for name, table in made.items()}
    for part in same:
        kept = passages.filter(pc.is_in(passages["document_id"], part.ids))["passage_id"]
        for name in EXTRACTION:
            found[name].append(part.of_passages(name, kept))
    ordered = {name: in_order(tables, "passage_id", passages["passage_id"]) for name, tables in found.items()}
    return ordered, len(new.documents)


def new_texts(part: Part[Any], documents: pa.Table) -> Texts:
    """What a part reads of some of its documents."""
    passages = part.table("passages")
    mine = passages.filter(pc.is_in(passages["document_id"], documents["document_id"].combine_chunks()))
    ids = mine["passage_id"].combine_chunks()
    sentences, mentions = (
        table.filter(pc.is_in(table["passage_id"], ids)) for table in (part.table("sentences"), part.table("mentions"))
    )
    plain = Plain.of(part, mine)
    return Texts(plain.documents(documents), plain.passages, plain.sentences(sentences), plain.mentions(mentions))


def _id(what: str, *parts: str) -> str:
    """32 hex digits. All parts but the last are ids, so that none runs into the next."""
    return hashlib.sha256("\0".join((what, *parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, *names: str) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = {name: pa.array(column, schema.field(name).type) for name, column in zip(names, columns, strict=True)}
    return conform(pa.table(arrays), schema)
