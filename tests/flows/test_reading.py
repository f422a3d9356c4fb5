"""The real commands read a corpus of which files crash or stall whoever reads them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storage import runs
from storage.folder import open_folder
from tests.corpora import documents
from tests.flows.children import ROOT, build, settings
from tests.flows.commands import Command, command, write_settings

pytestmark = pytest.mark.timeout(900)

STRUCK = ROOT / "tests" / "tasks" / "stages" / "ingest" / "struck"


@pytest.fixture
def environment(prefect_environment: dict[str, str]) -> dict[str, str]:
    """Texts act on the process that reads them: see `tests/tasks/stages/ingest/struck/sitecustomize.py`."""
    return {**prefect_environment, "PYTHONPATH": os.pathsep.join([str(STRUCK), str(ROOT)])}


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Make a corpus folder hold files of these texts."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def chosen(folder: Path, **limits: float) -> dict[str, Any]:
    """The settings of `folder/store` and `folder/corpus`."""
    return settings(folder / "store", corpus={"paths": [str(folder / "corpus")], **limits})


def argv(folder: Path, word: str, **limits: float) -> list[object]:
    """A command with these settings."""
    return [word, "-c", write_settings(folder / "indexmill.yaml", chosen(folder, **limits)), "--json"]


def good(count: int) -> dict[str, str]:
    return {f"{name}.md": text for name, (_, text) in documents(count).items()}


def refused(root: Path) -> list[tuple[str, str]]:
    """File and reason of what the last run refused."""
    _, table = runs.quarantine_of(open_folder(root))
    return [(row["file"], row["reason"]) for row in table.to_pylist()]


def ended(run: Command) -> dict[str, object]:
    """What a command says that ended well, and left nothing behind."""
    assert run.wait() == 0, run.err
    assert run.left_behind() == {}
    return run.json()


def test_builds_and_plans_go_on_without_the_files_that_crash_their_reader(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    bad = {"doc-0000a.md": "it crashes", "page.html": "<p>it crashes</p>"}  # pages are read by workers
    write(tmp_path / "corpus", good(8) | bad)
    with command(tmp_path, *argv(tmp_path, "build"), environment=environment) as first:
        told = ended(first)
    assert (told["published"], told["documents"], told["quarantined"]) == (True, 8, 2)
    assert refused(tmp_path / "store") == [(name, "reader-failed") for name in bad]
    assert "warning: doc-0000a.md and 1 other could not be read: see `indexmill quarantine`" in first.err
    (tmp_path / "corpus" / "page.html").unlink()
    write(tmp_path / "corpus", {"doc-0003.md": "it crashes", "new.md": "Ada Marl left Vell."})
    with command(tmp_path, *argv(tmp_path, "plan"), environment=environment) as planned:
        plan = ended(planned)
    assert plan["documents"] == {"added": 1, "changed": 0, "moved": 0, "removed": 1, "unchanged": 7}
    assert plan["refused"] == {"reader-failed": 2}
    with command(tmp_path, *argv(tmp_path, "build"), environment=environment) as second:
        told = ended(second)
    assert (told["published"], told["version"], told["documents"], told["quarantined"]) == (True, 2, 8, 2)


def test_a_file_of_records_that_cannot_be_read_to_its_end_takes_no_document_away(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    rows = [f'{{"id": "{number}", "text": "Ada Marl left Vell."}}\n' for number in range(3)]
    write(tmp_path / "corpus", {"a.jsonl": "".join(rows)})
    build(chosen(tmp_path))
    rows[1] = rows[1].replace("Ada", "it crashes")
    write(tmp_path / "corpus", {"a.jsonl": "".join(rows)})
    with command(tmp_path, *argv(tmp_path, "build"), environment=environment) as second:
        assert second.wait() == 3, second.err
    assert "a.jsonl cannot be read to the end; version 1 has 2 documents that the corpus lacks" in second.err


@pytest.mark.parametrize(
    ("first", "number"), [(True, signal.SIGINT), pytest.param(False, signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_is_heard_while_a_file_stalls_its_reader(
    tmp_path: Path, environment: dict[str, str], first: bool, number: int
) -> None:
    """In a first build a worker reads, in a refresh the command itself."""
    write(tmp_path / "corpus", good(4))
    if not first:
        build(chosen(tmp_path))
    mark = tmp_path / "mark"
    write(tmp_path / "corpus", {"new.md": f"it computes and shows {mark}"})
    with command(tmp_path, *argv(tmp_path, "build", max_document_seconds=3600.0), environment=environment) as run:
        deadline = time.monotonic() + 240
        while not mark.exists():
            assert run.running, run.err
            assert time.monotonic() < deadline, run.err
            time.sleep(0.02)
        run.signal(number)
        began = time.monotonic()
        assert run.wait() == 130, run.err
        assert time.monotonic() - began < 30
        assert run.left_behind() == {}
    last = runs.list_runs(open_folder(tmp_path / "store"))[-1]
    assert (last.state, last.exit_code) == ("interrupted", 130)
