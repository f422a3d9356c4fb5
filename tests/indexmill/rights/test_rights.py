"""What a reader may read of an index: documents of its groups, and nothing that any other document has said.

Every document of ``world`` holds words that no other has: canaries, which must not get out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import indexmill
from flows.export import export_snapshot
from indexmill import UNRESTRICTED, BadInput, NotFound
from indexmill.hits import Hit
from indexmill.models.llm import Completion, Request
from indexmill.retrieve.method_registry import METHODS
from indexmill.serve.whole_documents import document_of
from indexmill.snapshot import Snapshot
from storage.folder import open_folder
from tasks.core.report import Silent
from tests.indexmill.rights.world import (
    CANARIES,
    COUNT,
    DOCUMENTS,
    GROUPS,
    PUBLIC,
    SPELLINGS,
    group,
    ids,
    leaks,
    readable,
    word,
)

EVERY = 200
METHOD = pytest.mark.parametrize("method", sorted(METHODS))
QUESTIONS = (
    "Who built Marrow Bridge with Ada Marl?",
    "What does the River Ane lie by, and who visited Marrow Bridge?",
    "marrow bridge is cold and long",
    *(
        f"Who is {word(number, 'per').capitalize()} Venn of {word(number, 'pla').capitalize()} Hall?"
        for number in (0, 4)
    ),
    *(f"the {word(number, 'thi').capitalize()} Stone and a {word(number, 'raw')} lamp" for number in (3, 9, 12)),
    f"{word(7, 'tit').capitalize()} Hall, {word(8, 'per').capitalize()} Venn and Bruno Vell",
)
FEW = ["half 1"]
OTHERS = [group(number) for number in (0, 2, 7, 8)]
"""Who never write MARROW BRIDGE, which is how the name is shown."""


def said(hits: Sequence[Sequence[Hit]]) -> str:
    """All that hits say, as JSON."""
    return json.dumps([hit.to_dict() for found in hits for hit in found], ensure_ascii=False)


def of_documents(hits: Sequence[Hit]) -> list[tuple[str, float]]:
    """The passages among some hits, and what a single one says, with their scores."""
    return [(hit.id, hit.score) for hit in hits if hit.kind in ("passage", "text", "unit")]


# Retrieval


@pytest.mark.slow
@settings(max_examples=20)
@given(st.sets(st.sampled_from(GROUPS)), st.sampled_from(sorted(METHODS)))
@example(set(), "fused")
@example({"half 0"}, "community_tree")
@example({"half 1"}, "heterograph")
@example(set(OTHERS), "heterograph")
@example(set(OTHERS), "community_tree")
@example(set(GROUPS) - {group(0), "half 0"}, "lsh_tree")
def test_nothing_of_a_document_that_is_not_readable_gets_out(
    snapshot: Snapshot, principals: set[str], method: str
) -> None:
    may = readable(principals)
    hits = snapshot.retrieve_batch(QUESTIONS, method=method, k=EVERY, principals=principals)
    assert leaks(said(hits), may) == set()
    assert {one for found in hits for hit in found for one in hit.document_ids} <= set(ids(may))
    # Scores and order are those that a filter gives that leaves the same documents.
    filtered = snapshot.retrieve_batch(
        QUESTIONS, method=method, k=EVERY, where={"document_id": ids(may)}, principals=UNRESTRICTED
    )
    for own, other in zip(hits, filtered, strict=True):
        assert of_documents(own) == of_documents(other)
        assert {(hit.id, hit.score) for hit in own} <= {(hit.id, hit.score) for hit in other}
    few = snapshot.retrieve_batch(QUESTIONS, method=method, k=3, principals=principals)
    assert [found[:3] for found in hits] == few or method in ("community_tree", "heterograph", "lsh_tree")
    assert leaks(said(few), may) == set()


@METHOD
def test_without_limits_the_canaries_get_out(snapshot: Snapshot, method: str) -> None:
    """The test of before can fail: what it looks for is there."""
    hits = snapshot.retrieve_batch(QUESTIONS, method=method, k=EVERY, principals=UNRESTRICTED)
    out = leaks(said(hits), PUBLIC)
    assert {one[:3] for one in out} >= {"per", "pla", "thi", "raw", "idn", "tit"}
    assert "MARROW BRIDGE" in out
    if method not in ("heterograph",):  # whose hits have no metadata
        assert {one[:3] for one in out} >= {"key", "sub", "val", "src"}


def test_kinds_that_are_made_of_several_documents_are_found_where_all_of_them_may_be_read(snapshot: Snapshot) -> None:
    kinds: dict[str, set[str]] = {}
    for who, principals in (("all", UNRESTRICTED), ("most", [one for one in GROUPS if one != group(0)]), ("none", [])):
        for method in METHODS:
            for found in snapshot.retrieve_batch(QUESTIONS, method=method, k=EVERY, principals=principals):
                kinds.setdefault(who, set()).update(hit.kind for hit in found)
    derived = {"summary", "entity", "community", "attribute", "high-level", "relation"}
    assert kinds["all"] >= derived
    assert kinds["most"] == kinds["all"]  # nothing is hidden from them: they are in a half, too
    assert "summary" not in kinds["none"]


@METHOD
def test_rights_and_a_filter_both_hold(snapshot: Snapshot, method: str) -> None:
    where = {"year": {">=": 2002}}
    for principals in (FEW, OTHERS):
        found = snapshot.retrieve_batch(QUESTIONS, method=method, k=EVERY, where=where, principals=principals)
        may = {number for number in readable(principals) if number >= 2}
        assert {one for hits in found for hit in hits for one in hit.document_ids} <= set(ids(may))
        assert leaks(said(found), readable(principals)) == set()  # names may be spelled as they are outside the filter
        filtered = {"where": {"document_id": ids(may)}, "principals": UNRESTRICTED}
        both = snapshot.retrieve_batch(QUESTIONS, method=method, k=EVERY, **filtered)
        assert [of_documents(hits) for hits in found] == [of_documents(hits) for hits in both]


@METHOD
def test_a_question_is_linked_to_no_name_that_only_hidden_documents_have(snapshot: Snapshot, method: str) -> None:
    person = f"{word(0, 'per').capitalize()} Venn"
    hidden = [person, "Ada Marl Junior", f"Did {person} build Marrow Bridge?"]
    nowhere = ["Perqwhoeverx Venn", "Ada Marl Nobody", "Did Perqwhoeverx Venn build Marrow Bridge?"]
    given: dict[str, Any] = {"method": method, "k": EVERY, "names": [[person], [], [person], ["x"], [], ["x"]]}
    given |= {"vectors": np.tile(snapshot.encode(["bridge", "who", "who built the bridge"]), (2, 1))}  # of no name
    found = snapshot.retrieve_batch(hidden + nowhere, **given, principals=FEW, explain=method != "heterograph")
    assert found[:3] == found[3:]  # explanations of heterograph say by which of the question's names
    everything = snapshot.retrieve_batch(hidden + nowhere, **given, principals=UNRESTRICTED)
    assert all(one != other for one, other in zip(everything[:3], everything[3:], strict=True)) or method == "dense"


def test_names_are_those_that_a_readable_passage_writes(snapshot: Snapshot) -> None:
    def names(principals: Any) -> set[str]:
        found = snapshot.retrieve("Who built Marrow Bridge?", method="tri_graph", k=EVERY, principals=principals)
        entities = [one for hit in found for one in (hit.explanation or {})["entities"]]
        return {one["surface"] for one in entities if one["surface"].casefold() == "marrow bridge"}

    assert names(UNRESTRICTED) == names([group(4)]) == {"MARROW BRIDGE"}
    assert names([group(0)]) == names([]) == {"marrow bridge"}


# Who may read


def test_what_principals_may_be(snapshot: Snapshot) -> None:
    for wrong in ("half 1", 3, [3], [""], ["half 1", None], b"half 1", {"half 1": 1}):
        with pytest.raises(BadInput, match="principals="):
            snapshot.retrieve("bridge", method="bm25", principals=wrong)  # type: ignore[arg-type]
    given = (["half 1"], ("half 1",), {"half 1"}, frozenset({"half 1"}), ["half 1", "half 1", "no group"])
    expected = snapshot.retrieve(QUESTIONS[0], method="bm25", principals=FEW)
    for principals in given:
        assert snapshot.retrieve(QUESTIONS[0], method="bm25", principals=principals) == expected
    for nobody in (None, [], ["HALF 1"], ["half 1 "], ["half"]):
        hits = snapshot.retrieve(QUESTIONS[0], method="bm25", k=EVERY, principals=nobody)
        assert {one for hit in hits for one in hit.document_ids} == set(ids(PUBLIC))


def test_an_index_that_demands_groups_says_nothing_to_nobody(store: Path) -> None:
    with indexmill.open(store, version=2) as snapshot:
        assert snapshot.access is not None
        assert snapshot.access.required
        for nobody in (None, [], ["no group"]):
            for method in METHODS:
                assert snapshot.retrieve_batch(QUESTIONS, method=method, principals=nobody) == [[]] * len(QUESTIONS)
            assert snapshot.retrieve(QUESTIONS[0], where={"no such field": 1}, principals=nobody) == []
            answer = snapshot.answer(QUESTIONS[0], principals=nobody)
            assert (answer.text, answer.found, answer.hits) == ("Nothing was found.", False, ())
        found = snapshot.retrieve(QUESTIONS[0], k=EVERY, principals=FEW)
        assert {one for hit in found for one in hit.document_ids} == set(ids(readable(FEW) - set(PUBLIC)))


# Errors


@given(st.sets(st.sampled_from(GROUPS)), st.integers(0, COUNT - 1))
@settings(max_examples=15)
def test_an_error_about_a_field_is_the_same_for_a_hidden_and_for_no_field(
    snapshot: Snapshot, principals: set[str], number: int
) -> None:
    may = readable(principals)
    fields = (word(number, "key"), f"{word(number, 'key')}.{word(number, 'sub')}")
    for field in fields:
        where = {field: {"exists": True}}
        if number in may:
            hits = snapshot.retrieve("hall", method="dense", k=EVERY, where=where, principals=principals)
            assert {one for hit in hits for one in hit.document_ids} == {DOCUMENTS[number]["id"]}
            continue
        messages = []
        for asked in (field, "nothing"):
            with pytest.raises(BadInput) as refused:
                snapshot.retrieve("hall", method="dense", where={asked: {"exists": True}}, principals=principals)
            messages.append(str(refused.value).replace(repr(asked), "it"))
        assert messages[0] == messages[1]
        assert leaks(messages[0], may) == set()


def test_a_budget_too_small_counts_what_may_be_read(snapshot: Snapshot) -> None:
    def message(**given: Any) -> str:
        with pytest.raises(BadInput) as refused:
            snapshot.answer(QUESTIONS[0], method="bm25", k=EVERY, token_budget=1, **given)
        return str(refused.value)

    assert message(principals=FEW) == message(principals=UNRESTRICTED, where={"document_id": ids(readable(FEW))})
    assert message(principals=FEW) != message(principals=UNRESTRICTED)


# Answers


class Listener:
    """A model that keeps what it is sent, and says it again."""

    fingerprint: Mapping[str, object] = {"model": "listener"}

    def __init__(self) -> None:
        self.heard: list[str] = []

    def input_tokens(self, request: Request) -> int:
        return len(request.content)

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        self.heard.append(request.content)
        answer: dict[str, Any] = {"reasoning": "", "found": True, "answer": request.content[:2000]}
        if "points" in request.schema["properties"]:
            answer = {"points": [{"description": request.content[:500], "score": 50}]}
        return Completion(
            text=json.dumps(answer), model="listener", input_tokens=1, output_tokens=1, finish_reason="stop"
        )


@METHOD
def test_answers_are_made_of_what_may_be_read(snapshot: Snapshot, method: str) -> None:
    may, listener = readable(FEW), Listener()
    for llm in (None, listener):
        answers = snapshot.answer_batch(QUESTIONS, method=method, k=20, llm=llm, principals=FEW)
        asked = "".join(QUESTIONS)
        told = json.dumps([one.to_dict() for one in answers])
        if llm is not None:
            for question in QUESTIONS:
                told = told.replace(question, "")
        assert leaks(told, may) == set(), asked
        assert all(answer.hits for answer in answers) or method == "bm25"
    heard = "".join(listener.heard)
    for question in QUESTIONS:
        heard = heard.replace(question, "")
    assert heard
    assert leaks(heard, may) == set()
    everything = Listener()
    snapshot.answer_batch(QUESTIONS, method=method, k=20, llm=everything, principals=UNRESTRICTED)
    assert leaks("".join(everything.heard), may)


# Documents, helpers, exports


def test_a_hidden_document_is_as_absent_as_one_that_is_not_there(snapshot: Snapshot) -> None:
    def refusal(document: str) -> str:
        with pytest.raises(NotFound) as refused:
            document_of(snapshot, document, FEW)
        return str(refused.value).replace(repr(document), "it")

    hidden, nobody = DOCUMENTS[0]["id"], "idnqnobodyx"
    assert refusal(hidden) == refusal(nobody)
    assert document_of(snapshot, DOCUMENTS[7]["id"], FEW).title == DOCUMENTS[7]["title"]
    assert document_of(snapshot, DOCUMENTS[1]["id"]).title == DOCUMENTS[1]["title"]
    assert document_of(snapshot, hidden, UNRESTRICTED).title == DOCUMENTS[0]["title"]


@pytest.mark.slow
def test_helpers_keep_to_rights(snapshot: Snapshot) -> None:
    with indexmill.open(snapshot.path, version=1, processes=2) as helped:
        for principals in (FEW, OTHERS):
            given: dict[str, Any] = {"method": "heterograph", "k": 30, "principals": principals}
            found = helped.retrieve_batch(QUESTIONS, **given)
            assert found == snapshot.retrieve_batch(QUESTIONS, **given)
            assert leaks(said(found), readable(principals)) == set()


def test_an_index_that_is_followed_keeps_to_rights(snapshot: Snapshot, store: Path) -> None:
    """Version 2, in which documents without groups are for nobody."""
    may = readable(FEW) - set(PUBLIC)
    with indexmill.follow(store, poll=None, methods=["bm25"]) as index:
        question = QUESTIONS[0]
        assert index.retrieve(question, method="bm25", k=EVERY) == []
        assert index.answer(question, method="bm25").hits == ()
        found = [
            index.retrieve(question, method="bm25", k=EVERY, principals=FEW),
            *index.retrieve_batch([question], method="bm25", k=EVERY, principals=FEW),
            index.answer(question, method="bm25", k=EVERY, principals=FEW).hits,
            *(one.hits for one in index.answer_batch([question], method="bm25", k=EVERY, principals=FEW)),
        ]
        assert [{one for hit in hits for one in hit.document_ids} for hits in found] == [set(ids(may))] * 4
        assert leaks(said(found), may) == set()


def test_threads_that_ask_at_once_for_several_readers_get_what_each_may_read(snapshot: Snapshot) -> None:
    readers: list[Any] = [None, FEW, [group(0)], UNRESTRICTED] * 12
    expected = [snapshot.retrieve(QUESTIONS[0], method="bm25", k=EVERY, principals=one) for one in readers[:4]] * 12
    with ThreadPoolExecutor(16) as pool:
        ask = partial(snapshot.retrieve, QUESTIONS[0], method="bm25", k=EVERY)
        assert list(pool.map(lambda one: ask(principals=one), readers)) == expected


def test_an_exported_folder_keeps_to_rights(snapshot: Snapshot, store: Path, tmp_path: Path) -> None:
    export_snapshot(open_folder(store), 1, tmp_path / "out", progress=Silent())
    with indexmill.open(tmp_path / "out") as exported:
        assert exported.access == snapshot.access
        for principals in (None, FEW):
            (found,) = exported.retrieve_batch(QUESTIONS[:1], method="fused", k=EVERY, principals=principals)
            (expected,) = snapshot.retrieve_batch(QUESTIONS[:1], method="fused", k=EVERY, principals=principals)
            assert [(hit.id, hit.score, hit.explanation) for hit in found] == [
                (hit.id, hit.score, hit.explanation) for hit in expected
            ]


def test_masks_are_made_once_for_each_set_of_principals_and_few_are_kept(snapshot: Snapshot) -> None:
    masks = snapshot._masks()
    one = masks.readable(frozenset(FEW))
    assert one is masks.readable(frozenset(FEW))
    for number in range(500):
        masks.readable(frozenset({f"tenant {number}", "half 0"}))
    assert masks.readable.cache_info().currsize <= 64
    assert snapshot.readable_documents(UNRESTRICTED) is None
    assert snapshot.readable_documents([*GROUPS]) is None
    assert CANARIES.keys() >= {*SPELLINGS}
