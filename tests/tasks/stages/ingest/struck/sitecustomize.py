"""For processes that read corpora, by PYTHONPATH: texts that do to the reading process what they say."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import DiskFull
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import spill
from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.source_files import SourceFile

_read = spill.read
_kept: list[bytearray] = []


def strike(text: str) -> None:
    """Do to this process what a text asks for."""
    if "shows" in text:
        Path(text.split()[-1]).touch()
    if "crashes" in text:
        ctypes.string_at(0)
    if "aborts" in text:
        os.abort()
    if "computes" in text:
        re.match("(a+)+$", "a" * 64 + "b")  # for years, without letting any other thread run
    if "sleeps" in text:
        time.sleep(float(text.split()[-1]))
    if "swells" in text:
        bytearray(1 << 40)
    if "keeps" in text:
        _kept.append(bytearray(int(text.split()[-1]) << 20))
    if "cannot be loaded" in text:
        raise ImportError("failed to map segment from shared object", name="lxml.etree")
    if "is not installed" in text:
        raise ModuleNotFoundError("No module named 'lxmk'", name="lxmk")
    if "raises" in text:
        raise ValueError("hell")
    if "fills the disk" in text:
        raise DiskFull("no space left, says the test")
    if "dies once" in text and not (mark := Path(text.split()[-1])).exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def read(source: SourceFile, settings: CorpusSettings) -> Iterator[SourceRow | RejectedRow]:
    """The rows of a file, each after its text had its effect."""
    for row in _read(source, settings):
        if isinstance(row, SourceRow):
            strike(str(row.record.get("text")))
        yield row


spill.read = read
