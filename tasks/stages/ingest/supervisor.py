"""Runs scans in a child process, so that no corpus file can kill or stall the build, or exhaust its memory.

When a child dies or runs out of memory, the file that it was reading is read once more, alone: the kernel may have
killed the child because another process used too much memory. A second death is the file's fault. A row that takes too
long is at fault immediately: its limit is in the child's CPU time, which a busy or suspended machine does not increase.
The file is then read up to the row at fault, and one rejection covers that row and all later rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.corpus import CorpusSettings
from schemas.sources import SourceSettings
from tasks.core.executor import WorkerDied
from tasks.stages.ingest.fetching import fetched, needs_fetching
from tasks.stages.ingest.scan_process import ScanEnd, ScanProcess, give_back, take
from tasks.stages.ingest.source_files import RECORDS, SourceFile
from tasks.stages.ingest.spill import Cut, ScanResult, drop_partial

_ATTEMPTS = 3
"""The number of attempts to scan the same files when scans end early."""


def scan(files: Sequence[SourceFile], settings: CorpusSettings, spill_folder: str | os.PathLike[str]) -> ScanResult:
    """Run `spill.scan` in a child process. If a file makes it fail, reject the file from the row at fault on.

    Raises the errors of `spill.scan`, WorkerDied if the child dies and no file is at fault, and StoppedError if this
    call's executor is asked to stop.
    """
    folder = Path(spill_folder).absolute()
    if not any(map(needs_fetching, files)):
        return _scan_here(files, settings, folder, {})
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=folder) as copies:
        here, cuts = fetched(files, Path(copies))
        return _scan_here(here, settings, folder, cuts)


def _scan_here(files: Sequence[SourceFile], settings: CorpusSettings, folder: Path, cuts: dict[int, Cut]) -> ScanResult:
    how = ""
    for _ in range(_ATTEMPTS):
        answer = _scan(_process_for(files, settings), files, settings, folder, cuts)
        if isinstance(answer, ScanResult):
            return answer
        how = answer.how
        cuts |= _files_at_fault(files, settings, folder, answer)
    raise WorkerDied(
        f"the corpus cannot be read: the process that reads it ended {_ATTEMPTS} times, and no file is at fault (the "
        f"last time: {how}). Run the build again"
    )


def _files_at_fault(
    files: Sequence[SourceFile], settings: CorpusSettings, folder: Path, ended: ScanEnd | ScanResult
) -> dict[int, Cut]:
    """Return the cuts of a scan's unreadable files, by file number. The output of the trial scans is discarded."""
    cuts: dict[int, Cut] = {}
    done = 0
    with tempfile.TemporaryDirectory(prefix="trial-", dir=folder) as trial:
        while isinstance(ended, ScanEnd) and ended.file >= 0:
            number = done + ended.file
            if not ended.slow:
                ended = _scan(_new_process_for(files), files[number : number + 1], settings, Path(trial), {})
            if isinstance(ended, ScanEnd) and ended.file >= 0:
                cuts[number] = Cut(ended.rows, "too-slow" if ended.slow else "reader-failed", ended.how)
            done = number + 1
            ended = _scan(_process_for(files, settings), files[done:], settings, Path(trial), {})
    return cuts


def _process_for(files: Sequence[SourceFile], settings: CorpusSettings) -> ScanProcess:
    """Return a process that may read the files: records need a process with access to their source."""
    return take(settings.max_reading_memory_bytes) if _records(files) is None else _new_process_for(files)


def _new_process_for(files: Sequence[SourceFile]) -> ScanProcess:
    return ScanProcess(_records(files))


def _records(files: Sequence[SourceFile]) -> SourceSettings | None:
    return next((file.place for file in files if file.kind == RECORDS), None)


def _scan(
    process: ScanProcess, files: Sequence[SourceFile], settings: CorpusSettings, folder: Path, cuts: Mapping[int, Cut]
) -> ScanResult | ScanEnd:
    """Run one scan in a process, and keep the process if the scan finishes."""
    try:
        answer = process.scan(files, settings, folder, cuts)
    except BaseException:
        process.end()
        raise
    if isinstance(answer, ScanEnd):
        process.end()
        drop_partial(files, folder)
    elif _records(files) is None:
        give_back(process)
    else:
        process.end()
    if isinstance(answer, Exception):
        raise answer
    return answer
