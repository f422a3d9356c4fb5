"""Hits as evidence, and the options of retrievals."""

from __future__ import annotations

import json
from typing import Any

import pytest

import indexmill
from indexmill import UNRESTRICTED, BadInput, Hit, Snapshot
from indexmill.adapters.retrieval import FrameworkDocument, IndexRetrieval, check_arguments


def hit(**fields: Any) -> Hit:
    given = {"kind": "passage", "id": "p1", "score": 0.5, "text": "x", "title": "T", "document_ids": ("d1",)}
    return Hit(**{**given, **fields})


def test_every_field_of_a_hit_that_is_known_is_in_the_metadata() -> None:
    full = hit(
        tokens=3,
        version=7,
        explanation={"words": ["x"]},
        source="https://a.example/1",
        span=(4, 5),
        metadata={"year": 1},
    )
    found = FrameworkDocument.of(full)
    assert (found.id, found.text, found.score) == ("p1", "x", 0.5)
    expected = {name: value for name, value in full.to_dict().items() if name not in ("id", "text", "metadata")}
    assert found.metadata == {name: value for name, value in expected.items() if value != []} | {"year": 1}
    assert found.metadata["url"] == "https://a.example/1"
    assert json.loads(json.dumps(found.metadata)) == found.metadata


def test_what_is_not_known_is_left_out() -> None:
    assert FrameworkDocument.of(hit()).metadata == {
        "kind": "passage",
        "score": 0.5,
        "title": "T",
        "document_ids": ["d1"],
    }


def test_a_document_s_own_field_is_kept_beside_a_field_of_the_hit_of_the_same_name() -> None:
    own = {"title": "Another", "version": "2.1", "metadata": {"a": 1}, "id": 3, "year": 2024}
    found = FrameworkDocument.of(hit(version=7, metadata=own)).metadata
    assert (found["title"], found["version"], found["year"]) == ("T", 7, 2024)
    assert found["metadata"] == {"title": "Another", "version": "2.1", "metadata": {"a": 1}, "id": 3}
    alike = FrameworkDocument.of(hit(metadata={"title": "T", "url": "https://a.example/"})).metadata
    assert "metadata" not in alike
    assert alike["url"] == "https://a.example/"


def test_a_field_that_the_hit_lacks_is_not_taken_from_the_document() -> None:
    found = FrameworkDocument.of(hit(metadata={"source": "feed 3", "url": "ftp://a.example"})).metadata
    assert "source" not in found
    assert "url" not in found
    assert found["metadata"] == {"source": "feed 3", "url": "ftp://a.example"}


def test_options_reach_the_retrieval_and_those_of_a_question_win(opened: Snapshot) -> None:
    retrieval = IndexRetrieval(opened, {"method": "bm25", "k": 3})
    hits = opened.retrieve("bridge", method="bm25", k=3)
    assert [(one.id, one.score) for one in retrieval.ask("bridge")] == [(one.id, one.score) for one in hits]
    assert len(retrieval.ask("bridge", k=1)) == 1
    assert {one.metadata["year"] for one in retrieval.ask("bridge", where={"year": {">=": 2000}})} == {2024}
    assert retrieval.ask("") == []


def test_a_retrieval_reads_as_its_principals(guarded: Snapshot) -> None:
    def found(*arguments: Any, **options: Any) -> set[str]:
        return {one.metadata["document_ids"][0] for one in IndexRetrieval(guarded, *arguments).ask("bridge", **options)}

    staff = {"method": "bm25", "principals": ["staff"]}
    assert found({"method": "bm25"}) == {"all"}
    assert found(staff) == {"all", "staff"}
    assert found(staff, principals=("board",)) == {"all", "board"}
    assert found(staff, principals=UNRESTRICTED) == {"all", "staff", "board"}


def test_explanations_are_made_if_they_are_asked_for(opened: Snapshot) -> None:
    retrieval = IndexRetrieval(opened, {"method": "bm25", "k": 1})
    assert "explanation" not in retrieval.ask("bridge")[0].metadata
    assert retrieval.ask("bridge", explain=True)[0].metadata["explanation"]


def test_a_wrong_option_is_refused_before_the_first_question(opened: Snapshot) -> None:
    with pytest.raises(BadInput, match="metod: there is no such setting; did you mean method"):
        IndexRetrieval(opened, {"metod": "bm25"})
    with pytest.raises(BadInput, match="question: there is no such setting"):
        IndexRetrieval(opened, {"question": "x"})
    with pytest.raises(BadInput, match="vectors"):
        IndexRetrieval(opened, {"method": "bm25"}).ask("x", vectors=[])
    check_arguments(indexmill.open, ["alias", "cache"], "path")


@pytest.mark.parametrize("index", ["store", None, 3])
def test_an_index_that_is_not_opened_is_refused(index: Any) -> None:
    with pytest.raises(BadInput, match="expected an opened index"):
        IndexRetrieval(index, {})
