"""What holds for every family: called by the families' own tests, on snapshots of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.errors import ConfigurationError
from indexmill.hits import Hit
from indexmill.snapshot import Snapshot
from indexmill.store.folder import FolderReader
from indexmill.store.verify import verify
from storage.folder import FolderStore
from tasks.core.report import Silent

Ask = Callable[[Snapshot, str, int], list[Hit]]


def gives_alone_what_a_batch_gives(snapshot: Snapshot, questions: Sequence[str], times: int = 1, **given: Any) -> None:
    """A question gets the same hits alone, in a batch in any order or ``times`` as long, and in several threads."""
    asked = list(questions)
    alone = [snapshot.retrieve(question, **given) for question in asked]
    assert snapshot.retrieve_batch(asked, **given) == alone
    assert snapshot.retrieve_batch(asked[::-1], **given)[::-1] == alone
    assert snapshot.retrieve_batch(asked * times, **given) == alone * times
    few = asked[:4]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda one: snapshot.retrieve(one, **given), few * 4)) == alone[:4] * 4


def refuses_parameters_of_a_newer_family(path: Path, written: Callable[..., object], ask: Ask) -> None:
    """A published parameter that is not known here is named, not ignored."""
    written(path, version=2, beam=3)
    with indexmill.open(path) as snapshot, pytest.raises(ConfigurationError, match=r"no parameters \['beam'\]"):
        ask(snapshot, "stone", 5)


def answers_alike_when_exported(store: Path, folder: Path, questions: Sequence[str], ask: Ask) -> None:
    """The exported folder answers as the store does, but for the version, and is whole."""
    export_snapshot(FolderStore(store), 1, folder, progress=Silent())
    with indexmill.open(store) as snapshot, indexmill.open(folder) as exported:
        assert exported.methods == snapshot.methods
        for question in questions:
            assert ask(exported, question, 9) == [replace(hit, version=None) for hit in ask(snapshot, question, 9)]
    assert verify(FolderReader(store)).ok
