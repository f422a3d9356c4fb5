"""The retriever of LlamaIndex."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, QueryBundle, TextNode

from indexmill import BadInput, Snapshot
from indexmill.adapters.llamaindex import IndexmillRetriever
from tests.indexmill.adapters.conftest import Slow


def test_a_node_can_be_cited(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(opened, k=1, method="bm25")
    (found,) = retriever.retrieve("the bridge of old")
    (hit,) = opened.retrieve("the bridge of old", method="bm25", k=1)
    assert (found.node_id, found.text, found.score) == (hit.id, hit.text, hit.score)
    assert isinstance(found.node, TextNode)
    assert (found.node.start_char_idx, found.node.end_char_idx) == hit.span
    assert found.node.ref_doc_id == "old"
    assert found.metadata["url"] == "https://bridges.example/old"
    assert found.metadata["version"] == 1
    shown = found.node.get_content(MetadataMode.LLM)
    assert "title: Old bridge" in shown
    assert "url: https://bridges.example/old" in shown
    assert "year: 1900" in shown
    assert "score" not in shown
    assert "document_ids" not in shown


def test_options_of_the_retriever(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(opened, k=2, method="bm25", where={"year": {">=": 2000}})
    assert [one.node.ref_doc_id for one in retriever.retrieve("bridge")] == ["new"]
    assert [one.node.ref_doc_id for one in asyncio.run(retriever.aretrieve(QueryBundle("bridge")))] == ["new"]
    assert retriever.retrieve("") == []


def test_nodes_are_those_that_the_principals_may_read(guarded: Snapshot) -> None:
    for principals, expected in ((None, {"all"}), (["staff"], {"all", "staff"}), ({"board"}, {"all", "board"})):
        retriever = IndexmillRetriever(guarded, method="bm25", principals=principals)
        assert {one.node.ref_doc_id for one in retriever.retrieve("bridge")} == expected
        assert {one.node.ref_doc_id for one in asyncio.run(retriever.aretrieve("bridge"))} == expected


def test_a_query_engine_answers_with_the_nodes_as_sources(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(opened, k=1, method="bm25")
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    answer = engine.query("the bridge of old")
    assert [one.node.ref_doc_id for one in answer.source_nodes] == ["old"]
    assert "The bridge of old." in str(answer)
    assert "title: Old bridge" in str(answer)


def test_the_event_loop_goes_on_while_it_retrieves(slow: Slow) -> None:
    retriever = IndexmillRetriever(slow)
    assert [one.text for one in slow.while_it_answers(lambda: retriever.aretrieve("x"))] == ["x"]


def test_mistakes_are_refused_where_they_are_made(opened: Snapshot) -> None:
    with pytest.raises(BadInput, match="similarity_top_k: there is no such setting"):
        IndexmillRetriever(opened, similarity_top_k=3)
    with pytest.raises(BadInput, match="expected an opened index"):
        IndexmillRetriever("store")  # type: ignore[arg-type]
