"""The extraction of a passage, and the four tables that store it.

Two families read these tables: NodeRAG's decomposition reads units with their entities and relations, and ArchRAG's
knowledge graph reads types and descriptions. Ids are derived from content, so that an unchanged passage keeps its rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.text.canonical_names import entity_id
from schemas.tables import EXTRACTED, RELATIONS, UNIT_ENTITIES, UNITS, conform
from tasks.core.stage import Output, Part
from tasks.stages.split.plain import Plain, Texts, tables_by_passage

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
    """An entity as one passage describes it. name: the canonical name."""

    name: str
    surface: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation stated by a unit. source, target: the entities' canonical names; text: the wording between them."""

    source: str
    target: str
    kind: str
    text: str
    description: str


@dataclass(frozen=True, slots=True)
class Unit:
    """One statement of a passage. entities: canonical names, including both ends of each relation."""

    text: str
    entities: tuple[str, ...]
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The extraction of one passage: distinct entities, including the units' entities, and distinct units."""

    entities: tuple[Entity, ...] = ()
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class MentionTexts(Texts):
    """Texts with the mentions (schema MENTIONS) in their passages."""

    mentions: pa.Table


def tables_of(passage_ids: Sequence[str], extractions: Sequence[Extraction]) -> dict[str, pa.Table]:
    """Return the tables of the passages' extractions (`EXTRACTION`).

    Rows are in the order of the passages. Within a passage, units are sorted by ordinal, entities by id, and the
    relations of a unit by id.
    """
    id_of: dict[str, str] = {}

    def ids(names: Iterable[str]) -> list[str]:
        return [id_of.get(name) or id_of.setdefault(name, entity_id(name)) for name in names]

    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in EXTRACTION}
    for passage, extraction in zip(passage_ids, extractions, strict=True):
        for ordinal, unit in enumerate(extraction.units):
            unit_id = _id("unit", passage, unit.text)
            rows["units"].append((unit_id, passage, ordinal, unit.text))
            rows["unit_entities"] += [(passage, unit_id, entity) for entity in sorted(set(ids(unit.entities)))]
            relations: dict[str, tuple[str, ...]] = {}
            for relation in unit.relations:
                source, target = ids((relation.source, relation.target))
                key = _id("relation", unit_id, source, target, relation.text)
                stated = (relation.kind, relation.text, relation.description)
                relations.setdefault(key, (key, passage, unit_id, source, target, *stated))
            rows["relations"] += [relations[key] for key in sorted(relations)]
        named = zip(ids(entity.name for entity in extraction.entities), extraction.entities, strict=True)
        rows["extracted"] += sorted((passage, key, e.name, e.surface, e.type, e.description) for key, e in named)
    return {name: _table(rows[name], schema) for name, schema in EXTRACTION.items()}


def extracted_of(
    part: Part[Any], find: Callable[[MentionTexts], Sequence[Extraction]], *, again: str | None = None
) -> tuple[dict[str, pa.Table], int]:
    """Return the tables (`EXTRACTION`) of a shard's documents, and the number of new or changed documents.

    find: returns the extraction of each passage of some documents. again: see `unchanged`.
    """
    mentions = part.table("mentions")

    def make(texts: Texts, plain: Plain) -> dict[str, pa.Table]:
        ids = texts.passages["passage_id"]
        mine = plain.to_plain(mentions.filter(pc.is_in(mentions["passage_id"], ids.combine_chunks())))
        return tables_of(ids.to_pylist(), find(MentionTexts(texts.documents, texts.passages, texts.sentences, mine)))

    return tables_by_passage(part, make, again=again)


def _id(what: str, *parts: str) -> str:
    """Return an id of 32 hex digits. All parts but the last are ids, so that the joined text is unambiguous."""
    return hashlib.sha256("\0".join((what, *parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return conform(pa.table(list(map(pa.array, columns, schema.types)), schema=schema), schema)
