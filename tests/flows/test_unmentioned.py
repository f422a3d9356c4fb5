"""Entities that passages tell of and nothing mentions: the graphs and their readers are what they are without them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.diff import diff
from indexmill.families.tri_graph.graph import matrices_of
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import entity_id
from tests.corpora import documents, write_corpus
from tests.flows.children import SMALL_TREE, build, settings
from tests.llm_rules import texts_of
from tests.llm_server import CANARY, LlmServer, default_answer

QUESTIONS = [
    "Who built the bridge of Vell?",
    "bridge",
    "What of Ada Marl and the lamp?",
    "Countess of Orrin",
    "nothing",
]
METHODS = ("dense", "bm25", "tri_graph", "zoom_graph", "lsh_tree", "fused")


def answer(chat: Mapping[str, Any]) -> str:
    """Extractions that name the bridge, which no recogniser by rules takes for a name."""
    told = default_answer(chat)
    if "units" in told and "bridge" in texts_of(chat)[-1]:
        told["entities"].append({"name": "bridge", "type": "work", "description": "It stands over a river."})
    return json.dumps(told)


@pytest.fixture(scope="module")
def store(memory: Path) -> Iterator[Path]:
    """A store whose second version tells of entities that are not mentioned."""
    with pytest.MonkeyPatch.context() as patch, LlmServer(answer=answer) as server:
        patch.setenv("OPENAI_API_KEY", CANARY)
        corpus = write_corpus(memory / "corpus.jsonl", documents(16, words=90))
        families = {**SMALL_TREE, "zoom_graph": {"entity_links": True, "threshold": 0.5}}
        llm = {"backend": "openai", "model": "m", "base_url": server.base_url}
        plain = settings(memory / "store", corpus, families=families, llm=llm)
        for resolve in ({}, {"description": {"enabled": True}}):
            build(plain | {"resolve": resolve})
        yield memory / "store"


def entity(snapshot: Snapshot, name: str) -> dict[str, Any]:
    (row,) = (row for row in snapshot.table("entities").to_pylist() if row["name"] == name)
    found: dict[str, Any] = row
    return found


def test_what_is_only_extracted_is_an_entity_without_mentions(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        bridge = entity(snapshot, "bridge")
        assert bridge["mentions"] == 0
        assert bridge["passages"] == bridge["documents"] == 16
        assert entity(snapshot, "ada marl")["mentions"] > 0
        keys = np.concatenate([snapshot.arrays(one.name)["entity_keys"] for one in snapshot.shards("names")])
        assert int(entity_id("bridge")[:16], 16) not in keys
        matrices = matrices_of(snapshot)
        row = snapshot.table("entities")["entity_id"].to_pylist().index(entity_id("bridge"))
        assert (matrices.strengths[row], matrices.spread(np.array([row]))[0]) == (0, 0)


@pytest.mark.parametrize("method", METHODS)
def test_hits_are_those_of_an_index_without_extraction(store: Path, method: str) -> None:
    with indexmill.open(store, version=1) as before, indexmill.open(store, version=2) as now:
        assert before.table("entities").num_rows < now.table("entities").num_rows
        for question in QUESTIONS:
            was, found = (one.retrieve(question, method=method, k=4) for one in (before, now))
            assert [(hit.kind, hit.id) for hit in found] == [(hit.kind, hit.id) for hit in was]
            assert np.allclose([hit.score for hit in found], [hit.score for hit in was], atol=1e-6)
        batch = now.retrieve_batch(QUESTIONS, method=method, k=4)
        assert batch == [now.retrieve(question, method=method, k=4) for question in QUESTIONS]


def test_a_name_that_is_handed_in_and_nothing_mentions_counts_for_nothing(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for method in ("tri_graph", "zoom_graph"):
            named = snapshot.retrieve_batch(["Who was it?"], method=method, k=4, names=[["bridge"]])
            assert named == snapshot.retrieve_batch(["Who was it?"], method=method, k=4)


def test_the_difference_counts_them(store: Path) -> None:
    found = diff(store, a=1, b=2)
    assert found.entities.added > 0
    assert found.entities.removed == 0
    assert found.documents.unchanged == 16
