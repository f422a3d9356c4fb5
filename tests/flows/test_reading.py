"""A night reads what changed, and publishes what a build of an empty store would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.run import Outcome
from indexmill.command import main
from indexmill.errors import GateRefused
from storage.folder import open_folder
from storage.readings import find_reading, tables_of
from tasks.stages.ingest import known, sources
from tests.corpora import documents
from tests.flows.children import NO_FAMILIES, build, settings
from tests.quarantines import reasons_in


class Folder:
    """A corpus of files whose index is built night by night."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.corpus = folder / "corpus"
        self.corpus.mkdir()
        self.last: Outcome | None = None
        self.chosen = settings(folder / "store", self.corpus, families=NO_FAMILIES, **changes)

    def write(self, name: str, text: str) -> Path:
        path = self.corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def night(self, **options: Any) -> Outcome:
        self.last = build(self.chosen, **options)
        return self.last

    def fresh(self) -> str:
        """The manifest of a build of an empty store."""
        again = {**self.chosen, "store": str(self.folder / "fresh")}
        return build(again, full=True).manifest

    @property
    def read(self) -> tuple[int, int]:
        """The files that the last night read, and those it did not."""
        assert self.last is not None
        return self.last.files_read, self.last.files_unchanged


@pytest.fixture
def folder(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(sources, "_SETTLED", -1e6)
    made = Folder(quick)
    for name, (title, text) in documents(12).items():
        made.write(f"{name}.md", f"# {title}\n\n{text}\n")
    return made


def test_only_files_that_changed_are_read_and_the_version_is_that_of_an_empty_store(folder: Folder) -> None:
    folder.night()
    assert folder.read == (12, 0)
    folder.write("doc-0003.md", "# Another\n\nFenna Rook left Vell.\n")
    folder.write("more/new.md", "# New\n\nGoran Stave came to Orrin Bay.\n")
    (folder.corpus / "doc-0005.md").unlink()
    second = folder.night()
    assert folder.read == (2, 10)
    assert (second.documents, second.manifest) == (12, folder.fresh())


def test_a_night_without_a_change_reads_nothing_and_publishes_nothing(folder: Folder) -> None:
    first = folder.night()
    second = folder.night()
    assert folder.read == (0, 12)
    assert (second.published, second.manifest) == (False, first.manifest)


def test_an_unchanged_file_is_not_opened_unless_all_is_to_be_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_token", lambda status: "always the same")
    first = folder.night()
    folder.write("doc-0001.md", "# Other words\n\nNobody is told of them.\n")
    assert folder.night().manifest == first.manifest
    assert folder.night(full=True).manifest == folder.fresh() != first.manifest


def test_a_file_as_young_as_the_listing_is_read_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SETTLED", 3600.0)
    folder.night()
    folder.night()
    assert folder.read == (12, 0)


@pytest.mark.parametrize("change", [{"split": {"tokens": 128}}, {"corpus": {"max_document_bytes": 9_000_000}}])
def test_files_are_read_again_where_a_setting_shapes_their_documents(folder: Folder, change: dict[str, Any]) -> None:
    folder.night()
    for section, values in change.items():
        folder.chosen[section] = {**folder.chosen.get(section, {}), **values}
    folder.night()
    assert folder.read == ((12, 0) if "corpus" in change else (0, 12))


def test_a_row_that_lost_to_another_is_read_when_the_other_goes(folder: Folder) -> None:
    rows = [{"id": "doc-0001.md", "text": f"Esme Quill saw version {number}."} for number in range(9)]
    for number, row in enumerate(rows):
        folder.write(f"rows{number}.jsonl", json.dumps(row) + "\n")
    folder.night()
    assert folder.read == (21, 0)
    with indexmill.open(folder.folder / "store") as snapshot:
        kept = {row["document_id"]: row["text"] for row in snapshot.table("documents").to_pylist()}["doc-0001.md"]
    for path in folder.corpus.iterdir():
        if kept.strip() in path.read_text(encoding="utf-8"):
            path.unlink()
    second = folder.night()
    assert folder.read[0] >= 1
    assert second.manifest == folder.fresh()


def test_refused_rows_of_files_that_are_not_read_are_refused_again(folder: Folder) -> None:
    folder.write("rows.jsonl", '{"id": "one", "text": "Dario Penhale lives."}\nno json\n{"id": "two", "text": ""}\n')
    folder.night()
    expected = {"not-json": 1, "no-text": 1}
    assert reasons_in(open_folder(folder.folder / "store")) == expected
    folder.write("doc-0004.md", "# Changed\n\nBruno of Vell left.\n")
    second = folder.night()
    assert folder.read == (1, 12)
    assert reasons_in(open_folder(folder.folder / "store")) == expected
    assert second.quarantined == 2


def test_what_a_run_read_counts_only_once_its_version_is_published(folder: Folder) -> None:
    folder.night()
    for number in range(2, 12):
        (folder.corpus / f"doc-{number:04d}.md").unlink()
    folder.chosen["gates"] = {"max_shrink": 0.1}
    with pytest.raises(GateRefused):
        folder.night()
    third = folder.night(allow_shrink=True)
    assert folder.read == (0, 2)
    assert (third.version, third.manifest) == (2, folder.fresh())


def test_after_a_rollback_the_reading_of_that_version_counts(folder: Folder) -> None:
    first = folder.night()
    path = folder.write("doc-0002.md", "# Slip\n\nA slip of the pen.\n")
    folder.night()
    store = folder.folder / "store"
    assert main(["rollback", "--store", str(store), "1"]) == 0
    assert main(["resume", "--store", str(store)]) == 0
    again = folder.night()
    assert folder.read == (1, 11)
    assert again.documents == 12
    path.unlink()
    assert folder.night().documents == 11
    assert first.version == 1


def test_without_the_texts_of_the_last_version_everything_is_read(folder: Folder) -> None:
    first = folder.night()
    with indexmill.open(folder.folder / "store") as snapshot:
        (artifact, *_) = snapshot.manifest.under("documents")
    name = artifact.digest
    next((folder.folder / "store/blobs").rglob(f"*{name[4:]}*")).unlink()
    folder.write("new.md", "# New\n\nA new one.\n")
    second = folder.night()
    assert folder.read == (13, 0)
    assert (second.documents, first.documents) == (13, 12)


def test_a_reading_holds_nothing_of_a_forgotten_document(folder: Folder) -> None:
    folder.night()
    store = folder.folder / "store"
    (folder.folder / "indexmill.yaml").write_text(json.dumps(folder.chosen), encoding="utf-8")
    assert main(["--config", str(folder.folder / "indexmill.yaml"), "forget", "doc-0007.md", "--yes"]) == 0
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.corpus.documents == 11
        found = find_reading(open_folder(store), snapshot.manifest.corpus.fingerprint)
    assert found is not None
    names = tables_of(open_folder(store), found.files, known.FILES).column("path").to_pylist()
    assert len(names) == 11
    assert "doc-0007.md" not in names
    folder.night()
    assert folder.read == (1, 11)


def test_every_file_of_a_place_that_falls_silent_is_a_matter_for_the_gate(folder: Folder) -> None:
    folder.night()
    for path in folder.corpus.iterdir():
        path.unlink()
    folder.chosen["gates"] = {"max_shrink": 0.5}
    with pytest.raises(GateRefused):
        folder.night()
