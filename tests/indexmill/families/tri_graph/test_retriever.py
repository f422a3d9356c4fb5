"""tri_graph over a snapshot: evidence across documents, and what its hits say for themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill import CorruptBlob
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.tri_graph.retriever import open_tri_graph
from indexmill.retrieve.directions import directions_of
from tests.indexmill.damage import changed
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import EMBEDDER, writer_of

QUESTIONS = [
    "Where was the clockmaker who paid for the Marrow Bridge born?",
    "Where does the Ilse rise?",
    "what is a lamp?",
    "Ada Venn",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tri_graph") / "store"
    writer = writer_of(path)
    writer.tri_graph(activation_threshold=0.05)
    writer.publish()
    return path


def test_hits_name_the_entities_that_led_to_them_and_the_sentence_that_bridged(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = snapshot.retrieve(QUESTIONS[0], method="tri_graph", k=5)
    born = next(hit for hit in hits if "born in Tallow" in hit.text)
    assert born.explanation is not None
    assert born.explanation["dense"] is False
    told = {entity["surface"]: entity for entity in born.explanation["entities"]}
    assert told["Ada Venn"]["hop"] == 1
    assert told["Ada Venn"]["reached_from"] == "Marrow Bridge"
    assert told["Ada Venn"]["sentence"] == "Ada Venn paid for the bridge."
    bridge = next(hit for hit in hits if hit.text.startswith("The Marrow Bridge"))
    assert bridge.explanation is not None
    named = next(one for one in bridge.explanation["entities"] if one["surface"] == "Marrow Bridge")
    assert (named["hop"], named["score"]) == (0, 1.0)
    assert named["sentence"] is named["reached_from"] is None


def test_a_question_without_a_known_name_gets_the_nearest_passages(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = snapshot.retrieve(QUESTIONS[2], method="tri_graph", k=3)
        dense = snapshot.retrieve(QUESTIONS[2], method="dense", k=3)
    assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in dense]
    assert [hit.explanation for hit in found] == [{"dense": True, "entities": []}] * 3


def test_methods_are_evaluated_side_by_side(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = evaluate(snapshot, [Question("1", QUESTIONS[0], ("bridge", "venn"))], ks=(4,))
    assert list(found.methods) == ["fused", "tri_graph", "dense"]
    assert found.methods["tri_graph"].recall == {4: 1.0}


def test_the_command_shows_the_explanation_when_asked(store: Path, run: Run) -> None:
    shown = run.text("query", QUESTIONS[0], "--store", store, "--explain")
    assert "- Ada Venn, score" in shown
    assert "reached from Marrow Bridge" in shown
    assert "“Ada Venn paid for the bridge.”" in shown
    assert "reached" not in run.text("query", QUESTIONS[0], "--store", store)


def test_names_may_have_vectors_for_some_entities_alone(store: Path, tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "some")
    writer.tri_graph(every_name=2)
    writer.publish()
    with indexmill.open(tmp_path / "some") as some, indexmill.open(store) as full:
        graph = open_tri_graph(some)
        assert graph.name_rows is not None
        assert sum(map(len, graph.name_vectors)) == len(graph.name_rows) < len(some.table("entities"))
        for vector, row in zip(np.concatenate(graph.name_vectors), graph.name_rows, strict=True):
            name = some.table("entities").column("name")[int(row)].as_py()
            assert vector.tobytes() == directions_of(EMBEDDER.encode([name])).tobytes()
        assert open_tri_graph(full).name_rows is None
        assert len(some.retrieve(QUESTIONS[0], k=3)) == 3


@pytest.mark.parametrize("array", ["contents.indptr", "contents.indices"])
@pytest.mark.parametrize("change", [None, lambda held: held[1:]])
def test_a_graph_that_does_not_fit_its_snapshot_is_corrupt(
    tmp_path: Path, array: str, change: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    writer = writer_of(tmp_path)
    writer.tri_graph()
    changed("mention_links/p1", array, change)(writer)
    writer.publish()
    with indexmill.open(tmp_path) as snapshot, pytest.raises(CorruptBlob, match="mention_links/p1"):
        snapshot.retrieve("Ada Venn", method="tri_graph")
