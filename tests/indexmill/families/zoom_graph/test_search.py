"""zoom_graph over a built snapshot: what it finds, whatever it is asked, and what its hits say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import indexmill
from flows.build_run import build_inline, run_build
from indexmill.evaluate.recall import evaluate, read_questions
from indexmill.families.zoom_graph import passages as zoom_passages
from indexmill.families.zoom_graph import walk as zoom_walk
from indexmill.families.zoom_graph.graph import Scope
from indexmill.families.zoom_graph.retriever import ZoomGraphReader, open_zoom_graph
from indexmill.families.zoom_graph.search import Zoomed, ZoomGraph
from indexmill.families.zoom_graph.start import question_links, similarities
from indexmill.retrieve.grid import SCALE
from indexmill.retrieve.residual_query import LEAST
from indexmill.retrieve.retrieval_method import QueryBatch
from indexmill.snapshot import Snapshot
from schemas.config import Configuration
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tests.corpora import documents, write_corpus
from tests.paths import SAMPLE

ODD = (
    "Who?",
    "What is the name of the thing that nobody has a name for?",
    "Zarathustra Quux and the Blorp of Nnnn",
    "東西南北はどこですか",
    "Где находится мост?",
    "\N{BRIDGE AT NIGHT}\N{BRIDGE AT NIGHT}",
    "bridge of Vell " * 700,
    "Ada Marl Bruno of Vell Esme Quill Fenna Rook Goran Stave Dario Penhale Quillon Vell Orrin Bay",
)


def retrieve(graph: ZoomGraph, vectors: np.ndarray, questions: list[str], k: int) -> list[Zoomed]:
    return [found for tile in graph.tiles(QueryBatch(questions, vectors), k) for found in tile]


def built(folder: Path, rows: dict[str, tuple[str, str]], **settings: object) -> Path:
    corpus = write_corpus(folder / "corpus.jsonl", rows)
    asked = {
        "store": folder / "store",
        "corpus": {"paths": [str(corpus)]},
        "embed": {"model": "hash"},
        "split": {"tokens": 48},
        "shards": {"document_tokens": 1_000, "entities": 64},
        **settings,
    }
    build_inline(Configuration.model_validate(asked), progress=Silent())
    return folder / "store"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    rows = documents(40, words=90)
    long = " ".join(text for _, text in documents(30, seed=5).values())
    rows["long"] = ("The Long Story of Vell", long)
    with indexmill.open(built(tmp_path_factory.mktemp("zoom"), rows)) as opened:
        yield opened


def questions(snapshot: Snapshot) -> list[str]:
    texts = snapshot.table("documents", ["title", "text"]).to_pylist()
    return [*ODD, *(f"Who met {row['title']}? {row['text'][:60]}" for row in texts[:20])]


@pytest.mark.slow
def test_the_sample_is_answered_better_than_by_dense_retrieval(tmp_path: Path) -> None:
    asked = {
        "store": tmp_path / "store",
        "corpus": {"paths": [str(SAMPLE / "corpus.jsonl")]},
        "embed": {"model": "hash"},
    }
    build_inline(Configuration.model_validate(asked), progress=Silent())
    with indexmill.open(tmp_path / "store") as snapshot:
        found = evaluate(snapshot, read_questions(SAMPLE / "questions.jsonl"), ["dense", "zoom_graph"]).methods
    assert found["zoom_graph"].recall[5] > found["dense"].recall[5]


def test_questions_that_follow_too_much_together_go_apart(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(snapshot)
    together = snapshot.retrieve_batch(asked, method="zoom_graph", k=7)
    counts: list[int] = []
    walk = zoom_walk.Walk.walk

    def counted(
        self: zoom_walk.Walk, links: zoom_walk.QuestionLinks, count: int, *setting: float
    ) -> zoom_walk.WalkResult:
        counts.append(count)
        return walk(self, links, count, *setting)  # type: ignore[arg-type]

    monkeypatch.setattr(zoom_walk.Walk, "walk", counted)
    monkeypatch.setattr(zoom_walk, "MOST_LINKS", 200)
    assert snapshot.retrieve_batch(asked, method="zoom_graph", k=7) == together
    assert 1 in counts
    assert max(counts) > 1


def test_an_encoder_whose_vectors_are_all_similar_links_the_same_entities_and_weighs_documents_alike(
    snapshot: Snapshot,
) -> None:
    graph = open_zoom_graph(snapshot).with_parameters(open_share=0.0, nearest_name=2.0)
    units = [shard / np.linalg.norm(shard, axis=1, keepdims=True) for shard in graph.sentences]
    plain = replace(graph, sentences=units, centre=None)
    asked = questions(snapshot)
    vectors = snapshot.encode(asked)

    def similar(vectors: np.ndarray) -> np.ndarray:
        """The same vectors with a part that all have in common: a cosine c becomes .7 + .3 c."""
        common = np.full((len(vectors), 1), np.sqrt(0.7))
        return np.concatenate([np.sqrt(0.3) * vectors, common], axis=1).astype(np.float32)

    def links_of(graph: ZoomGraph, vectors: np.ndarray) -> dict[tuple[int, int], float]:
        scope, batch = Scope.of(graph, None), QueryBatch(asked, vectors)
        named = graph.names.find(graph.links(batch), vectors)
        links = question_links(graph, scope, named, similarities(graph, scope, named))
        ends = zip(links.questions.tolist(), links.nodes.tolist(), links.weights.tolist(), strict=True)
        return {(asking, node): weight for asking, node, weight in ends}

    def linked(graph: ZoomGraph, vectors: np.ndarray) -> dict[tuple[int, int], float]:
        """The links to entities."""
        return {ends: weight for ends, weight in links_of(graph, vectors).items() if ends[1] >= len(graph.vectors)}

    shifted = replace(
        plain,
        sentences=[similar(shard) for shard in plain.sentences],
        vectors=similar(plain.vectors / np.float32(SCALE)) * np.float32(SCALE),
        names=replace(plain.names, name_vectors=[similar(shard) for shard in plain.names.name_vectors]),
    )
    expected = linked(plain, vectors)
    assert len(linked(shifted, similar(vectors))) > len(expected) > len(asked) - len(ODD)
    centred = replace(shifted, centre=similar(np.zeros((1, vectors.shape[1])))[0])
    assert linked(centred, similar(vectors)) == pytest.approx(expected, rel=1e-2)

    above = np.maximum(0.3 * vectors @ (plain.vectors / np.float32(SCALE)).T, LEAST)
    weights = links_of(centred.with_parameters(threshold=1.0), similar(vectors))
    documents = {ends: weight for ends, weight in weights.items() if ends[1] < len(graph.vectors)}
    assert len(documents) > len(asked)
    for asking in {asking for asking, _ in documents}:
        of_one = {node: weight for (question, node), weight in documents.items() if question == asking}
        relative = {node: (above[asking, node] / above[asking].max()) ** 4 for node in of_one}
        strongest = max(of_one.values())
        assert {node: weight / strongest for node, weight in of_one.items()} == pytest.approx(relative, rel=5e-2)


@pytest.mark.slow
def test_a_hit_carries_the_sentences_that_are_kept(snapshot: Snapshot) -> None:
    setting = open_zoom_graph(snapshot).parameters
    for hits in snapshot.retrieve_batch(questions(snapshot), method="zoom_graph", k=snapshot.manifest.corpus.passages):
        told = [hit.explanation for hit in hits if hit.explanation is not None]
        assert len(told) == len(hits)
        zoomed = {hit.document_ids for hit, one in zip(hits, told, strict=True) if one["sentences"]}
        assert len(zoomed) <= setting.documents
        for hit, one in zip(hits, told, strict=True):
            assert all(sentence["text"] in hit.text for sentence in one["sentences"])


def test_the_next_passage_of_a_document_follows_three_documents_later(snapshot: Snapshot) -> None:
    passages = snapshot.manifest.corpus.passages
    for hits in snapshot.retrieve_batch(questions(snapshot)[:12], method="zoom_graph", k=passages):
        documents = [hit.document_ids[0] for hit in hits]
        places = {document: place for place, document in enumerate(dict.fromkeys(documents))}
        seen: Counter[str] = Counter()
        keys = []
        for document in documents:
            keys.append((places[document] + 3 * seen[document], places[document]))
            seen[document] += 1
        assert keys == sorted(keys)
        assert max(seen.values()) > 4


@pytest.mark.slow
def test_pruning_keeps_the_share_that_is_asked_for_and_drops_no_document(snapshot: Snapshot) -> None:
    asked = questions(snapshot)
    vectors = snapshot.encode(asked)
    graph = open_zoom_graph(snapshot)
    passages = snapshot.manifest.corpus.passages
    less = graph.with_parameters(kept=0.3)
    for more, few in zip(
        retrieve(graph, vectors, asked, passages), retrieve(less, vectors, asked, passages), strict=True
    ):
        assert more.passages.tolist() == few.passages.tolist()
        if not more.dense:
            assert 0 < sum(map(len, few.sentences)) < sum(map(len, more.sentences))


@pytest.mark.slow
def test_what_is_not_allowed_is_not_found_and_not_walked_through(snapshot: Snapshot) -> None:
    reader = ZoomGraphReader(snapshot)
    asked = questions(snapshot)
    vectors = snapshot.encode(asked)
    ids = snapshot.table("passages", ["passage_id"]).column(0).to_pylist()
    allowed = np.random.default_rng(1).random(len(ids)) < 0.4
    found = reader.search(QueryBatch(asked, vectors, None, allowed), len(ids))
    may = {identity for identity, yes in zip(ids, allowed.tolist(), strict=True) if yes}
    assert all({hit.id for hit in hits} == may for hits in found)
    assert reader.search(QueryBatch(asked[:1], vectors[:1], None, allowed), len(ids)) == found[:1]
    everything = reader.search(QueryBatch(asked, vectors, None, np.ones(len(ids), dtype=np.bool_)), 5)
    assert everything == reader.search(QueryBatch(asked, vectors), 5)
    assert reader.search(QueryBatch(asked, vectors, None, np.zeros(len(ids), dtype=np.bool_)), 5) == [[] for _ in asked]


@pytest.mark.parametrize(
    "changes",
    [
        {"fine": False},
        {"entities": False},
        {"question_links": False},
        {"document_links": False},
        {"semantic_links": False},
        {"temporal_links": False},
        {"look_ahead": 2.0},
        {"scale": "links"},
        {"follow": 0.0},
        {"agreement": 0.0},
    ],
)
def test_every_part_can_be_left_out(snapshot: Snapshot, changes: dict[str, object]) -> None:
    graph = open_zoom_graph(snapshot).with_parameters(**changes)
    asked = questions(snapshot)
    for found in retrieve(graph, snapshot.encode(asked), asked, 6):
        assert len(set(found.passages.tolist())) == 6
        assert np.isfinite(found.scores).all()


@pytest.mark.slow
def test_entities_are_linked_where_the_settings_ask_for_it(tmp_path: Path) -> None:
    store = built(tmp_path, documents(30), families={"zoom_graph": {"entity_links": True, "threshold": 1.0, "cap": 4}})
    with indexmill.open(store) as snapshot:
        blocks = open_zoom_graph(snapshot).blocks
        counts = snapshot.manifest.families["zoom_graph"].counts
        assert counts["entity_links"] == len(blocks.entities().indices) / 2 > 0
        assert counts["document_links"] == len(blocks.documents().indices) / 2 > 0
        assert len(snapshot.retrieve("Who built the bridge of Vell?", method="zoom_graph", k=3)) == 3


def test_a_snapshot_without_documents_has_no_hits(tmp_path: Path) -> None:
    store = built(tmp_path, documents(3))
    corpus = write_corpus(tmp_path / "corpus.jsonl", {})
    asked = {"store": store, "corpus": {"paths": [str(corpus)]}, "embed": {"model": "hash"}}
    chosen = Configuration.model_validate(asked)
    run_build(chosen, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.corpus.documents == 0
        assert snapshot.retrieve("Who built the bridge?", method="zoom_graph", k=3) == []


def test_how_many_sentences_are_held_changes_nothing(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [f"Who met {row['title']}?" for row in snapshot.table("documents", ["title"]).to_pylist()[:12]]
    expected = snapshot.retrieve_batch(asked, method="zoom_graph", k=7)
    monkeypatch.setattr(zoom_passages, "MOST_SENTENCES", 5)
    assert snapshot.retrieve_batch(asked, method="zoom_graph", k=7) == expected
