"""A small snapshot with a knowledge graph: what each passage tells, put together, and communities over the entities.

The tables are made as the stages make them, from `tasks.stages.extract.extraction_tables`; reports and vectors are not
needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexmill.text.canonical_names import entity_id
from tasks.stages.extract.extraction_tables import EXTRACTION, Entity, Extraction, Relation, Unit, tables_of
from tests.indexmill.small_communities import Group, Related, Thing, write_communities, write_described
from tests.indexmill.small_snapshot import SnapshotWriter, Text, read_written


@dataclass(frozen=True)
class Said:
    """What a passage tells: canonical names of its entities, and (source, wording, target) by names."""

    names: Sequence[str]
    relations: Sequence[tuple[str, str, str]] = ()


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
    told = _extracted(writer, knowledge)
    things = [
        Thing(
            knowledge.surfaces[name],
            f"all about {name}",
            [row for row, said in enumerate(knowledge.said) if name in said.names],
            name=name,
        )
        for name in knowledge.names
    ]
    place = {thing.id: number for number, thing in enumerate(things)}
    related = [
        Related(place[source], place[target], " ".join(sorted({text for _, text in held})), held[0][0], len(held))
        for (source, target), held in told.items()
    ]
    if knowledge.levels:
        write_communities(writer, things, knowledge.levels, related)
    else:
        write_described(writer, things, related)
    writer.publish()
    return writer


def _extracted(writer: SnapshotWriter, knowledge: Knowledge) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Write the tables of the extraction; the kind and description of each relation, by the ids of its ends."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    said = iter(knowledge.said)
    for label in knowledge.texts:
        ids = read_written(writer, f"passages/{label}")["passage_id"].to_pylist()
        made = tables_of(ids, [_extraction(next(said), knowledge) for _ in ids])
        for name, schema in EXTRACTION.items():
            writer.table(f"{name}/{label}", made[name], schema)
        for one in made["relations"].to_pylist():
            found.setdefault((one["source"], one["target"]), []).append((one["kind"], one["description"]))
    assert next(said, None) is None
    return found


def _extraction(said: Said, knowledge: Knowledge) -> Extraction:
    entities = tuple(Entity(name, knowledge.surfaces[name], "thing", f"{name} is told of") for name in said.names)
    relations = tuple(
        Relation(source, target, wording, wording, f"{source} {wording} {target}")
        for source, wording, target in said.relations
    )
    return Extraction(entities, (Unit("what it says", tuple(said.names), relations),))


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
            Group(
                f"Report {number}",
                "What it is about.",
                members,
                number % 11,
                findings=[("one", "why")] * (number % 3),
            )
            for number, members in enumerate(groups)
        ]
        below = len(groups)
