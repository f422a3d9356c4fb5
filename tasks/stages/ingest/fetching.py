"""Files of other places, copied to this machine before a process without access to these places reads them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from indexmill.errors import DiskFull
from tasks.core.executor import StoppedError, stopped
from tasks.stages.ingest.places.place import ChangedError
from tasks.stages.ingest.sources import MISNAMED, RECORDS, SourceFile, place_of
from tasks.stages.ingest.spill import Cut

_AT_ONCE = 16
"""Objects of a bucket that are asked for at once."""
_PIECE = 1 << 20
"""The bytes of an object in memory at once."""


def needs_fetching(file: SourceFile) -> bool:
    """True for a file that is not of this machine; records are read where they are, misnamed files not at all."""
    return file.place is not None and file.kind not in (RECORDS, MISNAMED)


def fetched(files: Sequence[SourceFile], folder: Path) -> tuple[list[SourceFile], dict[int, Cut]]:
    """The files with a copy of each that is not of this machine, and the cuts of those that cannot be had.

    folder: for the copies. Raises PlaceError if a place cannot be read at all, DiskFull if the copies find no space,
    StoppedError if the executor of this call is told to stop.
    """
    found = list(files)
    cuts: dict[int, Cut] = {}
    wanted = [number for number, file in enumerate(files) if needs_fetching(file)]
    of_buckets = [number for number in wanted if _is_in_a_bucket(files[number])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {number: pool.submit(_fetch, files[number], folder / str(number)) for number in of_buckets}
        try:
            for number in wanted:
                if stopped():
                    raise StoppedError
                future = waiting.get(number)
                copy = _fetch(files[number], folder / str(number)) if future is None else future.result()
                if isinstance(copy, Path):
                    found[number] = replace(files[number], fetched=str(copy), size=copy.stat().st_size)
                else:
                    cuts[number] = copy
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found, cuts


def _is_in_a_bucket(file: SourceFile) -> bool:
    """True for a file that takes longer to ask for than to read, and whose place many threads may ask at once."""
    return file.place is not None and file.place.kind == "bucket"


def _fetch(file: SourceFile, copy: Path) -> Path | Cut:
    """A copy of a file, or why there is none."""
    assert file.place is not None  # noqa: S101 - the caller has looked
    try:
        with place_of(file.place, file.scratch).read(file.path, file.token) as stream, copy.open("xb") as sink:
            shutil.copyfileobj(stream, sink, _PIECE)
    except ChangedError as error:
        return Cut(0, "unreadable-file", f"{type(error).__name__}: {error}", stale=True)
    except OSError as error:
        if full := DiskFull.of(error, copy.parent, "files of other places are copied there before they are read"):
            raise full from error
        return Cut(0, "unreadable-file", f"{type(error).__name__}: {error}")
    return copy
