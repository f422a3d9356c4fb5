"""`indexmill show --same-as`: the pairs of a snapshot, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.command import same_as as listed
from indexmill.text.canonical_names import entity_id
from tests.corpora import write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run

ROWS = {
    "1": ("", "Ada Marl studied at Universty of Oxford. Bruno met Ada Marl near Apollo 11."),
    "2": ("", "Esme Quill left University of Oxford. World War II began and World War I ended near Apollo 12."),
    "3": ("", "Esme Quil saw Orrin Bay."),
}


@pytest.fixture(scope="module")
def store(memory: Path) -> Path:
    corpus = write_corpus(memory / "corpus.jsonl", ROWS)
    wide = {"description": {"enabled": True}, "same_as": {"cosine": 0.5, "likeness": 0.7}}
    build(settings(memory / "store", corpus))
    build(settings(memory / "store", corpus, resolve=wide))
    return memory / "store"


def test_pairs_are_told_the_most_alike_first(store: Path, run: Run) -> None:
    told = run.json("show", "--same-as", "--store", store)
    assert told["version"] == 2
    found = [{one["surface"] for one in pair["entities"]} for pair in told["same_as"]]
    assert found == [{"University of Oxford", "Universty of Oxford"}, {"Esme Quill", "Esme Quil"}]
    first = told["same_as"][0]
    assert [one["id"] for one in first["entities"]] == sorted(
        entity_id(name) for name in ("university of oxford", "universty of oxford")
    )
    assert first["likeness"] == 0.9
    assert 0.5 < first["cosine"] < 1


def test_people_get_a_table(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("show", "--same-as", "--store", store) == 0
    assert run.out.startswith("version 2: 2 pairs\n")
    assert "likeness" in run.out
    assert run.out.index("Oxford") < run.out.index("Quil")
    monkeypatch.setattr(listed, "MOST", 1)
    assert run("show", "--same-as", "--store", store) == 0
    assert "and 1 more" in run.out
    assert "Quil" not in run.out


def test_a_snapshot_without_pairs_says_so(store: Path, run: Run) -> None:
    assert run("show", "1", "--same-as", "--store", store) == 2
    assert "no table 'same_as'" in run.err
    assert "`resolve: {description: {enabled: true}}`" in run.err
    assert run("show", "--same-as", "--tree", "--store", store) == 2
    assert "give only one" in run.err


def test_no_pair_is_told_where_there_is_none(quick: Path, run: Run) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", {"1": ("", "Ada Marl left Vell.")})
    build(settings(quick / "store", corpus, resolve={"description": {"enabled": True}}))
    assert run("show", "--same-as", "--store", quick / "store") == 0
    assert run.out == "version 1: no two entities have nearly the same name\n"
