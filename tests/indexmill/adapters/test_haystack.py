"""The component of Haystack, alone and in pipelines."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.core.errors import DeserializationError, PipelineConnectError, SerializationError
from haystack.core.serialization import component_from_dict, component_to_dict

import indexmill
from indexmill import BadInput, Snapshot, SnapshotNotFound, StoreError
from indexmill.adapters.haystack import IndexmillRetriever
from tests.indexmill.adapters.conftest import Slow

BM25 = {"method": "bm25"}
MODULE = "indexmill.adapters.haystack"


def ids(found: dict[str, list[Document]]) -> list[str]:
    return [one.meta["document_ids"][0] for one in found["documents"]]


def test_a_document_can_be_cited(opened: Snapshot) -> None:
    (found,) = IndexmillRetriever(opened, options=BM25).run("the bridge of old", top_k=1)["documents"]
    (hit,) = opened.retrieve("the bridge of old", method="bm25", k=1)
    assert (found.id, found.content, found.score) == (hit.id, hit.text, hit.score)
    assert (found.meta["title"], found.meta["url"]) == ("Old bridge", "https://bridges.example/old")
    assert (found.meta["version"], found.meta["year"]) == (1, 1900)
    assert Document.from_dict(found.to_dict()) == found


def test_documents_are_those_that_the_principals_may_read(guarded: Snapshot) -> None:
    staff = {**BM25, "principals": ["staff"]}
    assert set(ids(IndexmillRetriever(guarded, options=BM25).run("bridge"))) == {"all"}
    retriever = IndexmillRetriever(guarded, options=staff)
    assert set(ids(retriever.run("bridge"))) == {"all", "staff"}
    assert set(ids(asyncio.run(retriever.run_async("bridge")))) == {"all", "staff"}
    assert set(ids(retriever.run("bridge", options={"principals": ["board"]}))) == {"all", "board"}
    filters = {"field": "meta.groups", "operator": "==", "value": "staff"}
    assert ids(retriever.run("bridge", filters=filters)) == ["staff"]
    assert ids(retriever.run("bridge", filters=filters, options={"principals": ["staff", "board"]})) == ["staff"]
    saved = component_to_dict(IndexmillRetriever(str(guarded.path), options=staff), "retriever")
    again = component_from_dict(IndexmillRetriever, saved, "retriever")
    assert set(ids(again.run("bridge"))) == {"all", "staff"}
    again.close()


def pipeline_of(retriever: IndexmillRetriever) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    template = "{% for one in documents %}{{ one.meta.title }}: {{ one.content }}{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents"]))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def test_a_pipeline_opens_the_store_and_closes_it(store: Path) -> None:
    retriever = IndexmillRetriever(store, top_k=1, options=BM25)
    pipeline = pipeline_of(retriever)
    question = {"retriever": {"query": "the bridge of old"}}
    for _ in range(2):
        assert pipeline.run(question)["prompt"]["prompt"] == "Old bridge: The bridge of old."
        index = retriever._index
        assert index is not None
        pipeline.close()
        with pytest.raises(StoreError, match="closed"):
            index.retrieve("x", method="bm25")
    assert asyncio.run(pipeline.run_async(question))["prompt"]["prompt"] == "Old bridge: The bridge of old."
    pipeline.close()


def test_an_opened_index_is_left_to_its_owner(opened: Snapshot) -> None:
    pipeline = pipeline_of(IndexmillRetriever(opened, options=BM25))
    pipeline.run({"retriever": {"query": "bridge", "top_k": 1}})
    pipeline.close()
    assert opened.retrieve("bridge", method="bm25")


def test_a_pipeline_is_saved_and_loaded(store: Path) -> None:
    options = {**BM25, "where": {"type": {"!=": ["draft"]}, "year": {">=": 2000}}}
    retriever = IndexmillRetriever(str(store), 3, options, {"version": 1, "processes": 1})
    text = pipeline_of(retriever).dumps()
    with pytest.raises(DeserializationError, match="allowlist"):
        Pipeline.loads(text)
    loaded = Pipeline.loads(text, allowed_modules=[MODULE])
    assert loaded.dumps() == text
    data = component_to_dict(retriever, "retriever")
    again = component_from_dict(IndexmillRetriever, data, "retriever")
    assert component_to_dict(again, "retriever") == data
    assert data["init_parameters"]["index"] == str(store)


def test_a_saved_pipeline_finds_the_same(store: Path) -> None:
    retriever = IndexmillRetriever(store, 1, BM25, {"version": 1})
    question = {"retriever": {"query": "the bridge of old"}}
    pipeline = pipeline_of(retriever)
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=[MODULE])
    assert loaded.run(question) == pipeline.run(question)
    pipeline.close()
    loaded.close()


def test_what_cannot_be_saved_is_refused(opened: Snapshot, store: Path) -> None:
    with pytest.raises(SerializationError, match="give IndexmillRetriever the path of its store"):
        IndexmillRetriever(opened).to_dict()
    with pytest.raises(SerializationError, match="not JSON serializable"):
        IndexmillRetriever(store, options={"rerank": object()}).to_dict()


def test_the_pipeline_checks_what_it_is_connected_to(opened: Snapshot) -> None:
    @component
    class Counts:
        @component.output_types(count=int)
        def run(self, texts: list[str]) -> dict[str, int]:
            return {"count": len(texts)}

    pipeline = Pipeline()
    pipeline.add_component("retriever", IndexmillRetriever(opened))
    pipeline.add_component("counts", Counts())
    with pytest.raises(PipelineConnectError):
        pipeline.connect("retriever.documents", "counts.texts")
    with pytest.raises(ValueError, match="query"):
        pipeline.run({"retriever": {}})


def test_a_component_follows_a_store(store: Path) -> None:
    opening = {"poll": None, "methods": ["bm25"]}
    retriever = IndexmillRetriever(store, options=BM25, opening=opening, follow=True)
    assert ids(retriever.run("the bridge of old"))[0] == "old"
    assert isinstance(retriever._index, indexmill.Follower)
    retriever.close()


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"field": "meta.year", "operator": "==", "value": 1900}, {"old"}),
        ({"field": "year", "operator": "!=", "value": 1900}, {"new", "bridge"}),
        ({"field": "meta.lang", "operator": "in", "value": ["en", "de"]}, {"old"}),
        ({"field": "meta.lang", "operator": "not in", "value": ["en"]}, {"new", "bridge"}),
        (
            {
                "operator": "AND",
                "conditions": [
                    {"field": "meta.year", "operator": ">", "value": 1800},
                    {"field": "meta.year", "operator": ">=", "value": 1900},
                    {
                        "operator": "AND",
                        "conditions": [
                            {"field": "meta.year", "operator": "<", "value": 2000},
                            {"field": "meta.year", "operator": "<=", "value": 1950},
                        ],
                    },
                ],
            },
            {"old"},
        ),
        ({}, {"old", "new", "bridge"}),
        (None, {"old", "new", "bridge"}),
    ],
)
def test_filters_of_haystack(opened: Snapshot, filters: dict[str, Any] | None, found: set[str]) -> None:
    retriever = IndexmillRetriever(opened, 10, BM25)
    assert set(ids(retriever.run("bridge", filters))) == found


def test_filters_and_where_both_hold(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(opened, 10, {**BM25, "where": {"year": {">=": 1900}}})
    assert set(ids(retriever.run("bridge"))) == {"old", "new"}
    lang = {"field": "meta.lang", "operator": "==", "value": "en"}
    assert ids(retriever.run("bridge", lang)) == ["old"]
    assert ids(retriever.run("bridge", lang, options={"where": {"year": 2024}})) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"operator": "OR", "conditions": [{"field": "year", "operator": "==", "value": 1900}]},
        {"operator": "NOT", "conditions": [{"field": "year", "operator": "==", "value": 1900}]},
        {"field": "year", "operator": "like", "value": "19"},
        {"field": "year", "operator": "==", "value": [1900]},
        {"field": "year", "operator": "in", "value": 1900},
        {"field": "year", "operator": "=="},
        {"field": 3, "operator": "==", "value": 1},
        {"operator": "AND", "conditions": {"field": "year", "operator": "==", "value": 1900}},
        {"operator": "AND", "conditions": [{"year": 1900}]},
        {"year": 1900},
        {"field": "meta.year", "operator": "==", "value": None},
        {"field": "meta.nothing", "operator": "==", "value": 1},
    ],
)
def test_filters_that_where_cannot_say_are_refused(opened: Snapshot, filters: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        IndexmillRetriever(opened, options=BM25).run("bridge", filters)


def test_the_event_loop_goes_on_while_it_retrieves(slow: Slow) -> None:
    retriever = IndexmillRetriever(slow)
    assert [one.content for one in slow.while_it_answers(lambda: retriever.run_async("x"))["documents"]] == ["x"]


def test_mistakes_are_refused_where_they_are_made(opened: Snapshot, store: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="metod: there is no such setting; did you mean method"):
        IndexmillRetriever(store, options={"metod": "bm25"})
    with pytest.raises(BadInput, match="poll: there is no such setting"):
        IndexmillRetriever(store, opening={"poll": 30})
    with pytest.raises(BadInput, match="this index is already open"):
        IndexmillRetriever(opened, opening={"version": 1})
    with pytest.raises(BadInput, match="expected an opened index"):
        IndexmillRetriever(3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="k is 0"):
        IndexmillRetriever(opened, options=BM25).run("bridge", top_k=0)
    with pytest.raises(SnapshotNotFound):
        IndexmillRetriever(tmp_path / "nothing").warm_up()
    dated = IndexmillRetriever(store, options={"where": {"date": datetime.date(2024, 1, 1)}})
    with pytest.raises(SerializationError, match="date"):
        dated.to_dict()
