"""A small snapshot with a knowledge graph: what each passage tells, put together, and communities over the entities.

The tables are made as the stages make them, from `tasks.stages.extract.tables`; reports and vectors are not needed
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.store.manifest import Family
from indexmill.text.names import entity_id
from schemas.tables import COMMUNITIES, COMMUNITY_MEMBERS, DESCRIBED, RELATED
from tasks.core.communities.levels import community_id
from tasks.stages.extract.tables import EXTRACTION, Entity, Extraction, Relation, Unit, tables_of
from tests.indexmill.small_snapshot import SnapshotWriter, Text

__all__ = ["KNOWLEDGE", "Group", "Knowledge", "Said", "publish_knowledge", "random_knowledge"]

LETTERS = "stuvwxyz"


@dataclass(frozen=True)
class Said:
    """What a passage tells: canonical names of its entities, and (source, wording, target) by names."""

    names: Sequence[str]
    relations: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True)
class Group:
    """A community: its members' places in the level below as given, what is told of it."""

    members: Sequence[int]
    title: str = ""
    text: str = ""
    findings: Sequence[tuple[str, str]] = ()
    rating: float = 5.0


@dataclass(frozen=True)
class Knowledge:
    """Documents by shard; by passage, in the order of rows, what it tells; surfaces by name; levels from the lowest."""

    texts: Mapping[str, Sequence[Text]]
    said: Sequence[Said]
    surfaces: Mapping[str, str]
    levels: Sequence[Sequence[Group]] = ()

    @property
    def names(self) -> list[str]:
        """The names of all entities, in the order of their rows."""
        return sorted({name for one in self.said for name in one.names}, key=entity_id)


KNOWLEDGE = Knowledge(
    {
        "p0": (
            Text(
                "bridge", "Marrow Bridge", "The Marrow Bridge crosses the Ilse.\n\nAda Venn paid for it.", {"year": 1}
            ),
            Text("venn", "", "Ada Venn was born in Tallow. Venn met Tallow."),
        ),
        "p1": (Text("ilse", "Ilse", "The Ilse is cold."),),
    },
    [
        Said(["marrow bridge", "ilse"], [("marrow bridge", "crosses", "ilse")]),
        Said(["ada venn", "marrow bridge"], [("ada venn", "paid for", "marrow bridge")]),
        Said(["ada venn", "tallow"], [("ada venn", "was born in", "tallow"), ("tallow", "met", "ada venn")]),
        Said(["ilse", "mercury god", "mercury planet"]),
    ],
    {
        "marrow bridge": "Marrow Bridge",
        "ilse": "Ilse",
        "ada venn": "Ada Venn",
        "tallow": "Tallow",
        "mercury god": "Mercury",
        "mercury planet": "Mercury",
    },
)
"""Without communities: `dataclasses.replace(KNOWLEDGE, levels=...)` gives it some."""


def publish_knowledge(path: Path, knowledge: Knowledge) -> SnapshotWriter:
    """Publish it as version 1; with the family community_tree where it has levels."""
    writer = SnapshotWriter(path)
    for label, texts in knowledge.texts.items():
        writer.shard(label, texts)
    rows = _extracted(writer, knowledge)
    if knowledge.levels:
        _communities(writer, knowledge, rows)
    writer.publish()
    return writer


def _extracted(writer: SnapshotWriter, knowledge: Knowledge) -> int:
    """Write the tables of the extraction and what they come to; returns the number of entities."""
    pieces: dict[str, list[pa.Table]] = {name: [] for name in EXTRACTION}
    at = 0
    for label in knowledge.texts:
        ids = _column(writer, f"passages/{label}", "passage_id")
        made = tables_of(ids, [_extraction(one, knowledge) for one in knowledge.said[at : at + len(ids)]])
        at += len(ids)
        for name, schema in EXTRACTION.items():
            writer.table(f"{name}/{label}", made[name], schema)
            pieces[name].append(made[name])
    assert at == len(knowledge.said)
    extracted, relations = (pa.concat_tables(pieces[name]).to_pylist() for name in ("extracted", "relations"))
    described = [_described(name, extracted, knowledge) for name in knowledge.names]
    pairs = sorted({(one["source"], one["target"]) for one in relations})
    related = [_related(pair, relations) for pair in pairs]
    for half in "01":
        writer.table(f"described/e{half}", _half(described, "entity_id", half, DESCRIBED), DESCRIBED)
        writer.table(f"related/e{half}", _half(related, "source", half, RELATED), RELATED)
    return len(described)


def _extraction(said: Said, knowledge: Knowledge) -> Extraction:
    entities = tuple(Entity(name, knowledge.surfaces[name], "thing", f"{name} is told of") for name in said.names)
    relations = tuple(
        Relation(source, target, wording, wording, f"{source} {wording} {target}")
        for source, wording, target in said.relations
    )
    return Extraction(entities, (Unit("what it says", tuple(said.names), relations),))


def _described(name: str, extracted: Sequence[Mapping[str, Any]], knowledge: Knowledge) -> dict[str, Any]:
    return {
        "entity_id": entity_id(name),
        "name": name,
        "surface": knowledge.surfaces[name],
        "type": "thing",
        "description": f"all about {name}",
        "tokens": 3,
        "digest": "0" * 32,
        "pieces": 1,
        "passages": sum(one["name"] == name for one in extracted),
        "stand_in": False,
    }


def _related(pair: tuple[str, str], relations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    held = [one for one in relations if (one["source"], one["target"]) == pair]
    return {
        "source": pair[0],
        "target": pair[1],
        "kind": held[0]["kind"],
        "description": " ".join(sorted({one["description"] for one in held})),
        "digest": "0" * 32,
        "relations": len(held),
        "stand_in": False,
    }


def _communities(writer: SnapshotWriter, knowledge: Knowledge, entities: int) -> None:
    ids = [entity_id(name) for name in knowledge.names]
    row_of = list(range(entities))
    parents, offsets = [-1] * entities, [0, entities]
    indptr, indices = [0], list[int]()
    for number, level in enumerate(knowledge.levels, start=1):
        own = [community_id(number, [ids[member] for member in group.members]) for group in level]
        order = sorted(range(len(level)), key=own.__getitem__)
        rows = [0] * len(level)
        for place, one in enumerate(order):
            rows[one] = offsets[-1] + place
            held = sorted(row_of[member] for member in level[one].members)
            for child in held:
                parents[child] = rows[one]
            indices += held
            indptr.append(len(indices))
        parents += [-1] * len(level)
        offsets.append(len(parents))
        told = [_told(own[one], number, level[one]) for one in order]
        members = [
            {"community_id": own[one], "member_id": ids[member], "member_digest": "0" * 32, "shard": "e0"}
            for one in order
            for member in level[one].members
        ]
        for half in "01":
            label = f"{LETTERS[number - 1]}{half}"
            writer.table(f"communities/{label}", _half(told, "community_id", half, COMMUNITIES), COMMUNITIES)
            held_by = _half(members, "community_id", half, COMMUNITY_MEMBERS)
            writer.table(f"community_members/{label}", held_by, COMMUNITY_MEMBERS)
        ids, row_of = own, rows
    writer.arrays(
        "community_tree/tree",
        {
            "level_offsets": np.array(offsets, np.int64),
            "parents": np.array(parents, np.int32),
            "children.indptr": np.array(indptr, np.int64),
            "children.indices": np.array(indices, np.int32),
        },
    )
    writer.families["community_tree"] = Family(counts={"communities": len(parents) - entities})


def _told(own: str, level: int, group: Group) -> dict[str, Any]:
    return {
        "community_id": own,
        "level": level,
        "title": group.title,
        "text": group.text,
        "findings": [{"summary": summary, "explanation": why} for summary, why in group.findings],
        "rating": group.rating,
        "rating_explanation": f"rated {group.rating}",
        "members": len(group.members),
        "tokens": 3,
        "digest": "0" * 32,
        "made_of": "0" * 64,
        "stand_in": False,
    }


def _half(rows: Sequence[Mapping[str, Any]], key: str, half: str, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([row for row in rows if (row[key] >= "8") == (half == "1")], schema)


def _column(writer: SnapshotWriter, name: str, column: str) -> list[str]:
    from storage.tables import read_table

    (digest,) = (one.digest for one in writer.artifacts if one.name == name)
    found: list[str] = read_table(writer.store, digest)[column].to_pylist()
    return found


def random_knowledge(seed: int) -> Knowledge:
    """Some documents, entities with few different surfaces, and levels of communities; a level may leave some out."""
    random = np.random.default_rng(seed)
    texts = {
        f"p{half}": [
            Text(
                f"{half}-{number}",
                "",
                "\n\n".join(f"text {seed} {number} {one}" for one in range(random.integers(1, 4))),
            )
            for number in range(random.integers(1, 5))
        ]
        for half in "01"
    }
    names = [f"name {number}" for number in range(random.integers(1, 30))]
    surfaces = {name: f"Name {random.integers(0, len(names))}" for name in names}
    count = sum(len(text.text.split("\n\n")) for held in texts.values() for text in held)
    said = []
    for _ in range(count):
        chosen = [names[one] for one in random.permutation(len(names))[: random.integers(1, 6)]]
        said.append(Said(chosen, [(a, "meets", b) for a in chosen for b in chosen if a != b and random.random() < 0.4]))
    knowledge = Knowledge(texts, said, surfaces)
    return Knowledge(texts, said, surfaces, list(_random_levels(random, len(knowledge.names))))


def _random_levels(random: np.random.Generator, below: int) -> Iterator[list[Group]]:
    for _ in range(random.integers(1, 4)):
        labels = random.integers(-1, max(below // 2, 1), below)  # -1: in no community
        if (labels < 0).all():
            labels[:] = 0
        groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels[labels >= 0])]
        yield [
            Group(members, f"Report {number}", "What it is about.", [("one", "why")] * (number % 3), number % 11)
            for number, members in enumerate(groups)
        ]
        below = len(groups)
