"""Threads for the tiles of a batch: order, errors, and the same bits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import indexmill
from indexmill.errors import BadInput
from indexmill.retrieve.threads import FEWEST, Threads
from tests.indexmill.test_methods import METHOD, built, questions


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("threads"))


@METHOD
def test_threads_change_no_bit(store: Path, method: str) -> None:
    with indexmill.open(store) as one, indexmill.open(store, threads=3) as several:
        asked = (questions(one) * 4)[:90]
        expected = one.retrieve_batch(asked, method=method, k=7)
        assert several.retrieve_batch(asked, method=method, k=7) == expected
        assert several.retrieve_batch(asked[5:70], method=method, k=7) == expected[5:70]
        assert several.retrieve(asked[8], method=method, k=7) == expected[8]


@METHOD
def test_batches_asked_at_once_share_the_threads(store: Path, method: str) -> None:
    with indexmill.open(store, threads=2) as snapshot, ThreadPoolExecutor(4) as callers:
        asked = (questions(snapshot) * 3)[:70]
        batches = [asked[i:] + asked[:i] for i in range(4)]
        found = list(callers.map(lambda batch: snapshot.retrieve_batch(batch, method=method), batches))
        for i, hits in enumerate(found):
            assert hits[70 - i :] + hits[: 70 - i] == found[0]


def test_parts_come_in_order_and_cover_the_batch() -> None:
    threads = Threads(3)
    for count in (0, 1, FEWEST, 65, 1000):
        parts = list(threads.each(lambda part: (part, threading.current_thread().name), count, 64))
        assert [i for part, _ in parts for i in range(count)[part]] == list(range(count))
        assert all(part.stop - part.start <= 64 for part, _ in parts)
        if count <= FEWEST:  # one question starts no thread
            assert all(name == threading.current_thread().name for _, name in parts)
    threads.close()


def test_the_first_error_is_raised_and_the_threads_go_on() -> None:
    def work(part: slice) -> int:
        if part.start >= 64:
            raise ValueError(part.start)
        return int(part.start)

    threads = Threads(2)
    for _ in range(2):
        found = []
        with pytest.raises(ValueError, match="64"):
            found.extend(threads.each(work, 256, 32))
    threads.close()


def test_no_threads_are_refused(store: Path) -> None:
    with pytest.raises(BadInput, match="threads=0"):
        indexmill.open(store, threads=0)
