"""What runs read, as their records keep it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import folder
from storage.folder import init_folder
from storage.readings import ReadingRecord, find_reading, put_reading


class Crash(Exception):
    """The end of a process."""


def reading(fingerprint: str) -> ReadingRecord:
    return ReadingRecord(fingerprint=fingerprint * 64, formats={}, files=(), rows=(), refused=())


def test_a_run_that_reads_again_and_dies_leaves_the_one_reading_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for dies_at in range(20):
        store = init_folder(tmp_path / str(dies_at))
        put_reading(store, "run", reading("a"))
        left = iter(range(dies_at))

        def step(what: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Crash(what)

        with monkeypatch.context() as patched:
            patched.setattr(folder, "fault_point", step)
            try:
                put_reading(store, "run", reading("b"))
            except Crash:
                done = False
            else:
                done = True
        there = [name for name in "ab" if find_reading(store, name * 64) is not None]
        assert len(there) == 1
        found += there
        if done:
            break
    assert found == sorted(found)
    assert {found[0], found[-1]} == {"a", "b"}
