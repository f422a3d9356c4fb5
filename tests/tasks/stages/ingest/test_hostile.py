"""Hostile files: each becomes documents or refusals within its limits, and nothing else is read, written or called."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.models.recogniser import open_recogniser
from schemas.config import SplitSettings
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import scan_process, shard_plan, supervisor
from tasks.stages.ingest.documents import REASONS
from tasks.stages.ingest.formats.format_registry import FORMATS
from tasks.stages.ingest.source_files import find
from tasks.stages.recognise.rules import recognise
from tasks.stages.split.split import split
from tests.deep import WHOLE, share
from tests.tasks.stages.ingest.formats.office_files import docx, paragraph
from tests.tasks.stages.ingest.hostile_documents import ATTACKS, HONEST, SETTINGS, WORDS, Content, Outside
from tests.tasks.stages.ingest.hostile_texts import KINDS, damaged, files, names

SECONDS = 60.0
"""Processor seconds to read a row, or to run the stages of a document: far more than any takes."""
RECORDS = {".jsonl", ".ndjson", ".parquet"}
CUT = {"unreadable-file", "not-utf8", "not-json", "bad-columns"}
"""Reasons for which the rest of a file of records is not read."""
WORDS_OUTSIDE = "the secret of the file outside"
USERS = Path("/etc/passwd")
ENCODER, RECOGNISER = HashEmbedder(), open_recogniser("rules")


class Folder:
    """A corpus between two honest files, a file outside of it, and an address that nobody should call."""

    def __init__(self, folder: Path) -> None:
        self.corpus, self.spill = folder / "corpus", folder / "spill"
        self.corpus.mkdir()
        self.spill.mkdir()
        (folder / "secret.txt").write_text(WORDS_OUTSIDE)
        (self.corpus / "0 honest.docx").write_bytes(HONEST["honest.docx"])
        (self.corpus / "z honest.pdf").write_bytes(HONEST["honest.pdf"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.outside = Outside(
            folder / "secret.txt", f"{USERS}", f"http://127.0.0.1:{self.listener.getsockname()[1]}/x"
        )

    def scan(self, **limits: Any) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """Read the corpus as a build does; return documents by id, and refusals, but for those of the honest files."""
        before = {path: path.lstat().st_mtime_ns for path in self.corpus.rglob("*")}
        suffixes = (f"*{suffix}" for each in FORMATS for suffix in each.suffixes)  # source code is read if named
        chosen = CorpusSettings(paths=(f"{self.corpus}",), include=("**", *suffixes), **limits)
        result = supervisor.scan(find(chosen).files, chosen, self.spill)
        planned = shard_plan.plan([result], self.spill)
        refusals = shard_plan.quarantine_of(planned, self.spill).to_pylist()
        assert len(refusals) == sum(planned.refused.values())
        assert planned.documents + planned.repeats + len(refusals) == result.documents + sum(result.refused.values())
        self.rows = result.documents + sum(result.refused.values()) - 2
        self.tables = [shard_plan.documents_of(shard, self.spill) for shard in planned.shards]
        documents = {row["document_id"]: row for table in self.tables for row in table.to_pylist()}
        everything = json.dumps([*documents.values(), *refusals], default=str, ensure_ascii=False)
        for honest in ("0 honest.docx", "z honest.pdf"):
            assert documents.pop(honest)["text"].strip() == WORDS
        leaked = [WORDS_OUTSIDE, *USERS.read_text(encoding="utf-8").splitlines()]
        assert not [line for line in leaked if line and json.dumps(line)[1:-1] in everything], "a file outside is read"
        assert before == {path: path.lstat().st_mtime_ns for path in self.corpus.rglob("*")}, "a file is written"
        around = (self.corpus, self.corpus.parent, Path.cwd(), Path(tempfile.gettempdir()))
        assert not [path for path in around if (path / "ran").exists()], "a file is written"
        with pytest.raises(BlockingIOError):
            self.listener.accept()
        return documents, refusals


@contextlib.contextmanager
def hostile_folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory(prefix="indexmill-hostile-") as temporary:
        folder = Folder(Path(temporary))
        with folder.listener:
            yield folder


@contextlib.contextmanager
def measured() -> Iterator[dict[str, float]]:
    """The processor seconds (`s`), the number and the peak memory (`MiB`) of this process's children in the block."""
    scan_process.close()
    usage, processes, ends, this = {"MiB": 0.0}, set(), threading.Event(), psutil.Process()

    def sample() -> None:
        while not ends.wait(0.02):
            for child in this.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.cmdline() != this.cmdline():  # else forked, but the program has not started yet
                        processes.add(child.pid)
                        usage["MiB"] = max(usage["MiB"], child.memory_info().rss / 2**20)

    def seconds() -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime

    began, thread = seconds(), threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        ends.set()
        thread.join()
        scan_process.close()
        usage |= {"s": seconds() - began, "processes": len(processes)}


def run_stages(folder: Folder) -> None:
    """Run the stages of each document, within the limit of time."""
    for table in folder.tables:
        for row in range(table.num_rows):
            began, document = time.process_time(), table.slice(row, 1)
            parts = split(document, ENCODER, SplitSettings())
            recognise(document, parts.passages, parts.sentences, RECOGNISER)
            assert time.process_time() - began < SECONDS


ALL_KINDS = {
    **KINDS,
    **{f"damaged {name}": files(Path(name).suffix, damaged(st.just(HONEST[name]))) for name in HONEST},
}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=200 if WHOLE else 50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), names)
def test_hostile_files_are_read_or_refused_and_split(kind: str, data: st.DataObject, name: str) -> None:
    file = data.draw(ALL_KINDS[kind])
    with hostile_folder() as folder:
        (folder.corpus / (name.format("file") + file.suffix)).write_bytes(file.content)
        _, refusals = folder.scan(max_document_seconds=SECONDS)
        reasons = {row["reason"] for row in refusals}
        assert not reasons & {"reader-failed", "too-slow"}
        assert folder.rows == file.rows or file.rows is None or (file.suffix in RECORDS and reasons & CUT)
        run_stages(folder)


def check(name: str, content: Content, outcomes: str, seconds: float = 10.0, mebibytes: int = 1024) -> None:
    limits = {"max_document_seconds": seconds, "max_reading_memory_bytes": mebibytes << 20, **SETTINGS.get(name, {})}
    with hostile_folder() as folder:
        (folder.corpus / name).write_bytes(content(folder.outside) if callable(content) else content)
        with measured() as usage:
            documents, refusals = folder.scan(**limits)
    outcome = " ".join([*("document" for _ in documents), *(row["reason"] for row in refusals)])
    assert outcome in outcomes.split(), refusals
    assert "no-text" in outcomes.split() or all(WORDS in row["text"] for row in documents.values())
    assert usage["s"] < seconds + 5 * usage["processes"]
    assert 20 < usage["MiB"] < mebibytes + 256  # the limit does not count code and mapped files


@pytest.mark.slow
@pytest.mark.parametrize("name", share(list(ATTACKS), 4))
def test_hostile_documents_are_read_or_refused(name: str) -> None:
    if "OCR" in name and shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")
    check(name, *ATTACKS[name])


@pytest.mark.slow
def test_what_should_not_happen_is_noticed() -> None:
    users = docx(paragraph(f"{WORDS} {USERS.read_text(encoding='utf-8').splitlines()[0]}"))
    with pytest.raises(AssertionError, match="a file outside is read"):
        check("file.docx", users, "document")
    for content, outcomes in ((HONEST["honest.docx"], "hostile-file"), (docx(paragraph("Other words")), "document")):
        with pytest.raises(AssertionError):
            check("file.docx", content, outcomes)


@pytest.mark.slow
def test_links_pipes_and_devices_are_refused() -> None:
    with hostile_folder() as folder:
        for name in ("pipe.md", "pipe.docx"):
            os.mkfifo(folder.corpus / name)
        (folder.corpus / "folder.md").mkdir()
        links = {"loop": ".", "itself.md": "itself.md", "nowhere.md": "nothing.md", "device.txt": "/dev/zero"}
        for name, target in {**links, "users.pdf": f"{USERS}", "users.md": f"{USERS}"}.items():
            (folder.corpus / name).symlink_to(target)
        documents, refusals = folder.scan()
        assert not documents
        outcomes = {row["file"]: row["reason"] for row in refusals}
    outside = dict.fromkeys(("device.txt", "users.md", "users.pdf"), "link-outside")
    unreadable = dict.fromkeys(("itself.md", "nowhere.md"), "unreadable-file")
    assert outcomes == {"pipe.md": "not-a-file", "pipe.docx": "not-a-file", **unreadable, **outside}


def test_every_format_is_attacked_and_every_outcome_is_a_reason_of_the_quarantine() -> None:
    suffixes = {Path(name).suffix for name in ATTACKS}
    assert all(suffixes & {*each.suffixes} for each in FORMATS if each.module != "code")
    assert len(suffixes & {suffix for each in FORMATS if each.module == "code" for suffix in each.suffixes}) >= 5
    assert {outcome for _, outcomes in ATTACKS.values() for outcome in outcomes.split()} <= {"document", *REASONS}
