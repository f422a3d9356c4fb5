"""Copy files of remote sources to this machine, so that a process without access to the sources can read them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from indexmill.errors import DiskFull
from tasks.core.executor import StoppedError, stopped
from tasks.stages.ingest.source_files import MISNAMED, RECORDS, SourceFile, source_of
from tasks.stages.ingest.sources.source_interface import ChangedError
from tasks.stages.ingest.spill import Cut

_AT_ONCE = 16
"""The number of concurrent downloads from a bucket."""
_PIECE = 1 << 20
"""The maximum number of bytes of an object in memory at once."""


def needs_fetching(file: SourceFile) -> bool:
    """Return whether a file must be copied: it is remote, is not a record source, and its name is valid UTF-8."""
    return file.place is not None and file.kind not in (RECORDS, MISNAMED)


def fetched(files: Sequence[SourceFile], folder: Path) -> tuple[list[SourceFile], dict[int, Cut]]:
    """Copy the remote files into a folder. Returns all files, and the cuts of files not fetched, by file number.

    Raises SourceError if a source cannot be read at all, DiskFull if there is no space for the copies, StoppedError if
    this call's executor is asked to stop.
    """
    local_files = list(files)
    cuts: dict[int, Cut] = {}
    remote = [number for number, file in enumerate(files) if needs_fetching(file)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {
            number: pool.submit(_fetch, files[number], folder / str(number))
            for number in remote
            if getattr(files[number].place, "kind", "") == "bucket"  # a request takes longer than its transfer
        }
        try:
            for number in remote:
                if stopped():
                    raise StoppedError
                future = waiting.get(number)
                copy = _fetch(files[number], folder / str(number)) if future is None else future.result()
                if isinstance(copy, Path):
                    local_files[number] = replace(files[number], fetched=str(copy), size=copy.stat().st_size)
                else:
                    cuts[number] = copy
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return local_files, cuts


def _fetch(file: SourceFile, copy: Path) -> Path | Cut:
    assert file.place is not None  # noqa: S101 - the caller has checked
    try:
        with source_of(file.place, file.scratch).read(file.path, file.token) as stream, copy.open("xb") as sink:
            shutil.copyfileobj(stream, sink, _PIECE)
    except OSError as error:
        if full := DiskFull.of(error, copy.parent, "files of remote sources are copied there before they are read"):
            raise full from error
        return Cut(0, "unreadable-file", f"{type(error).__name__}: {error}", stale=isinstance(error, ChangedError))
    return copy
