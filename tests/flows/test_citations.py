"""From a file with pages to the page that a hit cites: through builds, refreshes, exports and forgetting.

The formats are the tests' own: their files say in JSON what stands on each page, and in which box.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

import indexmill
from flows.build_run import BuildOutcome
from flows.export import export_snapshot
from indexmill.diff import diff
from indexmill.hits import Box, Hit
from indexmill.serve.messages import FoundHit
from indexmill.snapshot import Snapshot
from schemas.corpus import CorpusSettings
from storage.folder import open_folder
from storage.table_blobs import read_table
from tasks.core.report import Silent
from tasks.stages.ingest import source_files, spill, supervisor
from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats import format_registry
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, Format
from tasks.stages.ingest.source_files import SourceFile
from tests.corpora import documents
from tests.flows.children import NO_FAMILIES, build, settings
from tests.flows.commands import Run
from tests.flows.forgetting import forget_here, places_of

Block = tuple[int, str, Sequence[float] | None]
"""Page, text and box."""

BRIDGE: list[Block] = [
    (1, "# The bridge of Vell\r\n\r\nAda Marl built the bridge in 1803.", [72.0, 90.25, 500.0, 110.0]),
    (2, "## Money\r\n\r\nThe Countess of Orrin paid for the timber.", [72.0, 10.0, 500.0, 20.0]),
    (2, "Bruno of Vell paid for the stones and the zanzaqua lime.", [72.0, 30.0, 500.0, 40.0]),
    (3, "Its lamps are lit at dusk, and the watch of Quillon walks there until dawn.", None),
]
CELLS: list[Block] = [(1, "# Counting boats", None), (7, "Forty boats passed below the arches in one summer.", None)]
QUESTION = "Who paid for the timber?"
TEXTS = documents(12, words=200)


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """The text of a file of this module's formats: blocks, each with its page and perhaps a box."""
    assert limits.pages > 0
    text, locations = "", []
    for page, block, box in json.load(file):
        locations.append(Location(len(text), page, None if box is None else tuple(box)))
        text += block + "\r\n\r\n"
    return Extracted(text, metadata={"author": "Esme Quill"}, locations=tuple(locations))


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats with pages, read in this process."""
    module = ModuleType("tasks.stages.ingest.formats.of_the_tests")
    module.extract = extract  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind in ("pdf", "notebook"):
        monkeypatch.setitem(format_registry._BY_KIND, kind, Format(kind, (f".{kind}-test",), 1, "of_the_tests"))
        monkeypatch.setitem(source_files.SUFFIXES, f".{kind}-test", kind)
    known = source_files.TEXT_KINDS | {"pdf", "notebook"}
    monkeypatch.setattr(source_files, "TEXT_KINDS", known)
    monkeypatch.setattr(spill, "TEXT_KINDS", known)

    def scan(files: Sequence[SourceFile], settings: CorpusSettings, folder: Path) -> spill.ScanResult:
        return spill.scan(files, settings, folder)

    monkeypatch.setattr(supervisor, "scan", scan)


def write(folder: Path, **files: list[Block]) -> Path:
    """A corpus of some files, and of a few texts without pages."""
    folder.mkdir(exist_ok=True)
    for name, blocks in {"bridge.pdf": BRIDGE, "boats.notebook": CELLS, **files}.items():
        (folder / f"{name}-test").write_text(json.dumps(blocks), encoding="utf-8")
    for name, (_, text) in TEXTS.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def built(folder: Path, **files: list[Block]) -> tuple[BuildOutcome, dict[str, Any]]:
    chosen = chosen_of(folder, write(folder / "corpus", **files))
    return build(chosen), chosen


def chosen_of(folder: Path, corpus: Path, store: str = "store") -> dict[str, Any]:
    families = {**NO_FAMILIES, "bm25": {"enabled": True}}
    return settings(folder / store, corpus, families=families, split={"tokens": 48})


def found(snapshot: Snapshot, question: str, k: int = 1) -> Hit:
    return snapshot.retrieve(question, method="bm25", k=k)[0]


@pytest.mark.slow
def test_a_hit_cites_the_page_of_its_file(quick: Path) -> None:
    outcome, _ = built(quick)
    assert (outcome.published, outcome.documents) == (True, 14)
    with indexmill.open(quick / "store") as snapshot:
        timber, lamps, boats = (found(snapshot, one) for one in (QUESTION, "lamps at dusk", "forty boats summer"))
        text = {row["document_id"]: row["text"] for row in snapshot.table("documents").to_pylist()}
        plain = snapshot.retrieve("bridge", method="bm25", k=50)
    assert "timber" in timber.text
    assert timber.pages is not None
    assert timber.pages[0] <= 2 <= timber.pages[1]
    assert Box(2, 72.0, 10.0, 500.0, 20.0) in timber.boxes
    assert lamps.pages is not None
    assert lamps.pages[1] == 3
    assert (boats.unit, boats.pages and boats.pages[1]) == ("cell", 7)
    assert timber.metadata == {"author": "Esme Quill", "format": "pdf"}
    for hit in (timber, lamps, boats):
        assert hit.span is not None
        assert text[hit.document_ids[0]][slice(*hit.span)] == hit.text
    assert {hit.pages for hit in plain if hit.document_ids[0].endswith(".md")} == {None}
    assert FoundHit.model_validate(timber.to_dict()).model_dump(exclude_unset=True) == {
        **timber.to_dict(),
        "pages": timber.pages,
        "span": timber.span,
    }


def test_every_page_is_that_of_the_words_on_it(quick: Path) -> None:
    """However passages are cut, and although the line ends of the text have become shorter."""
    blocks: list[Block] = [
        (page, f"The {word} of page {page}.\r\nNobody else has a {word}.", [1.0, page, 2.0, page + 0.5])
        for page, word in enumerate(
            ("lantern", "anchor", "orchard", "furnace", "violin", "glacier", "compass"), start=1
        )
        for _ in range(page % 3 + 1)
    ]
    built(quick, **{"words.pdf": blocks})
    with indexmill.open(quick / "store") as snapshot:
        hits = snapshot.retrieve("lantern anchor orchard furnace violin glacier compass", method="bm25", k=30)
    hits = [hit for hit in hits if hit.document_ids == ("words.pdf-test",)]
    assert len(hits) > 2
    for hit in hits:
        pages = [int(word.rstrip(".")) for word in hit.text.split() if word.rstrip(".").isdigit()]
        assert hit.pages is not None
        assert set(pages) <= set(range(hit.pages[0], hit.pages[1] + 1))
        assert hit.pages[1] - hit.pages[0] < 4
        assert {box.page for box in hit.boxes} == set(range(hit.pages[0], hit.pages[1] + 1))
        assert all(box.top == box.page for box in hit.boxes)


@pytest.mark.slow
def test_commands_cite_the_page(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built(quick)
    run = Run(capsys, "--store", quick / "store")
    asked = ("forty boats summer", "--method", "bm25", "-k", "1")
    assert run("query", *asked) == 0
    assert ", cells 1–7  [boats.notebook-test]" in run.out
    assert run("answer", *asked) == 0
    assert ", cells 1–7  [boats.notebook-test]" in run.out
    (hit,) = run.json("query", *asked)["hits"]
    assert (hit["page"], hit["pages"], hit["unit"], hit["boxes"]) == (1, [1, 7], "cell", [])


@pytest.mark.slow
def test_a_corpus_without_pages_has_the_bytes_that_it_had_before(quick: Path) -> None:
    """Each shard for itself: those of texts alone are shared with a store that knows no pages."""
    built(quick)
    plain = quick / "plain"
    plain.mkdir()
    for name, (_, text) in TEXTS.items():
        (plain / f"{name}.md").write_text(text, encoding="utf-8")
    build(chosen_of(quick, plain, "other"))
    store = open_folder(quick / "other")
    with indexmill.open(quick / "other") as other, indexmill.open(quick / "store") as snapshot:
        for artifact in other.manifest.under("documents"):
            assert not artifact.has_column("locations")
            assert "locations" not in read_table(store, artifact.digest).column_names
        held = {one.has_column("locations") for one in snapshot.manifest.under("documents")}
        assert held == {True, False}
        assert found(other, "bridge").pages is None


@pytest.mark.slow
def test_a_page_that_moves_is_a_change_of_its_document_and_makes_no_vectors(quick: Path) -> None:
    built(quick)
    again, chosen = built(quick)
    assert not again.published
    later: list[Block] = [(page + 4, text, box) for page, text, box in BRIDGE]
    moved, _ = built(quick, **{"bridge.pdf": later})
    assert (moved.published, moved.vectors_made) == (True, 0)
    changed = diff(quick / "store", a=1, b=2).documents
    assert (changed.changed.to_pylist(), len(changed.added), len(changed.removed)) == (["bridge.pdf-test"], 0, 0)
    with indexmill.open(quick / "store", version=1) as one, indexmill.open(quick / "store") as two:
        before, after = (found(snapshot, QUESTION) for snapshot in (one, two))
        assert before.pages is not None
        assert (after.text, after.pages) == (before.text, (before.pages[0] + 4, before.pages[1] + 4))
        refreshed = two.manifest
    build({**chosen, "store": str(quick / "fresh")})
    with indexmill.open(quick / "fresh") as fresh:
        assert fresh.manifest.artifacts == refreshed.artifacts


@pytest.mark.slow
def test_exports_have_the_pages(quick: Path) -> None:
    built(quick)
    store = open_folder(quick / "store")
    export_snapshot(store, 1, quick / "vectors", form="vectors", progress=Silent())
    rows = pq.read_table(quick / "vectors" / "passages.parquet").to_pylist()
    with indexmill.open(quick / "store") as snapshot:
        hits = snapshot.retrieve("the of and in bridge", method="bm25", k=100)
        timber = found(snapshot, QUESTION)
    assert {row["id"]: row["page"] for row in rows}.items() >= {hit.id: hit.page for hit in hits}.items()
    assert {row["page"] is None for row in rows} == {True, False}
    export_snapshot(store, 1, quick / "snapshot", form="snapshot", progress=Silent())
    with indexmill.open(quick / "snapshot") as copy:
        assert (found(copy, QUESTION).pages, found(copy, QUESTION).boxes) == (timber.pages, timber.boxes)


@pytest.mark.slow
def test_a_forgotten_document_takes_its_locations_along(quick: Path) -> None:
    _, chosen = built(quick)
    assert places_of(quick / "store", "zanzaqua")
    (quick / "corpus" / "bridge.pdf-test").unlink()
    forget_here(str(quick / "store"), chosen, "bridge.pdf-test")
    assert places_of(quick / "store", "zanzaqua") == {}
    with indexmill.open(quick / "store") as snapshot:
        table = snapshot.table("documents")
        kept = [row["document_id"] for row in table.to_pylist() if row["locations"]]
        assert (snapshot.version, kept) == (2, ["boats.notebook-test"])


@pytest.mark.slow
def test_a_reader_of_a_format_that_gives_wrong_places_has_its_documents_refused(quick: Path) -> None:
    outcome, _ = built(quick, **{"wrong.pdf": [(0, "A page before the first.", None)]})
    assert (outcome.documents, outcome.quarantined) == (14, 1)
    with indexmill.open(quick / "store") as snapshot:
        assert "wrong.pdf-test" not in snapshot.table("documents")["document_id"].to_pylist()
        assert found(snapshot, QUESTION).pages is not None
