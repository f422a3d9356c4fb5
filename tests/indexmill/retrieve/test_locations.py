"""Where a passage stands in its file: from the locations of its document to the page and the boxes of a hit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.adapters.retrieval import FrameworkDocument
from indexmill.errors import CorruptBlob
from indexmill.explore.explorer_page import page_of
from indexmill.explore.neighbourhood import neighbourhood
from indexmill.hits import Box, Hit
from indexmill.retrieve.locations import MOST_BOXES, place_of
from indexmill.store import table_reader
from indexmill.store.artifact_listing import Artifact
from indexmill.store.table_reader import locations_type, read_table
from schemas.tables import DOCUMENTS
from tests.deep import examples
from tests.indexmill import small_snapshot
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import Text, writer_of

REPORT = "The bridge crosses the Ilse.\n\nAda Venn paid for it.\n\nIt rises in the hills."
WORLD = {
    "p0": (
        Text(
            "report.pdf",
            "Report",
            REPORT,
            {"format": "pdf"},
            sections=("", "Money", ""),
            locations=((0, 1, [72.0, 90.1, 500.0, 110.0]), (30, 3, None), (45, 4, [72.0, 10.0, 99.95, 20.0])),
        ),
        Text("talk.pptx", "Talk", "Lamps of Tallow.", {"format": "pptx"}, locations=((0, 4, None),)),
        Text("plain", "Plain", "A plain text about lamps."),
    ),
    "p1": (Text("other", "Other", "Lamps again."),),
}
QUESTION = "bridge Ada Venn hills lamps"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = writer_of(tmp_path / "store", WORLD)
    writer.bm25()
    writer.tri_graph()
    writer.publish()
    return tmp_path / "store"


def column(*rows: Sequence[tuple[Any, Any, Any]] | None) -> pa.ListArray:
    named = [
        None if row is None else [dict(zip(("start", "page", "box"), one, strict=True)) for one in row] for row in rows
    ]
    found: pa.ListArray = pa.array(named, locations_type())
    return found


def by_text(root: Path, **given: Any) -> dict[str, Hit]:
    with indexmill.open(root, **given) as snapshot:
        found = snapshot.retrieve_batch([QUESTION, QUESTION], method="bm25", k=9)
    assert found[0] == found[1]
    return {hit.text: hit for hit in found[0]}


def test_a_hit_has_the_pages_and_boxes_of_its_passage(root: Path) -> None:
    hits = by_text(root)
    assert {text: hit.pages for text, hit in hits.items()} == {
        "The bridge crosses the Ilse.": (1, 1),
        "Ada Venn paid for it.": (3, 4),
        "It rises in the hills.": (4, 4),
        "Lamps of Tallow.": (4, 4),
        "A plain text about lamps.": None,
        "Lamps again.": None,
    }
    texts = ("The bridge crosses the Ilse.", "Ada Venn paid for it.", "Lamps of Tallow.")
    first, ada, slide = (hits[text] for text in texts)
    assert first.boxes == (Box(1, 72.0, 90.1, 500.0, 110.0),)
    assert ada.boxes == (Box(4, 72.0, 10.0, 99.95, 20.0),)
    assert (ada.page, ada.unit, ada.place) == (3, "page", "pp. 3–4")
    assert (slide.page, slide.unit, slide.place, slide.boxes) == (4, "slide", "slide 4", ())
    plain = hits["Lamps again."]
    assert (plain.page, plain.unit, plain.place) == (None, None, "")


def test_json_has_pages_where_there_are_some(root: Path) -> None:
    hits = by_text(root)
    shown = json.loads(json.dumps(hits["Ada Venn paid for it."].to_dict()))
    assert (shown["page"], shown["pages"], shown["unit"]) == (3, [3, 4], "page")
    assert shown["boxes"] == [{"page": 4, "left": 72.0, "top": 10.0, "right": 99.95, "bottom": 20.0}]
    assert {"page", "pages", "unit", "boxes"}.isdisjoint(hits["Lamps again."].to_dict())


def test_helpers_find_the_same_pages(root: Path) -> None:
    assert by_text(root, processes=2) == by_text(root)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        ("pdf", "p. 7", "pp. 7–9"),
        ("docx", "p. 7", "pp. 7–9"),
        ("pptx", "slide 7", "slides 7–9"),
        ("notebook", "cell 7", "cells 7–9"),
        ("xlsx", "sheet 7", "sheets 7–9"),
        ("epub", "chapter 7", "chapters 7–9"),
        ("unheard of", "p. 7", "pp. 7–9"),
        (["pdf"], "p. 7", "pp. 7–9"),
        (None, "p. 7", "pp. 7–9"),
    ],
)
def test_a_page_is_called_what_the_format_has(kind: Any, one: str, two: str) -> None:
    def hit(*pages: int) -> Hit:
        return Hit("passage", "p", 1.0, "text", "T", ("a",), metadata={"format": kind}, pages=(pages[0], pages[-1]))

    assert (hit(7).place, hit(7, 9).place) == (one, two)


def test_commands_name_the_page(root: Path, run: Run) -> None:
    assert run("query", "who paid", "--store", root, "--method", "bm25", "-k", "1") == 0
    assert "  Report § Money, pp. 3–4  [report.pdf]" in run.out.splitlines()[0]
    assert run("query", "Tallow", "--store", root, "--method", "bm25", "-k", "1") == 0
    assert "  Talk, slide 4  [talk.pptx]" in run.out.splitlines()[0]
    assert run("answer", "who paid", "--store", root, "--method", "bm25", "-k", "1") == 0
    assert " 1. Report § Money, pp. 3–4  [report.pdf]" in run.out.splitlines()
    (hit,) = run.json("answer", "who paid", "--store", root, "--method", "bm25", "-k", "1")["hits"]
    assert (hit["page"], hit["unit"]) == (3, "page")


def test_the_page_is_among_the_metadata_of_evidence(root: Path) -> None:
    found = FrameworkDocument.of(by_text(root)["Lamps of Tallow."]).metadata
    assert (found["page"], found["pages"], found["unit"], found["format"]) == (4, [4, 4], "slide", "pptx")
    assert "page" not in FrameworkDocument.of(by_text(root)["Lamps again."]).metadata
    own = Hit("passage", "p", 1.0, "text", "T", ("a",), metadata={"page": 12})
    assert FrameworkDocument.of(own).metadata["page"] == 12  # the document's own, where no file has pages


def test_a_page_of_the_index_names_the_page(root: Path) -> None:
    with indexmill.open(root) as snapshot:
        part = neighbourhood(snapshot, question="who paid for it", method="bm25", nodes=20)
    (node,) = (node for node in part.nodes if node.text == "Ada Venn paid for it.")
    assert node.place == "pp. 3–4"
    assert "pp. 3–4" in {node["place"] for node in part.to_dict()["nodes"]}
    assert "Document <bdi>report.pdf</bdi>, pp. 3–4" in page_of(part).html.decode()


def test_locations_are_read_of_the_shards_of_hits_that_have_some(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(path: Path, artifact: Artifact, columns: list[str] | None = None) -> pa.Table:
        if columns is not None and "locations" in columns:
            read.append(artifact.name)
        return read_table(path, artifact, columns)

    monkeypatch.setattr(table_reader, "read_table", reading)
    with indexmill.open(root) as snapshot:
        assert snapshot.retrieve("again", method="bm25", k=1)[0].pages is None
        assert read == []
        assert snapshot.retrieve("Tallow", method="bm25", k=1)[0].pages == (4, 4)
        assert snapshot.retrieve(QUESTION, method="bm25", k=9)
    assert read == ["documents/p0"]


def test_a_table_has_locations_of_every_shard_and_nulls_of_those_without(root: Path) -> None:
    with indexmill.open(root) as snapshot:
        held = {one.name: one.has_column("locations") for one in snapshot.shards("documents")}
        whole = snapshot.table("documents")
        named = snapshot.table("documents", ["locations"])
    assert held == {"documents/p0": True, "documents/p1": False}
    assert whole["document_id"].to_pylist() == ["plain", "report.pdf", "talk.pptx", "other"]
    assert [value and len(value) for value in whole["locations"].to_pylist()] == [None, 3, 1, None]
    assert named["locations"].to_pylist() == whole["locations"].to_pylist()
    assert named.schema.field("locations").type == locations_type()


LOCATED = column(
    None,
    [],
    [(5, 2, None), (10, 2, [0.0, 1.0, 2.0, 3.0]), (20, 3, [0.0, 1.0, 2.0, 3.0]), (30, 1, None)],
)


@pytest.mark.parametrize(
    ("row", "span", "pages", "boxes"),
    [
        (0, (0, 9), None, 0),
        (1, (0, 9), None, 0),
        (2, (0, 5), None, 0),  # ends where the first begins
        (2, (0, 6), (2, 2), 0),  # begins before the first
        (2, (5, 10), (2, 2), 0),
        (2, (9, 11), (2, 2), 1),
        (2, (10, 20), (2, 2), 1),
        (2, (10, 21), (2, 3), 2),
        (2, (25, 99), (3, 3), 1),  # a footnote of an earlier page after it
        (2, (31, 32), (1, 1), 0),
    ],
)
def test_a_span_stands_where_its_characters_do(
    row: int, span: tuple[int, int], pages: tuple[int, int] | None, boxes: int
) -> None:
    found = place_of(LOCATED, row, span, "here")
    assert (found and found.pages) == pages
    assert len(found.boxes if found else ()) == boxes


@examples(20, deep=100)
@given(st.lists(st.integers(0, 60), min_size=1, unique=True).map(sorted), st.integers(0, 60), st.integers(1, 20))
def test_pages_are_those_of_every_character(starts: list[int], start: int, length: int) -> None:
    located = column([(at, page, [0.0, 0.0, page, page]) for page, at in enumerate(starts, start=1)])
    pages = [sum(at <= character for at in starts) for character in range(start, start + length)]
    known = [page for page in pages if page]
    found = place_of(located, 0, (start, start + length), "here")
    assert (found and found.pages) == ((known[0], known[-1]) if known else None)
    assert [box.page for box in found.boxes] == sorted(set(known)) if found else not known


def test_a_block_that_two_locations_share_is_one_box_and_many_boxes_become_one_of_each_page() -> None:
    box = [1.0, 2.0, 3.0, 4.0]
    twice = place_of(column([(0, 1, box), (5, 1, None), (9, 1, box)]), 0, (0, 20), "here")
    assert twice is not None
    assert twice.boxes == (Box(1, *box),)
    many = [(at, 1 + at // 40, [float(at), 5.0, at + 1.5, 6.0 + at]) for at in range(80)]
    found = place_of(column(many), 0, (0, MOST_BOXES), "here")
    assert found is not None
    assert len(found.boxes) == MOST_BOXES
    whole = place_of(column(many), 0, (0, 99), "here")
    assert whole is not None
    assert whole.boxes == (Box(1, 0.0, 5.0, 40.5, 45.0), Box(2, 40.0, 5.0, 80.5, 85.0))
    pages = place_of(column([(at, at + 1, box) for at in range(200)]), 0, (0, 200), "here")
    assert pages is not None
    assert (pages.pages, len(pages.boxes)) == ((1, 200), MOST_BOXES)


WRONG = [
    [(5, 1, None), (5, 2, None)],
    [(5, 1, None), (3, 2, None)],
    [(-1, 1, None)],
    [(0, 0, None)],
    [(0, 1, [1.0, 2.0, 3.0])],
    [(0, 1, [1.0, None, 3.0, 4.0])],
    [(0, 1, [1.0, float("nan"), 3.0, 4.0])],
    [(0, 1, [9.0, 2.0, 3.0, 4.0])],
]


@pytest.mark.parametrize("wrong", WRONG)
def test_locations_that_no_build_writes_are_damage(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(CorruptBlob, match="here: "):
        place_of(column(wrong), 0, (0, 9), "here")
    writer = writer_of(tmp_path / "store", {"p0": (Text("a", "A", "A bridge.", locations=tuple(wrong)),)})
    writer.bm25()
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="location"):
        snapshot.retrieve("bridge", method="bm25")


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.list_(pa.int32()), pa.list_(pa.struct([("start", pa.int32()), ("page", pa.string())]))],
    ids=str,
)
def test_a_column_of_another_type_is_damage(tmp_path: Path, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    other = DOCUMENTS.set(DOCUMENTS.get_field_index("locations"), pa.field("locations", kind))
    monkeypatch.setattr(small_snapshot, "DOCUMENTS", other)
    monkeypatch.setattr("storage.table_blobs.conform", lambda table, _: table)
    monkeypatch.setattr("storage.table_blobs.stored", lambda table: table)
    writer = writer_of(tmp_path / "store", {"p0": (Text("a", "A", "A bridge."),)})
    writer.bm25()
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="in the column 'locations'"):
        snapshot.retrieve("bridge", method="bm25")
