"""Update equals rebuild: whatever nights a store has seen, its snapshot is the one that an empty store would get."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexmill
from flows.run import Outcome, run_build
from indexmill.snapshot import Snapshot
from indexmill.text.names import NameIndex, canonical_name, entity_id
from indexmill.text.terms import term_keys
from schemas.config import Configuration
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tests import corpora
from tests.corpora import Documents, write_corpus
from tests.flows import children

_NIGHT = st.tuples(
    st.sampled_from(["add", "add many", "edit", "title", "delete", "delete most", "rename", "copy", "return"]),
    st.integers(min_value=0, max_value=10_000),
)
_NIGHTS = st.lists(st.lists(_NIGHT, min_size=1, max_size=4), min_size=1, max_size=4)


DESCRIBED = {
    "description": {"enabled": True, "most_pieces": 3, "input_tokens": 200},
    "same_as": {"cosine": 0.6, "likeness": 0.7},
}


class Corpus:
    """Documents that come, change and go. Each has a word and a name that stand in no other."""

    def __init__(self, count: int) -> None:
        self.documents: Documents = {}
        self.gone: Documents = {}
        self._made = 0
        for _ in range(count):
            self.change("add", 0)

    def change(self, what: str, chance: int) -> None:
        """One thing that happens to a corpus."""
        ids = list(self.documents)
        if what in ("add", "add many"):
            for _ in range(1 if what == "add" else 8):
                self._add()
        elif what == "return":
            if self.gone:
                name = list(self.gone)[chance % len(self.gone)]
                self.documents[name] = self.gone.pop(name)
        elif ids:
            name = ids[chance % len(ids)]
            title, text = self.documents[name]
            if what == "edit":
                sentences = text.split(". ")
                at = chance % len(sentences)
                sentences[at] = f"{sentences[at]} on the {chance % 31}th of May"
                self.documents[name] = title, ". ".join(sentences)
            elif what == "title":
                self.documents[name] = f"{title} again", text
            elif what == "copy":
                self.documents.setdefault(f"{name}-copy", (title, text))
            elif what == "rename":
                self.documents[f"{name}-moved"] = self.documents.pop(name)
            else:
                for one in ids[:-2] if what == "delete most" else [name]:
                    self.gone[one] = self.documents.pop(one)

    def _add(self) -> None:
        number, self._made = self._made, self._made + 1
        ((title, text),) = corpora.documents(1, seed=number, words=60 + 120 * (number % 3)).values()
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{number:04d}")
        self.documents[f"made-{number:04d}"] = title, f"Zq{word}x met Quorra Vex{word} at Krait{word} Hall. {text}"


def build(store: Path, documents: Documents, *, communities_in: str | None = None, cold: bool = False) -> Outcome:
    """communities_in: the family with communities, beside those that are functions of the corpus.

    Its communities go on from those of the night before. The heterograph stands in place of the trees.
    """
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", documents)
    families: dict[str, Any] = {"zoom_graph": {"threshold": 0.5, "cap": 4, "entity_links": True}}
    if communities_in == "heterograph":
        families["lsh_tree"] = {"enabled": False}
        families["heterograph"] = {
            "enabled": True,
            "neighbours": 3,
            "grain": 0,
            "largest": 8,
            "group": 2,
            "element_tokens": 2_000,
        }
    else:
        families["lsh_tree"] = {"smallest": 2, "largest": 3, "group": 4, "summary_tokens": 400}
        families["community_tree"] = {
            "enabled": communities_in == "community_tree",
            "fewest": 3,
            "largest": 4,
            "group": 4,
            "report_tokens": 4_000,
            "input_tokens": 8_000,
        }
    chosen = Configuration.model_validate(children.settings(store, corpus, families=families, resolve=DESCRIBED))
    return run_build(chosen, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True, cold=cold)


def check_nights(
    folder: Path, first: int, nights: list[list[tuple[str, int]]], communities_in: str | None = None
) -> None:
    """With communities, a cold build equals that of an empty store; a warm one leaves no traces either."""
    corpus = Corpus(first)
    random.Random(first).shuffle(nights)  # noqa: S311
    build(folder / "store", corpus.documents, communities_in=communities_in)
    for night in nights:
        for what, chance in night:
            corpus.change(what, chance)
        outcome = build(folder / "store", corpus.documents, communities_in=communities_in)
    if not corpus.documents:
        assert outcome.documents == 0
        return
    fresh = build(folder / "fresh", corpus.documents, communities_in=communities_in).manifest
    if communities_in:
        check_traces(folder / "store", corpus)
        assert not build(folder / "store", corpus.documents, communities_in=communities_in).published
        outcome = build(folder / "store", corpus.documents, communities_in=communities_in, cold=True)
    assert outcome.manifest == fresh
    check_traces(folder / "store", corpus)


def check_traces(store: Path, corpus: Corpus) -> None:
    here = " ".join(text for _, text in corpus.documents.values())
    with indexmill.open(store) as snapshot:
        for name, (_, text) in corpus.gone.items():
            canary = text.split()[0]
            if canary not in here:
                assert not traces(snapshot, name, text), (name, canary)


def traces(snapshot: Snapshot, document_id: str, text: str) -> set[str]:
    """The artifacts that still know of a document: its id, its words, the names that only it has."""
    canary, name = text.split()[0], canonical_name(" ".join(text.split()[2:4]))
    words = (canary.lower(), name, entity_id(name), document_id)
    known_terms = term_keys([canary.lower()])
    known_entity = NameIndex.keys([entity_id(name)])
    found = []
    for artifact in snapshot.manifest.artifacts:
        folder = artifact.name.partition("/")[0]
        table = artifact.name if folder == "heterograph" else folder  # whose tables are of several schemas
        if artifact.kind == "table":
            rows = snapshot.table(table)
            texts = [str(value).lower() for name in rows.column_names for value in rows.column(name).to_pylist()]
            if any(word in value for value in texts for word in words):
                found.append(table)
        elif artifact.kind == "arrays":
            arrays = snapshot.arrays(artifact.name)
            for key, strange in (("keys", known_terms), ("entity_keys", known_entity)):
                if key in arrays and arrays[key].ndim == 1 and np.isin(strange, arrays[key]).any():
                    found.append(folder)
    return set(found)


@pytest.mark.parametrize("communities_in", ["community_tree", "heterograph"])
def test_a_document_that_is_there_leaves_the_traces_that_are_looked_for(tmp_path: Path, communities_in: str) -> None:
    corpus = Corpus(6)
    build(tmp_path / "store", corpus.documents, communities_in=communities_in)
    with indexmill.open(tmp_path / "store") as snapshot:
        for name, (_, text) in corpus.documents.items():
            tables = {"documents", "passages", "mentions", "entities", "surfaces", "described", "related"}
            tables |= {"units", "unit_entities", "extracted", "relations", "bm25", "tri_graph", "zoom_graph"}
            if communities_in == "heterograph":
                tables |= {"heterograph", "heterograph/nodes", "heterograph/edges", "heterograph/relations", "elements"}
            else:
                tables |= {"summaries", "communities", "community_members", "community_tree"}
            # Where its name is like another's, or one of the important.
            assert traces(snapshot, name, text) - {"same_as", "attributes"} == tables


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_corpus_that_shrinks_to_nearly_nothing_and_comes_back(tmp_path: Path, left: int) -> None:
    corpus = Corpus(16)
    first = build(tmp_path / "store", corpus.documents)
    few = dict(list(corpus.documents.items())[:left])
    outcome = build(tmp_path / "store", few)
    assert outcome.documents == left
    if left:
        assert outcome.manifest == build(tmp_path / "fresh", few).manifest
    with indexmill.open(tmp_path / "store") as snapshot:
        assert not any(traces(snapshot, name, text) for name, (_, text) in corpus.documents.items() if name not in few)
    assert build(tmp_path / "store", corpus.documents).manifest == first.manifest


def bounded(examples: int) -> Any:
    return settings(max_examples=examples)


@bounded(8)
@given(first=st.integers(min_value=1, max_value=14), nights=_NIGHTS)
def test_after_any_nights_the_snapshot_is_that_of_an_empty_store(
    first: int, nights: list[list[tuple[str, int]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_nights(Path(folder), first, nights)


@pytest.mark.parametrize("communities_in", ["community_tree", "heterograph"])
@bounded(3)
@given(first=st.integers(min_value=6, max_value=14), nights=_NIGHTS)
def test_after_any_nights_a_cold_build_finds_the_communities_of_an_empty_store(
    communities_in: str, first: int, nights: list[list[tuple[str, int]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_nights(Path(folder), first, nights, communities_in)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@bounded(150)
@given(first=st.integers(min_value=1, max_value=40), nights=_NIGHTS)
def test_after_many_nights_too(first: int, nights: list[list[tuple[str, int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_nights(Path(folder), first, nights)
