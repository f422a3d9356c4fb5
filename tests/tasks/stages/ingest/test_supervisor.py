"""Files that crash, stall or fill the process that reads them: found and refused, and nothing else is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import ConfigurationError, DiskFull, StoreNotWritable
from schemas.corpus import CorpusSettings
from tasks.core.child import held_memory
from tasks.core.executor import Call, InlineExecutor, StoppedError, WorkerDied
from tasks.stages.ingest import scan_process, shard_plan, spill
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.supervisor import scan
from tests.paths import ROOT

STRUCK = Path(__file__).parent / "struck"

Refused = list[tuple[str, int | None, str | None, str, str]]


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Texts act on the process that reads them: see `tests/tasks/stages/ingest/struck/sitecustomize.py`."""
    scan_process.close()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(STRUCK), os.environ.get("PYTHONPATH")])))
    yield
    scan_process.close()


def corpus_of(folder: Path, files: dict[str, str | list[str]], **limits: Any) -> CorpusSettings:
    """Settings of a corpus of text files, and of JSON Lines where a list of texts is given."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for name, texts in files.items():
        if isinstance(texts, str):
            (corpus / name).write_text(texts, encoding="utf-8")
            continue
        rows = ({"id": f"{name}-{number}", "text": text} for number, text in enumerate(texts, 1))
        (corpus / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "spill").mkdir()
    return CorpusSettings(paths=(str(corpus),), **limits)


def scanned(folder: Path, chosen: CorpusSettings) -> tuple[set[str], Refused]:
    """The ids of the documents, and what was refused."""
    result = scan(find(chosen).files, chosen, folder / "spill")
    planned = shard_plan.plan([result], folder / "spill")
    assert not list((folder / "spill").glob("*.partial"))
    assert not list((folder / "spill").glob("trial-*"))
    table = shard_plan.quarantine_of(planned, folder / "spill")
    refused = [tuple(row[name] for name in table.schema.names) for row in table.to_pylist()]
    assert planned.refused == {one[3]: [row[3] for row in refused].count(one[3]) for one in refused}
    return set(shard_plan.document_ids(folder / "spill").to_pylist()), refused  # type: ignore[return-value]


def test_a_child_reads_what_this_process_would_and_is_kept_for_the_next_scan(tmp_path: Path) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "# One\n\ntext", "b.jsonl": ["two", "", "three"], "c.txt": "four"})
    result = scan(find(chosen).files, chosen, tmp_path / "spill")
    (child,) = scan_process._idle
    assert scan(find(chosen).files, chosen, tmp_path / "spill") == result
    assert scan_process._idle == [child]
    (tmp_path / "here").mkdir()
    assert spill.scan(find(chosen).files, chosen, tmp_path / "here") == result
    for file in (tmp_path / "here").iterdir():
        assert (tmp_path / "spill" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_a_file_that_crashes_its_reader_is_refused_and_the_others_are_read(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "one", "b.md": "it crashes", "c.md": "two", "d.jsonl": ["three"]})
    assert scanned(tmp_path, chosen) == (
        {"a.md", "c.md", "d.jsonl-1"},
        [("b.md", None, "b.md", "reader-failed", "its process was ended by SIGSEGV")],
    )


@pytest.mark.slow
def test_a_library_that_gives_up_may_have_lacked_memory_and_the_detail_says_so(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it aborts", "b.md": "one"})
    documents, ((file, _, _, reason, detail),) = scanned(tmp_path, chosen)
    assert (documents, file, reason) == ({"b.md"}, "a.md", "reader-failed")
    assert detail.startswith("its process was ended by SIGABRT, ")
    assert "max_reading_memory_bytes" in detail


@pytest.mark.slow
def test_of_a_file_of_records_the_rows_before_the_one_that_crashes_are_kept(tmp_path: Path, struck: None) -> None:
    rows = ["one", "", "two", "it crashes", "three"]
    chosen = corpus_of(tmp_path, {"a.jsonl": rows, "b.jsonl": ["four", "five"]})
    documents, refused = scanned(tmp_path, chosen)
    assert documents == {"a.jsonl-1", "a.jsonl-3", "b.jsonl-1", "b.jsonl-2"}
    failed = ("a.jsonl", None, None, "reader-failed", "after line 3: its process was ended by SIGSEGV")
    assert [refused[0][:4], refused[1]] == [("a.jsonl", 2, "a.jsonl-2", "no-text"), failed]


@pytest.mark.slow
def test_any_number_of_files_at_fault_is_found_in_two_passes(
    tmp_path: Path, struck: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    start = scan_process.ScanProcess._start
    monkeypatch.setattr(scan_process.ScanProcess, "_start", lambda self, *of: (started.append(1), start(self, *of)))
    texts = {f"{number}.md": "it crashes" if number in (0, 3, 4, 9) else "text" for number in range(10)}
    documents, refused = scanned(tmp_path, corpus_of(tmp_path, {**texts}))
    assert documents == {name for name, text in texts.items() if text == "text"}
    assert [row[:1] + row[3:4] for row in refused] == [(f"{n}.md", "reader-failed") for n in (0, 3, 4, 9)]
    assert len(started) == 9  # two for each of them, and one that lives on


@pytest.mark.slow
def test_a_row_that_computes_for_too_long_is_refused(tmp_path: Path, struck: None) -> None:
    rows = {"a.jsonl": ["one", "it computes", "two"], "b.md": "it computes", "c.md": "three"}
    documents, refused = scanned(tmp_path, corpus_of(tmp_path, {**rows}, max_document_seconds=0.5))
    assert documents == {"a.jsonl-1", "c.md"}
    assert refused[0][:4] == ("a.jsonl", None, None, "too-slow")
    slow = "it takes more than 0.5 seconds of processor time (max_document_seconds)"
    assert refused[1:] == [("b.md", None, "b.md", "too-slow", slow)]


@pytest.mark.slow
def test_waiting_is_not_computing(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it sleeps 1.5"}, max_document_seconds=0.5)
    assert scanned(tmp_path, chosen) == ({"a.md"}, [])


@pytest.mark.slow
def test_a_row_that_blocks_for_ever_is_refused(tmp_path: Path, struck: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_process, "_BLOCKED", 2)
    chosen = corpus_of(tmp_path, {"a.md": "it sleeps 3600", "b.md": "text"}, max_document_seconds=0.5)
    documents, refused = scanned(tmp_path, chosen)
    assert documents == {"b.md"}
    assert [row[3:] for row in refused] == [("too-slow", "it has blocked for 1 seconds, 2 times max_document_seconds")]


@pytest.mark.slow
def test_a_row_that_takes_too_much_memory_is_refused(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.jsonl": ["one", "it swells"], "b.md": "two"}, max_reading_memory_bytes=1 << 29)
    documents, refused = scanned(tmp_path, chosen)
    assert documents == {"a.jsonl-1", "b.md"}
    assert [row[3:] for row in refused] == [
        ("reader-failed", "after line 1: it takes more memory than max_reading_memory_bytes (536,870,912 bytes)")
    ]


@pytest.mark.slow
def test_what_earlier_files_left_in_a_process_does_not_count_as_memory_of_later_files(
    tmp_path: Path, struck: None
) -> None:
    texts = {f"{number}.md": "it keeps 100" for number in range(3)}
    limits = {"max_reading_memory_bytes": 1 << 28, "max_document_bytes": 1 << 20}
    assert scanned(tmp_path, corpus_of(tmp_path, {**texts}, **limits)) == (set(texts), [])


def test_a_process_that_holds_more_than_the_limit_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_process.close()
    child = scan_process.take()
    monkeypatch.setattr(scan_process, "held_memory", lambda pid: 300 << 20 if pid == child.pid else 0)
    scan_process.give_back(child)
    assert scan_process.take(300 << 20) is child
    scan_process.give_back(child)
    successor = scan_process.take(299 << 20)
    scan_process.give_back(successor)
    assert successor is not child
    assert not child.waits


def test_a_process_reserves_no_memory_for_itself(tmp_path: Path) -> None:
    scanned(tmp_path, corpus_of(tmp_path, {"a.md": "text"}))
    (child,) = scan_process._idle
    assert 0 < held_memory(child.pid) < 1 << 29  # 1.1 GiB with the memory pool that Arrow uses by default


@pytest.mark.slow
def test_a_library_for_which_the_memory_does_not_suffice_is_laid_to_its_row(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it cannot be loaded", "b.md": "text"}, max_reading_memory_bytes=1 << 29)
    documents, refused = scanned(tmp_path, chosen)
    assert documents == {"b.md"}
    detail = "it takes more memory than max_reading_memory_bytes (536,870,912 bytes)"
    assert refused == [("a.md", None, "a.md", "reader-failed", detail)]


@pytest.mark.slow
def test_a_library_that_is_missing_is_no_files_fault(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it is not installed", "b.md": "text"})
    with pytest.raises(ModuleNotFoundError, match="lxmk"):
        scan(find(chosen).files, chosen, tmp_path / "spill")


def test_a_limit_that_leaves_no_memory_to_read_with_is_a_matter_of_the_settings(tmp_path: Path) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "text"}).model_copy(update={"max_reading_memory_bytes": 1 << 20})
    with pytest.raises(
        ConfigurationError, match=r"more memory than max_reading_memory_bytes \(1,048,576 bytes\): raise"
    ):
        scan(find(chosen).files, chosen, tmp_path / "spill")


@pytest.mark.slow
def test_what_a_reader_raises_is_laid_to_its_row(tmp_path: Path, struck: None) -> None:
    documents, refused = scanned(tmp_path, corpus_of(tmp_path, {"a.md": "it raises", "b.md": "text"}))
    assert documents == {"b.md"}
    assert [row[3:] for row in refused] == [("reader-failed", "ValueError: hell")]


@pytest.mark.slow
def test_a_child_that_is_killed_once_refuses_nothing(tmp_path: Path, struck: None) -> None:
    rows = ["one", f"it dies once {tmp_path / 'mark'}", "two"]
    documents, refused = scanned(tmp_path, corpus_of(tmp_path, {"a.jsonl": rows}))
    assert (tmp_path / "mark").exists()
    assert (documents, refused) == ({"a.jsonl-1", "a.jsonl-2", "a.jsonl-3"}, [])


def test_a_child_that_was_killed_while_it_waited_is_replaced(tmp_path: Path) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "text"})
    scanned(tmp_path, chosen)
    for child in scan_process._idle:
        child._process.kill()
    assert scanned(tmp_path, chosen) == ({"a.md"}, [])


@pytest.mark.slow
def test_errors_of_the_store_are_no_files_fault(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "text", "b.md": "it fills the disk"})
    with pytest.raises(DiskFull, match="no space left, says the test"):
        scan(find(chosen).files, chosen, tmp_path / "spill")
    assert list((tmp_path / "spill").iterdir()) == []
    with pytest.raises(StoreNotWritable, match=f"cannot spill documents to {tmp_path}/missing: No such file"):
        scan(find(chosen).files, chosen, tmp_path / "missing")


def test_children_that_do_not_start_are_no_files_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan_process.close()
    (tmp_path / "sitecustomize.py").write_text("import os, sys\nprint('no start', file=sys.stderr)\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    chosen = corpus_of(tmp_path, {"a.md": "text"})
    with pytest.raises(WorkerDied, match="the last time: its process ended with exit code 7: no start"):
        scan(find(chosen).files, chosen, tmp_path / "spill")


# Stopping


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def at_rows() -> set[int]:
    """The processes of scans that are at a row."""
    found = set()
    for child in list(scan_process._every):
        with contextlib.suppress(ValueError):
            if memoryview(child._memory).cast("q")[0] >= 0:
                found.add(child._process.pid)
    return found


def under_way(ended: Collection[int] = ()) -> int:
    """The process of a scan that is at a row; waits for it. ended: processes of scans that have ended at theirs."""
    while True:
        for pid in at_rows().difference(ended):
            return pid
        time.sleep(0.02)


@contextlib.contextmanager
def ended_by(interrupt: Callable[[], object]) -> Iterator[None]:
    """Interrupt the scan that is made within once it is at a row; it has to end at once, and its process with it."""
    pids: list[int] = []
    ended = at_rows()  # an interrupt before the scan would be of whatever runs then
    thread = threading.Thread(target=lambda: (pids.append(under_way(ended)), interrupt()))
    thread.start()
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 30  # it would compute for a minute before it is too slow
    thread.join()
    assert gone(pids[0])


def test_an_executor_that_is_told_to_stop_ends_a_scan_at_once(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it computes"})
    executor = InlineExecutor()
    call = Call("scan", scan, (find(chosen).files, chosen, tmp_path / "spill"))
    with ended_by(executor.stop), pytest.raises(StoppedError):
        list(executor.run([call]))


def test_a_signal_that_raises_ends_a_scan_at_once(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it computes"})
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        with ended_by(lambda: os.kill(os.getpid(), signal.SIGUSR1)), pytest.raises(KeyboardInterrupt):
            scan(find(chosen).files, chosen, tmp_path / "spill")
    finally:
        signal.signal(signal.SIGUSR1, before)


PARENT = """
import os, sys, threading, time
from pathlib import Path
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import scan_process
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.supervisor import scan
from tests.tasks.stages.ingest.test_supervisor import under_way
chosen = CorpusSettings(paths=(sys.argv[1],))
threading.Thread(target=lambda: print(under_way(), flush=True)).start()
scan(find(chosen).files, chosen, sys.argv[2])
"""


def test_a_child_ends_with_its_parent_whatever_it_computes(tmp_path: Path, struck: None) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "it computes"})
    path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    argv = [sys.executable, "-c", PARENT, chosen.paths[0], str(tmp_path / "spill")]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child, 0.5)
        parent.kill()
        assert gone(child)


@pytest.mark.slow
def test_a_process_that_is_forked_has_children_of_its_own(tmp_path: Path) -> None:
    chosen = corpus_of(tmp_path, {"a.md": "text"})
    scanned(tmp_path, chosen)
    (child,) = scan_process._idle
    forked = os.fork()
    if not forked:  # pragma: no cover - the coverage of a fork is not kept
        code = 1
        with contextlib.suppress(BaseException):
            shared = any(one is child for one in scan_process._idle)
            result = scan(find(chosen).files, chosen, tmp_path / "spill")
            code = 0 if not shared and result.documents == 1 else 2
            scan_process.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert child.waits
    assert scanned(tmp_path, chosen) == ({"a.md"}, [])
    assert scan_process._idle == [child]
