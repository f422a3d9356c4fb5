"""What a reader may not read is compared with no question: other vectors in its place change no bit of a hit.

The index over communities is left as it is: the way in which it is searched depends on all vectors in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill import UNRESTRICTED
from indexmill.families.heterograph.nodes import heterograph_of
from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.families.zoom_graph.graph import Scope
from indexmill.families.zoom_graph.retriever import open_zoom_graph
from indexmill.families.zoom_graph.walk import CsrBlock, Shared
from indexmill.retrieve.consecutive import Consecutive
from indexmill.retrieve.entity_names import name_vectors_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Vectors
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import NameIndex
from tests.indexmill.rights.world import word

READER = ["half 1"]
QUESTIONS = (
    "Who built Marrow Bridge with Ada Marl?",
    "Did Otto Brand or Ada Marl visit the River Ane?",
    "marrow bridge is cold and long",
    f"Who is {word(3, 'per').capitalize()} Venn of {word(4, 'pla').capitalize()} Hall?",
)


def hidden(snapshot: Snapshot) -> dict[str, np.ndarray]:
    """By pack and array, a mask of the rows that the reader may not read, or that others shaped."""
    passages = snapshot._masks().readable(frozenset(READER))
    documents = snapshot.readable_documents(READER)
    assert passages is not None
    assert documents is not None
    readable = set(np.array(passages_of(snapshot).ids(np.arange(len(passages))))[passages].tolist())

    def of_table(name: str) -> np.ndarray:
        return np.array([one not in readable for one in snapshot.table(name, ["passage_id"])["passage_id"].to_pylist()])

    graph = heterograph_of(snapshot).graph
    allowed = graph.allowed(passages)
    by_kind = {}
    for kind in "AH":
        rows = heterograph_of(snapshot)._rows[graph.rows(kind)]
        by_kind[kind] = np.zeros(len(rows), np.bool_)
        by_kind[kind][rows] = ~allowed[graph.rows(kind)]
    tree = summaries_of(snapshot).tree
    mentions = snapshot.table("mentions", ["passage_id", "entity_id"]).to_pylist()
    named = NameIndex.keys(sorted({one["entity_id"] for one in mentions if one["passage_id"] in readable}))
    return {
        "vectors/passages": ~passages,
        "vectors/sentences": of_table("sentences"),
        "titles/vectors": ~documents,
        "unit_vectors/vectors": of_table("units"),
        "attribute_vectors/vectors": by_kind["A"],
        "element_vectors/vectors": by_kind["H"],
        "summary_vectors/vectors": ~tree.allowed_above(passages)[tree.leaves :],
        "names/vectors": ~np.isin(name_vectors_of(snapshot)[1], named),
        "document_vectors/vectors": ~documents,
    }


def others(vectors: Vectors, rows: np.ndarray) -> Vectors:
    """The same vectors, but in these rows every other number has another sign."""
    found = np.array(vectors)
    found[rows, ::2] *= -1
    return found


@pytest.fixture(scope="module")
def disturbed(store: Path, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Version 1 with other vectors of what is hidden."""
    masks = hidden(snapshot)
    assert all(mask.any() and not mask.all() for mask in masks.values()), {k: v.tolist() for k, v in masks.items()}
    with indexmill.open(store, version=1) as opened:
        vectors = opened.vectors

        def changed(pack: str, name: str, *more: Any) -> Consecutive:
            held = vectors(pack, name, *more)
            mask = masks.get(f"{pack}/{name}")
            if mask is None:
                return held
            cuts = held.starts
            assert cuts[-1] == len(mask)
            arrays = [others(one, mask[low:high]) for one, low, high in zip(held, cuts, cuts[1:], strict=False)]
            return Consecutive([len(array) for array in arrays], arrays.__getitem__)

        opened.vectors = changed  # type: ignore[method-assign,assignment]
        yield opened


def test_documents_are_walked_over_without_hidden_ones_and_names_that_only_these_have(snapshot: Snapshot) -> None:
    graph, documents = open_zoom_graph(snapshot), snapshot.readable_documents(READER)
    assert documents is not None
    contents, count = graph.blocks.contents, len(graph.spread)
    alike = [np.delete(np.arange(count), row) for row in range(count)]  # every name is linked to all others
    links = CsrBlock(np.arange(count + 1) * (count - 1), np.concatenate(alike), np.ones(count * (count - 1)))
    blocks = replace(
        graph.blocks, entities=lambda: links, assembled=lambda _, make: make()
    )  # the snapshot keeps its own
    graph = replace(graph, blocks=blocks)
    names = np.zeros(len(graph.spread), np.bool_)
    names[contents.indices[documents[contents.owners()]]] = True
    assert 0 < np.count_nonzero(names) < np.count_nonzero(graph.spread)
    may = np.concatenate([documents, names])

    def ends(matrix: Shared) -> np.ndarray:
        return np.unique([np.arange(len(may)).repeat(np.diff(matrix.indptr)), matrix.indices])

    assert may[ends(Scope.of(graph, snapshot._masks().readable(frozenset(READER))).matrix)].all()
    whole = ends(graph.matrix)
    assert not may[whole[whole < len(documents)]].all()
    assert not may[whole[whole >= len(documents)]].all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["bm25", "dense", "tri_graph", "zoom_graph", "lsh_tree", "community_tree", "heterograph", "fused"]
)
def test_vectors_of_what_is_hidden_move_nothing(snapshot: Snapshot, disturbed: Snapshot, method: str) -> None:
    for k in (3, 100):
        for more in ({}, {"where": {"year": {">": 2003}}}):
            given: dict[str, Any] = {"method": method, "k": k, "principals": READER, **more}
            assert disturbed.retrieve_batch(QUESTIONS, **given) == snapshot.retrieve_batch(QUESTIONS, **given)
    everything = [
        one.retrieve_batch(QUESTIONS, method=method, k=100, principals=UNRESTRICTED) for one in (snapshot, disturbed)
    ]
    assert everything[0] != everything[1] or method == "bm25"
