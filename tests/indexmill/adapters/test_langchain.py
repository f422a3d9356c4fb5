"""The retriever of LangChain: the framework's own tests for retrievers, and what they leave out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import TypeAdapter

import indexmill
from indexmill import BadInput, Snapshot
from indexmill.adapters.langchain import IndexmillRetriever
from tests.indexmill.adapters.conftest import Slow
from tests.indexmill.serve.serving import publish

QUESTION = "Who paid for the bridge?"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
class TestStandard(RetrieversIntegrationTests):
    """LangChain's standard tests."""

    @pytest.fixture(autouse=True)
    def _index(self, opened: Snapshot) -> None:
        self.index = opened

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return IndexmillRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self.index, "method": "bm25"}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


def test_a_document_can_be_cited(opened: Snapshot) -> None:
    (found,) = IndexmillRetriever(index=opened, k=1, method="bm25").invoke("the bridge of old")
    (hit,) = opened.retrieve("the bridge of old", method="bm25", k=1)
    assert (found.id, found.page_content) == (hit.id, hit.text)
    assert found.metadata["title"] == "Old bridge"
    assert found.metadata["url"] == "https://bridges.example/old"
    assert found.metadata["year"] == 1900
    assert found.metadata["span"] == [0, len(hit.text)]
    assert (found.metadata["version"], found.metadata["score"]) == (1, hit.score)


def test_options_of_the_retriever_and_of_a_question(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(index=opened, k=2, method="bm25", where={"year": {"exists": True}})
    assert {one.metadata["document_ids"][0] for one in retriever.invoke("bridge")} == {"old", "new"}
    assert [one.metadata["year"] for one in retriever.invoke("bridge", where={"year": 2024})] == [2024]
    asked = asyncio.run(retriever.ainvoke("bridge", where={"year": 2024}, k=1))
    assert [one.metadata["year"] for one in asked] == [2024]
    assert len(retriever.bind(k=1).invoke("bridge")) == 1
    assert [len(found) for found in retriever.batch(["bridge", "lamps", ""])] == [2, 0, 0]


def test_documents_are_those_that_the_principals_may_read(guarded: Snapshot) -> None:
    def found(retriever: IndexmillRetriever, **changes: Any) -> set[str]:
        return {one.page_content for one in retriever.invoke("bridge", **changes)}

    public, staff = IndexmillRetriever(index=guarded, method="bm25"), {"The bridge of all.", "The bridge of staff."}
    assert found(public) == {"The bridge of all."}
    assert found(public, principals=["staff"]) == staff
    retriever = IndexmillRetriever(index=guarded, method="bm25", principals=["staff"])
    assert found(retriever) == {one.page_content for one in asyncio.run(retriever.ainvoke("bridge"))} == staff
    assert "The bridge of board." in found(retriever, principals=["board"])


def test_a_retriever_that_is_configured_later_keeps_its_options(opened: Snapshot) -> None:
    retriever = IndexmillRetriever(index=opened, method="bm25", where={"year": 2024})
    flexible = retriever.configurable_fields(k=ConfigurableField(id="k"))
    assert [one.metadata["year"] for one in flexible.with_config(configurable={"k": 3}).invoke("bridge")] == [2024]
    assert TypeAdapter(IndexmillRetriever).validate_python(retriever) is retriever
    assert retriever.options == {"method": "bm25", "where": {"year": 2024}}


def test_it_is_a_link_of_a_chain(opened: Snapshot) -> None:
    cite = RunnableLambda(lambda found: [one.metadata["title"] for one in found])
    chain = IndexmillRetriever(index=opened, k=1, method="bm25") | cite
    assert chain.invoke("the bridge of old") == ["Old bridge"]
    assert asyncio.run(chain.ainvoke("the bridge of old")) == ["Old bridge"]


def test_the_event_loop_goes_on_while_it_retrieves(slow: Slow) -> None:
    retriever = IndexmillRetriever(index=slow)
    assert [one.page_content for one in slow.while_it_answers(lambda: retriever.ainvoke("x"))] == ["x"]


def test_documents_come_from_the_version_that_is_followed(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    with indexmill.follow(tmp_path / "store", poll=None, methods=["bm25"]) as index:
        retriever = IndexmillRetriever(index=index, k=1, method="bm25")
        assert retriever.invoke("This is the version")[0].metadata["version"] == 1
        publish(tmp_path / "store", 2)
        assert index.look()
        assert retriever.invoke("This is the version")[0].metadata["version"] == 2


def test_mistakes_are_refused_where_they_are_made(opened: Snapshot) -> None:
    with pytest.raises(BadInput, match="metod: there is no such setting; did you mean method"):
        IndexmillRetriever(index=opened, metod="bm25")
    with pytest.raises(BadInput, match="expected an opened index"):
        IndexmillRetriever(index="store")  # type: ignore[arg-type]
    retriever = IndexmillRetriever(index=opened, method="bm25")
    with pytest.raises(BadInput, match="k is 0"):
        retriever.invoke("x", k=0)
    with pytest.raises(BadInput, match="principal"):
        asyncio.run(retriever.ainvoke("x", principal=["staff"]))
