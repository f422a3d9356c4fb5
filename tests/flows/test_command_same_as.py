"""`indexmill show --same-as`: the pairs of a snapshot, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexmill.command import main
from indexmill.command import same_as as listed
from indexmill.text.names import entity_id
from tests.corpora import write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder

ROWS = {
    "1": ("", "Ada Marl studied at Universty of Oxford. Bruno met Ada Marl near Apollo 11."),
    "2": ("", "Esme Quill left University of Oxford. World War II began and World War I ended near Apollo 12."),
    "3": ("", "Esme Quil saw Orrin Bay."),
}


@pytest.fixture(scope="module")
def store() -> Iterator[Path]:
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", ROWS)
        wide = {"description": {"enabled": True}, "same_as": {"cosine": 0.5, "likeness": 0.7}}
        build(settings(folder / "store", corpus))
        build(settings(folder / "store", corpus, resolve=wide))
        yield folder / "store"


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_pairs_are_told_the_most_alike_first(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = json.loads(shown(capsys, "--same-as", "--json", "--store", store))
    assert told["version"] == 2
    found = [{one["surface"] for one in pair["entities"]} for pair in told["same_as"]]
    assert found == [{"University of Oxford", "Universty of Oxford"}, {"Esme Quill", "Esme Quil"}]
    first = told["same_as"][0]
    assert [one["id"] for one in first["entities"]] == sorted(
        entity_id(name) for name in ("university of oxford", "universty of oxford")
    )
    assert first["likeness"] == 0.9
    assert 0.5 < first["cosine"] < 1


def test_people_get_a_table(store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(capsys, "--same-as", "--store", store)
    assert text.startswith("version 2: 2 pairs\n")
    assert "likeness" in text
    assert text.index("Oxford") < text.index("Quil")
    monkeypatch.setattr(listed, "MOST", 1)
    text = shown(capsys, "--same-as", "--store", store)
    assert "and 1 more" in text
    assert "Quil" not in text


def test_a_snapshot_without_pairs_says_so(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "1", "--same-as", "--store", str(store)]) == 2
    told = capsys.readouterr().err
    assert "no table 'same_as'" in told
    assert "`resolve: {description: {enabled: true}}`" in told
    assert main(["show", "--same-as", "--tree", "--store", str(store)]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_no_pair_is_told_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", {"1": ("", "Ada Marl left Vell.")})
        build(settings(folder / "store", corpus, resolve={"description": {"enabled": True}}))
        text = shown(capsys, "--same-as", "--store", folder / "store")
    assert text == "version 1: no two entities have nearly the same name\n"
