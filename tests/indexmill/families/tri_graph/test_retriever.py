"""tri_graph over a snapshot: evidence across documents, and what its hits say for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill import ConfigurationError, CorruptBlob
from indexmill.command import main
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.tri_graph.retriever import MATRICES, open_tri_graph
from indexmill.store.packs import open_pack
from tests.indexmill.small_snapshot import EMBEDDER, WORLD, SnapshotWriter, writer_of

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
    named = bridge.explanation["entities"][0]
    assert (named["surface"], named["hop"], named["score"]) == ("Marrow Bridge", 0, 1.0)
    assert named["sentence"] is named["reached_from"] is None


def test_a_question_without_a_known_name_gets_the_nearest_passages(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = snapshot.retrieve(QUESTIONS[2], method="tri_graph", k=3)
        dense = snapshot.retrieve(QUESTIONS[2], method="dense", k=3)
    assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in dense]
    assert [hit.explanation for hit in found] == [{"dense": True, "entities": []}] * 3


def test_a_batch_gives_each_question_what_it_gets_alone(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        alone = [snapshot.retrieve(question, method="tri_graph", k=4) for question in QUESTIONS]
        assert snapshot.retrieve_batch(QUESTIONS, method="tri_graph", k=4) == alone
        assert snapshot.retrieve_batch(QUESTIONS[::-1], method="tri_graph", k=4)[::-1] == alone
        bare = snapshot.retrieve_batch(QUESTIONS, method="tri_graph", k=4, explain=False)
        assert [[hit.id for hit in hits] for hits in bare] == [[hit.id for hit in hits] for hits in alone]
        assert {hit.explanation for hits in bare for hit in hits} == {None}


def test_methods_are_evaluated_side_by_side(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = evaluate(snapshot, [Question("1", QUESTIONS[0], ("bridge", "venn"))], ks=(4,))
    assert list(found.methods) == ["fused", "tri_graph", "dense"]
    assert found.methods["tri_graph"].recall == {4: 1.0}


def test_the_command_shows_the_explanation_when_asked(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", QUESTIONS[0], "--store", str(store), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "- Ada Venn, score" in shown
    assert "reached from Marrow Bridge" in shown
    assert "“Ada Venn paid for the bridge.”" in shown
    assert main(["query", QUESTIONS[0], "--store", str(store)]) == 0
    assert "reached" not in capsys.readouterr().out


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
            assert vector.tobytes() == EMBEDDER.encode([name])[0].tobytes()
        assert open_tri_graph(full).name_rows is None
        assert len(some.retrieve(QUESTIONS[0], k=3)) == 3


def test_parameters_of_a_newer_family_are_named(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    writer.shard("p", WORLD["p0"])
    writer.tri_graph(colour="blue")
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(ConfigurationError, match="colour"):
        snapshot.retrieve("Ada Venn")


@pytest.mark.parametrize("change", ["missing", "short", "other"])
def test_a_graph_that_does_not_fit_its_snapshot_is_corrupt(tmp_path: Path, change: str) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    writer.shard("p", WORLD["p0"])
    writer.tri_graph()
    artifact = writer.artifacts.pop()
    assert artifact.name == MATRICES
    arrays = {name: np.array(array) for name, array in open_pack(writer.store.open_local(artifact.digest)).items()}
    if change == "missing":
        del arrays["contents.indices"]
    elif change == "short":
        arrays["contents.indices"] = arrays["contents.indices"][:-1]
    else:
        arrays["contents.indptr"] = arrays["contents.indptr"][1:]
    writer.arrays(MATRICES, arrays)
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="tri_graph/matrices"):
        snapshot.retrieve("Ada Venn")
