"""Makes a heterograph step by step and prints a digest of all that was made: run as a process for each hash seed."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tasks.families.heterograph.communities import communities_of, community_rows, grouped
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
from tasks.families.heterograph.importance import important
from tasks.families.heterograph.names import name_words
from tasks.families.heterograph.reading import about_communities, about_entities, capped, made_of
from tasks.families.heterograph.vector_edges import clusters_of, matched, near_pairs
from tests.tasks.families.heterograph.graphs import Corpus, corpus_of, unit, unit_vectors

CAPS = {"S": 4, "R": 3, "A": 2}


def corpus() -> Corpus:
    """60 passages of three units each, which name up to five of 200 entities, the first ones most."""
    draw = np.random.default_rng(0)
    passages = []
    for number in range(60):
        units = []
        for place in range(3):
            names = [f"name {row}" for row in np.unique((200 * draw.random(5) ** 3).astype(int))]
            says = tuple((one, "leads to", other) for one, other in pairwise(names))
            units.append(unit(f"unit {number} {place}", *names, says=says))
        passages.append(units)
    return corpus_of(*passages)


def text_table(ids: pa.Array) -> pa.Table:
    return pa.table({"node_id": ids, "text": ids, "digest": ids, "tokens": pa.array(np.full(len(ids), 20))})


def vectors(ids: list[str]) -> np.ndarray:
    """A unit vector that is a function of each id."""
    found = [unit_vectors(1, int(hashlib.sha256(one.encode()).hexdigest()[:8], 16))[0] for one in ids]
    return np.array(found, dtype=np.float32).reshape(-1, 8)


def whole(held: Corpus) -> tuple[TypedGraph, list[object]]:
    """The graph of all seven kinds, and what it was made from on the way."""
    first = decomposed(held.units, held.unit_entities, held.relations)
    g1 = graph_of(first)
    chosen = important(g1).chosen
    about = capped(about_entities(g1, chosen), text_table(g1.ids), CAPS, 100)
    entities = made_of(about, {})["owner"]
    attribute_ids = pa.array([node_id("attribute", one) for one in entities.to_pylist()], pa.string())
    second = attributes(pa.table({"attribute_id": attribute_ids, "entity_id": entities}))
    g2 = graph_of(first, second)
    groups = grouped(g2)
    made = made_of(capped(about_communities(g2, groups), text_table(g2.ids), CAPS, 100), {})
    elements = pa.array([node_id("high_level", one, "0") for one in made["made_of"].to_pylist()], pa.string())
    overviews = pa.array([node_id("overview", one) for one in elements.to_pylist()], pa.string())
    third = high_level(pa.table({"element_id": elements, "overview_id": overviews}))
    g4 = graph_of(first, second, third, texts(held.passages, held.units))

    low = pa.concat_arrays([g4.ids_of("S"), g4.ids_of("A")])
    every = pa.concat_arrays([low, elements])
    communities = communities_of(groups)
    own = np.concatenate(
        [community_rows(groups, low, communities), np.searchsorted(communities.to_pylist(), made["owner"].to_pylist())]
    )
    clusters = clusters_of(every.to_pylist(), vectors(every.to_pylist()))
    pairs = matched(clusters, own, np.arange(len(every)) >= len(low))
    match = Pieces({}, {"match": (every.take(pairs[:, 0]), every.take(pairs[:, 1]))})
    embedded = g4.ids.slice(0, int(g4.offsets[4]))
    pairs = near_pairs(embedded.to_pylist(), vectors(embedded.to_pylist()), 5)
    near = Pieces({}, {"near": (embedded.take(pairs[:, 0]), embedded.take(pairs[:, 1]))})
    graph = graph_of(first, second, third, texts(held.passages, held.units), match, near)
    return graph, [about, groups, made, clusters]


def digest(held: Corpus) -> str:
    """The digest of all that is made of a corpus."""
    graph, others = whole(held)
    words = name_words(pa.array([f"name {row}" for row in range(len(graph.ids_of("N")))]))
    hashed = hashlib.sha256()
    for one in (*graph.tables(), *others, graph.links.indices, graph.links.indptr, words.keys, words.words):
        hashed.update(repr(one.to_pylist() if isinstance(one, pa.Table) else one.tolist()).encode())
    return hashed.hexdigest()


if __name__ == "__main__":
    print(digest(corpus()))
