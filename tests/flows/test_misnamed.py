"""Files whose names are not UTF-8: refused by name, and no obstacle to a build."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from indexmill.command import main
from tasks.stages.ingest import source_files
from tests.flows.children import NO_FAMILIES, build, settings
from tests.flows.commands import write_settings

NAMES = {b"p\xe9.pdf": "p\\xe9.pdf", b"r\xe9.jsonl": "r\\xe9.jsonl", b"f\xe9/in.txt": "f\\xe9/in.txt"}
"""Names, and how they are shown."""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with one document, and files with bad names."""
    for name in (b"a.md", b"f\xe9/not-read.png", *NAMES):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/corpus/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Fenna Rook left Vell for the harbour of Ostrava.", encoding="utf-8")
    return tmp_path / "corpus"


@pytest.mark.slow
def test_misnamed_files_are_refused_by_name_and_counted(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source_files, "_SETTLED", -1e6)  # the second build knows all files
    plain = settings(tmp_path / "store", corpus, families=NO_FAMILIES)
    configuration = write_settings(tmp_path / "indexmill.yaml", plain)
    assert main(["plan", "-c", str(configuration)]) == 0
    assert "refused rows: 3 (3 bad-name)" in capsys.readouterr().out
    first, second = build(plain), build(plain)
    assert (first.published, first.documents, first.quarantined, first.files_read) == (True, 1, 3, 4)
    assert (second.published, second.quarantined, second.files_unchanged) == (False, 3, 4)
    assert main(["quarantine", "-c", str(configuration), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["file"], row["reason"]) for row in rows] == [(name, "bad-name") for name in sorted(NAMES.values())]
    for command in ("quarantine", "status", "runs"):
        assert main([command, "-c", str(configuration)]) == 0
    assert main(["report", "-c", str(configuration), "--output", str(tmp_path / "report.html")]) == 0


@pytest.mark.slow
def test_a_misnamed_file_is_read_under_a_new_name(corpus: Path, tmp_path: Path) -> None:
    plain = settings(tmp_path / "store", corpus, families=NO_FAMILIES)
    build(plain)
    folder = Path(os.fsdecode(os.fsencode(corpus) + b"/f\xe9"))
    folder.rename(corpus / "f")
    outcome = build(plain)
    assert (outcome.documents, outcome.quarantined) == (2, 2)


def test_a_store_whose_path_is_not_utf8_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = os.fsdecode(os.fsencode(tmp_path) + b"/store\xe9")
    assert main(["build", "--corpus", str(corpus), "--store", store]) == 2
    assert "store\\xe9" in capsys.readouterr().err
    assert not Path(store).exists()
