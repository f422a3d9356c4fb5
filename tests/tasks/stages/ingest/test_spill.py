"""Scans: the same rows whatever the files and the batches, in bounded memory."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import DiskFull, StoreNotWritable
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import shard_plan, source_files, spill
from tasks.stages.ingest.shard_plan import plan, quarantine_of
from tasks.stages.ingest.source_files import batches, find
from tasks.stages.ingest.spill import scan, without
from tests.paths import ROOT
from tests.tasks.stages.ingest.spilled import documents, ingest, records, write_lines


def other_files(folder: Path) -> list[str]:
    """The files of a spill folder that hold no documents."""
    return [file.name for file in folder.iterdir() if ".documents." not in file.name]


def test_refused_rows_of_all_files_are_in_the_quarantine(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus/a.jsonl", [{"id": "a", "text": "good"}, {"id": "b"}, {"text": "t"}])
    (tmp_path / "corpus/b.md").write_bytes(b"caf\xe9")
    (tmp_path / "corpus/c.jsonl.gz").write_bytes(b"no")
    planned = ingest(tmp_path / "spill", tmp_path / "corpus")
    assert planned.documents == 1
    assert planned.refused == {"no-id": 1, "no-text": 1, "not-utf8": 1, "unreadable-file": 1}
    assert [
        (row["file"], row["line"], row["document_id"], row["reason"])
        for row in quarantine_of(planned, tmp_path / "spill").to_pylist()
    ] == [
        ("a.jsonl", 2, "b", "no-text"),
        ("a.jsonl", 3, None, "no-id"),
        ("b.md", None, "b.md", "not-utf8"),
        ("c.jsonl.gz", None, None, "unreadable-file"),
    ]


def test_small_files_are_scanned_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(30):
        (tmp_path / f"corpus/{number:02}.txt").write_text(f"text {number}", encoding="utf-8")
    chosen = CorpusSettings(paths=(str(tmp_path / "corpus"),))
    made = {}
    for folder, most in (("one", 2_000), ("many", 7)):
        monkeypatch.setattr(source_files, "_BATCH_FILES", most)
        (tmp_path / folder).mkdir()
        groups = batches(find(chosen).files)
        planned = plan([scan(group, chosen, tmp_path / folder) for group in groups], tmp_path / folder, 20)
        made[folder] = documents(planned, tmp_path / folder), planned.fingerprint
    assert made["one"] == made["many"]
    assert len(other_files(tmp_path / "one")) == 5


@pytest.mark.slow
def test_documents_do_not_depend_on_the_size_of_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", records(300) + records(50))
    whole = ingest(tmp_path / "spill1", path)
    monkeypatch.setattr(spill, "_BATCH_BYTES", 700)
    monkeypatch.setattr(shard_plan, "_GATHERED", 10)
    pieces = ingest(tmp_path / "spill2", path)
    assert pieces.shards == whole.shards
    assert pieces.repeats == whole.repeats == 50
    assert documents(pieces, tmp_path / "spill2") == documents(whole, tmp_path / "spill1")


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", records(3))
    chosen = CorpusSettings(paths=(str(path),))
    read = spill.read

    def appended(*arguments: Any) -> Any:
        for number, row in enumerate(read(*arguments)):
            if number == 0:
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")
            yield row

    monkeypatch.setattr(spill, "read", appended)
    result = scan(find(chosen).files, chosen, tmp_path)
    assert result.changed == ("a.jsonl",)
    assert result.documents == 3
    assert plan([result], tmp_path).changed == ("a.jsonl",)


def test_a_scan_again_replaces_the_first_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", records(5))
    first = ingest(tmp_path / "spill", path)
    names = sorted(file.name for file in (tmp_path / "spill").iterdir())
    assert len(other_files(tmp_path / "spill")) == 5
    assert ingest(tmp_path / "spill", path) == first
    assert sorted(file.name for file in (tmp_path / "spill").iterdir()) == names


def test_what_is_left_of_a_scan_without_a_file_is_a_scan_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "_BATCH_BYTES", 700)
    for number, name in enumerate("abc"):
        rows = [*records(40)[number::4], {"id": f"{name}-bad"}, {"id": "shared", "text": f"of {name}"}]
        write_lines(tmp_path / "whole" / f"{name}.jsonl", rows)
        if name != "b":
            write_lines(tmp_path / "others" / f"{name}.jsonl", rows)
    found = {}
    for folder in ("whole", "others"):
        (tmp_path / f"spill-{folder}").mkdir()
        chosen = CorpusSettings(paths=(str(tmp_path / folder),))
        result = scan(find(chosen).files, chosen, tmp_path / f"spill-{folder}")
        if folder == "whole":
            result = without(result, ["b.jsonl"], tmp_path / f"spill-{folder}")
        planned = plan([result], tmp_path / f"spill-{folder}", 40)
        table = quarantine_of(planned, tmp_path / f"spill-{folder}")
        found[folder] = replace(result, name=""), documents(planned, tmp_path / f"spill-{folder}"), table.to_pylist()
    assert found["whole"] == found["others"]
    assert len(found["whole"][1]) == 21


def test_a_full_disk_is_told_from_a_broken_file_and_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = CorpusSettings(paths=(str(write_lines(tmp_path / "a.jsonl", records(5))),))
    with pytest.raises(StoreNotWritable, match="cannot spill"):
        scan(find(chosen).files, chosen, tmp_path / "missing")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "spill").mkdir()
    monkeypatch.setattr(spill._SpillWriter, "flush", full)
    with pytest.raises(DiskFull, match=r"No space left.*nothing is lost, and the next run continues"):
        scan(find(chosen).files, chosen, tmp_path / "spill")
    assert list((tmp_path / "spill").iterdir()) == []


MEASURE = """
import resource, sys
from schemas.corpus import CorpusSettings
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.spill import scan
chosen = CorpusSettings(paths=(sys.argv[1],))
assert scan(find(chosen).files, chosen, sys.argv[2]).documents == int(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_the_memory_of_a_scan_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def megabytes(count: int) -> int:
        path = tmp_path / "a.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(count):
                file.write(json.dumps({"id": number, "text": f"{number} " + "x" * 20_000}) + "\n")
        arguments = [sys.executable, "-c", MEASURE, str(path), str(tmp_path), str(count)]
        return int(subprocess.run(arguments, check=True, capture_output=True, cwd=ROOT).stdout)

    small, large = megabytes(1_500), megabytes(6_000)  # 30 and 120 MB
    assert large - small < 30
