"""Small corpora and graphs that the tests of the heterograph share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from indexmill.text.canonical_names import entity_id
from schemas.tables import ENTITIES, EXTRACTED, MENTIONS, RELATIONS, UNIT_ENTITIES, UNITS, conform
from storage.folder import FolderStore
from storage.table_blobs import put_table
from tasks.families.heterograph.graph import (
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    high_level,
    node_id,
    texts,
)
from tasks.stages.extract.extraction_tables import Entity, Extraction, Relation, Unit, tables_of


@dataclass(frozen=True)
class Corpus:
    """The tables that a graph is made of."""

    passages: pa.Table
    units: pa.Table
    unit_entities: pa.Table
    relations: pa.Table

    def first(self, same_as: pa.Table | None = None) -> TypedGraph:
        """Units, relations and entities [G1]."""
        return graph_of(decomposed(self.units, self.unit_entities, self.relations, same_as))

    def shuffled(self, seed: int) -> Corpus:
        """The same tables with their rows in another order, and some twice."""
        draw = np.random.default_rng(seed)
        tables = (self.passages, self.units, self.unit_entities, self.relations)
        twice = [np.repeat(np.arange(len(table)), draw.integers(1, 3, len(table))) for table in tables]
        return Corpus(*(table.take(draw.permutation(rows)) for table, rows in zip(tables, twice, strict=True)))


def unit(text: str, *names: str, says: tuple[tuple[str, str, str], ...] = ()) -> Unit:
    """A unit that names entities, with relations (source, wording, target)."""
    return Unit(text, names, tuple(Relation(one, other, wording, wording, text) for one, wording, other in says))


def corpus_of(*units: list[Unit]) -> Corpus:
    """A corpus of one passage for each list of units: p0, p1, ..."""
    return corpus_with({f"p{number}": of_one for number, of_one in enumerate(units)})


def corpus_with(units: Mapping[str, list[Unit]]) -> Corpus:
    """A corpus of passages with these ids."""
    ids = list(units)
    found = []
    for of_one in units.values():
        names = sorted({name for one in of_one for name in one.entities})
        found.append(Extraction(tuple(Entity(name, name, "name", "") for name in names), tuple(of_one)))
    tables = tables_of(ids, found)
    passages = pa.table({"passage_id": pa.array(ids, pa.string())})
    return Corpus(passages, tables["units"], tables["unit_entities"], tables["relations"])


def prize() -> Corpus:
    """Three passages about a prize; the first and the last say the same of two entities in the same words."""
    return corpus_of(
        [
            unit(
                "Hinton was awarded the Nobel Prize for inventing backpropagation.",
                "hinton",
                "nobel prize",
                "backpropagation",
                says=(("hinton", "received", "nobel prize"), ("hinton", "invented", "backpropagation")),
            )
        ],
        [
            unit(
                "The Nobel Prize is awarded in Stockholm.",
                "nobel prize",
                "stockholm",
                says=(("nobel prize", "is awarded in", "stockholm"),),
            ),
            unit("Stockholm is cold.", "stockholm"),
        ],
        [unit("So Hinton received it.", "hinton", "nobel prize", says=(("hinton", "received", "nobel prize"),))],
    )


def ids(*names: str) -> list[str]:
    """The ids of entities."""
    return [entity_id(name) for name in names]


def attribute_table(*names: str) -> pa.Table:
    """What `attributes` takes, for the entities of some names."""
    entities = ids(*names)
    made = [node_id("attribute", one) for one in entities]
    return pa.table({"attribute_id": pa.array(made, pa.string()), "entity_id": pa.array(entities, pa.string())})


def element_table(*elements: str) -> pa.Table:
    """What `high_level` takes, for some ids of elements."""
    made = [node_id("overview", one) for one in elements]
    return pa.table({"element_id": pa.array(elements, pa.string()), "overview_id": pa.array(made, pa.string())})


def unit_vectors(rows: int, seed: int = 0, dimension: int = 8) -> np.ndarray:
    """Vectors (rows, dimension) float32 of length one."""
    vectors = np.random.default_rng(seed).standard_normal((rows, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def pairs(graph: TypedGraph, kind: str) -> set[tuple[str, str]]:
    """The ids of the ends of the edges of a kind."""
    names = graph.ids.to_pylist()
    return {(names[source], names[target]) for source, target in graph.of(kind).tolist()}


NAMES = ("ada", "bell", "curie", "dirac", "euler", "fermi")


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Up to four passages with up to three units each, which name some of six entities and relate some of these."""
    passages = []
    for number in range(draw(st.integers(0, 4))):
        units = []
        for place in range(draw(st.integers(0, 3))):
            names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
            said = st.tuples(st.sampled_from(names), st.sampled_from(("met", "wrote to")), st.sampled_from(names))
            says = tuple(one for one in draw(st.lists(said, max_size=3)) if one[0] != one[2])
            units.append(unit(f"unit {number} {place}", *names, says=says))
        passages.append(units)
    return corpus_of(*passages)


@st.composite
def whole_graphs(draw: st.DrawFn) -> tuple[Corpus, list[Pieces]]:
    """A corpus and the pieces of a graph with nodes and edges of every kind."""
    corpus = draw(corpora())
    first = corpus.first()
    entities = first.ids_of("N").to_pylist()
    about = draw(st.lists(st.sampled_from(entities), unique=True)) if entities else []
    attribute_ids = [node_id("attribute", one) for one in about]
    table = pa.table({"attribute_id": pa.array(attribute_ids, pa.string()), "entity_id": pa.array(about, pa.string())})
    elements = [f"h{number}" for number in range(draw(st.integers(0, 3)))]
    low = [*first.ids_of("S").to_pylist(), *attribute_ids]
    high = [*low, *elements, *corpus.passages["passage_id"].to_pylist()]
    match = draw(st.lists(st.tuples(st.sampled_from(low), st.sampled_from(elements)))) if low and elements else []
    near = draw(st.lists(st.tuples(st.sampled_from(high), st.sampled_from(high)))) if high else []
    same = draw(st.lists(st.tuples(st.sampled_from(entities), st.sampled_from(entities)))) if entities else []
    pieces = [
        decomposed(corpus.units, corpus.unit_entities, corpus.relations),
        attributes(table),
        high_level(element_table(*elements)),
        texts(corpus.passages, corpus.units),
        *(
            Pieces({}, {kind: _sides([one for one in some if one[0] != one[1]])})
            for kind, some in (("match", match), ("near", near), ("same_as", same))
        ),
    ]
    return corpus, pieces


def _sides(some: list[tuple[str, str]]) -> tuple[pa.Array, pa.Array]:
    return pa.array([one for one, _ in some], pa.string()), pa.array([other for _, other in some], pa.string())


def put_corpus(
    store: FolderStore, corpus: Corpus, names: Sequence[str], shown: Mapping[str, str] | None = None, shards: int = 2
) -> dict[str, str]:
    """The digests of a corpus's extraction, and of its entities in so many shards.

    names: canonical, of all entities that a unit names, each of which is shown with its first letters in capitals
    unless `shown` says otherwise; each passage that names one in a unit mentions it in that form.
    """
    surfaces = {name: (shown or {}).get(name, name.title()) for name in names}
    by_id = {entity_id(name): name for name in names}
    passages = dict(zip(*(corpus.units[name].to_pylist() for name in ("unit_id", "passage_id")), strict=True))
    links = zip(*(corpus.unit_entities[name].to_pylist() for name in ("unit_id", "entity_id")), strict=True)
    mentions = [
        {"passage_id": passages[unit], "sentence": 0, "start": 0, "end": 1, "kind": "name"}
        | {"surface": surfaces[by_id[one]], "name": by_id[one], "entity_id": one}
        for unit, one in sorted(set(links))
    ]
    rows = [
        {"entity_id": one, "name": name, "surface": surfaces[name], "mentions": 1, "passages": 1, "documents": 1}
        for one, name in sorted(by_id.items())
    ]
    held = {
        "units/p": (corpus.units, UNITS),
        "unit_entities/p": (corpus.unit_entities, UNIT_ENTITIES),
        "relations/p": (corpus.relations, RELATIONS),
        "mentions/p": (pa.Table.from_pylist(mentions, MENTIONS), MENTIONS),
        "extracted/p": (EXTRACTED.empty_table(), EXTRACTED),
    }
    half = len(rows) // shards + 1
    for shard in range(shards):
        some = pa.Table.from_pylist(rows[shard * half : (shard + 1) * half], ENTITIES)
        held[f"entities/e{shard}"] = (some, ENTITIES)
    return {name: put_table(store, conform(table, schema))[0] for name, (table, schema) in held.items()}
