"""What a hit says for a citation: where its document comes from, and which characters of it the passage is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.hits import Hit
from indexmill.store import table_reader
from indexmill.store.artifact_listing import Artifact
from indexmill.store.table_reader import read_table
from tests.indexmill import small_snapshot
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import Text, writer_of

PAGE = "https://example.org/bridge"

WORLD = {
    "p0": (
        Text(
            "bridge",
            "Bridge",
            "Ünder the bridge flows the Ilse.\n\nAda Venn paid for it.",
            {"url": PAGE, "year": 1888},
            sections=("", "Money > means\nGifts\x1b[2J"),
        ),
        Text("plain", "Plain", "A plain text about lamps.", source="notes/lamps.txt"),
    ),
    "p1": (
        Text("page", "Page", "A page about towers.", {"url": 7}, source="http://example.org/towers"),
        Text("bare", "Bare", "Nobody says where this valley is from.", {"url": "ftp://example.org"}),
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = writer_of(tmp_path / "store", WORLD)
    writer.bm25()
    writer.publish()
    return tmp_path / "store"


def test_a_passage_is_found_in_its_document_again(root: Path) -> None:
    texts = {text.id: text for texts in WORLD.values() for text in texts}
    with indexmill.open(root) as snapshot:
        hits = snapshot.retrieve("bridge Ada Venn lamps towers valley", method="bm25", k=9)
    assert len(hits) == 5
    for hit in hits:
        of = texts[hit.document_ids[0]]
        assert hit.span is not None
        assert of.text[slice(*hit.span)] == hit.text
        assert (hit.title, hit.source, hit.metadata) == (of.title, of.source, of.metadata)
    assert {hit.document_ids[0]: hit.url for hit in hits} == {
        "bridge": PAGE,
        "plain": None,
        "page": "http://example.org/towers",
        "bare": None,
    }
    (ada,) = (hit for hit in hits if hit.text == "Ada Venn paid for it.")
    assert ada.span == (34, 55)
    shown = json.loads(json.dumps(ada.to_dict()))
    assert (shown["url"], shown["span"], shown["metadata"]) == (PAGE, [34, 55], {"url": PAGE, "year": 1888})
    assert ada.section == ("Money > means", "Gifts\x1b[2J")
    assert shown["section"] == ["Money > means", "Gifts\x1b[2J"]
    assert all(hit.section == () for hit in hits if hit is not ada)


def test_places_are_read_of_the_shards_of_hits_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, list[str] | None]] = []

    def reading(path: Path, artifact: Artifact, columns: list[str] | None = None) -> pa.Table:
        read.append((artifact.name, columns))
        return read_table(path, artifact, columns)

    monkeypatch.setattr(table_reader, "read_table", reading)
    with indexmill.open(root) as snapshot:
        assert snapshot.retrieve("Ada Venn", method="bm25", k=1)[0].section
    assert [name for name, columns in read if columns is not None and "section" in columns] == ["passages/p0"]


def test_commands_show_the_place(root: Path, run: Run) -> None:
    assert run("query", "who paid for the bridge", "--store", root, "--method", "bm25") == 0
    assert f"    {PAGE}" in run.out.splitlines()
    assert run("answer", "who paid for the bridge", "--store", root, "--method", "bm25") == 0
    assert f"    {PAGE}" in run.out.splitlines()
    assert run("query", "who paid", "--store", root, "--method", "bm25", "-k", "1") == 0
    assert "  Bridge § Money > means > Gifts\ufffd[2J  [bridge]" in run.out.splitlines()[0]
    assert run("answer", "who paid", "--store", root, "--method", "bm25", "-k", "1") == 0
    assert " 1. Bridge § Money > means > Gifts\ufffd[2J  [bridge]" in run.out.splitlines()
    assert run("query", "lamps", "--store", root, "--method", "bm25") == 0
    assert "    notes/lamps.txt" in run.out.splitlines()
    assert run("query", "valley", "--store", root, "--method", "bm25") == 0
    assert run.out.splitlines()[1].strip() == "Nobody says where this valley is from."


@pytest.mark.parametrize("metadata", ["[1]", "null", "{", '"text"', "[" * 100_000])
def test_metadata_that_are_no_object_are_damage(tmp_path: Path, metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(_: Any) -> bytes:
        return metadata.encode()

    monkeypatch.setattr(small_snapshot, "canonical_json", written)
    writer = writer_of(tmp_path / "store", {"p0": WORLD["p0"]})
    monkeypatch.undo()
    writer.bm25()
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob):
        snapshot.retrieve("bridge", method="bm25")


def test_a_hit_of_no_single_document_has_no_place() -> None:
    hit = Hit("summary", "s", 1.0, "text", "", ("a", "b"))
    assert (hit.url, hit.source, hit.span, hit.metadata, hit.section) == (None, None, None, {}, ())
    assert hash(hit) == hash(Hit("summary", "s", 1.0, "text", "", ("a", "b")))
