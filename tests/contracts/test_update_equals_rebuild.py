"""Update equals rebuild: whatever nights a store has seen, its snapshot is the one that an empty store would get."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import corpora
from tests.corpora import Documents
from tests.deep import WHOLE
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index, traces

_NIGHT = st.tuples(
    st.sampled_from(["add", "add many", "edit", "title", "delete", "delete most", "rename", "copy", "return"]),
    st.integers(min_value=0, max_value=10_000),
)
_NIGHTS = st.lists(st.lists(_NIGHT, min_size=1, max_size=4), min_size=1, max_size=3)


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


def index_at(root: Path, communities_in: str | None = None) -> Index:
    """communities_in: the family with communities; the heterograph stands in place of the trees.

    Leiden goes on from the communities of the night before, and so does the heterograph.
    """
    families: dict[str, Any] = {"zoom_graph": {"threshold": 0.5, "cap": 4, "entity_links": True}}
    if communities_in == "heterograph":
        families["lsh_tree"] = {"enabled": False}
        families["heterograph"] = {"enabled": True, "neighbours": 3, "grain": 0, "largest": 8, "group": 2}
        families["heterograph"]["element_tokens"] = 2_000
    else:
        families["lsh_tree"] = {"smallest": 2, "largest": 3, "group": 4, "summary_tokens": 400}
        families["community_tree"] = {"enabled": communities_in == "community_tree"}
        families["community_tree"] |= {"fewest": 3, "largest": 4, "group": 4}
        families["community_tree"] |= {"report_tokens": 4_000, "input_tokens": 8_000}
    return Index(root, families=families, resolve=DESCRIBED)


def check_nights(
    folder: Path, first: int, nights: list[list[tuple[str, int]]], communities_in: str | None = None
) -> None:
    """With communities, what equals the build of an empty store is a cold one; a warm one leaves no traces either."""
    corpus = Corpus(first)
    random.Random(first).shuffle(nights)  # noqa: S311
    index, fresh = (index_at(folder / name, communities_in) for name in ("store", "fresh"))
    index.build(corpus.documents)
    for night in nights:
        for what, chance in night:
            corpus.change(what, chance)
        outcome = index.build(corpus.documents)
    if not corpus.documents:
        assert outcome.documents == 0
        return
    if communities_in:
        check_traces(index, corpus)
        assert not index.build(corpus.documents).published
        outcome = index.build(corpus.documents, cold=True)
    assert outcome.manifest == fresh.build(corpus.documents).manifest
    check_traces(index, corpus)


def check_traces(index: Index, corpus: Corpus) -> None:
    here = " ".join(text for _, text in corpus.documents.values())
    with index.snapshot() as snapshot:
        for name, (_, text) in corpus.gone.items():
            canary = text.split()[0]
            if canary not in here:
                assert not traces(snapshot, name, text), (name, canary)


@pytest.mark.slow
@pytest.mark.parametrize("communities_in", ["community_tree", "heterograph"])
def test_a_document_that_is_there_leaves_the_traces_that_are_looked_for(quick: Path, communities_in: str) -> None:
    corpus = Corpus(6)
    index = index_at(quick / "store", communities_in)
    index.build(corpus.documents)
    with index.snapshot() as snapshot:
        for name, (_, text) in corpus.documents.items():
            tables = {"documents", "passages", "mentions", "entities", "surfaces", "described", "related"}
            tables |= {"units", "unit_entities", "extracted", "relations", "bm25", "mention_links"}
            tables |= {"document_vectors", "document_links"}
            if communities_in == "heterograph":
                tables |= {"heterograph", "heterograph/nodes", "heterograph/edges", "heterograph/relations", "elements"}
            else:
                tables |= {"summaries", "communities", "community_members", "community_tree"}
            # Where its name is like another's, or one of the important.
            assert traces(snapshot, name, text) - {"same_as", "attributes", "entity_links"} == tables


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 2])
def test_a_corpus_that_shrinks_to_nearly_nothing_and_comes_back(quick: Path, left: int) -> None:
    corpus = Corpus(16)
    index = index_at(quick / "store")
    first = index.build(corpus.documents)
    few = dict(list(corpus.documents.items())[:left])
    outcome = index.build(few)
    assert outcome.documents == left
    if left:
        assert outcome.manifest == index.beside().build(few).manifest
    with index.snapshot() as snapshot:
        assert not any(traces(snapshot, name, text) for name, (_, text) in corpus.documents.items() if name not in few)
    assert index.build(corpus.documents).manifest == first.manifest


@pytest.mark.slow
@settings(max_examples=60 if WHOLE else 8)
@example(first=2, nights=[[("add many", 0)], [("delete most", 0)], [("add many", 1)]])
@example(first=8, nights=[[("add", 0)]])  # A shard falls apart; one half has the documents of the whole.
@given(first=st.integers(min_value=1, max_value=40 if WHOLE else 10), nights=_NIGHTS)
def test_after_any_nights_the_snapshot_is_that_of_an_empty_store(
    first: int, nights: list[list[tuple[str, int]]]
) -> None:
    with quick_folder() as folder:
        check_nights(folder, first, nights)


@pytest.mark.slow
@pytest.mark.parametrize("communities_in", ["community_tree", "heterograph"])
@settings(max_examples=1)
@given(first=st.integers(min_value=6, max_value=10), nights=_NIGHTS)
def test_after_any_nights_a_cold_build_finds_the_communities_of_an_empty_store(
    communities_in: str, first: int, nights: list[list[tuple[str, int]]]
) -> None:
    with quick_folder() as folder:
        check_nights(folder, first, nights, communities_in)
