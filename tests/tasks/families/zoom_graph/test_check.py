"""What `check` refuses of zoom_graph's vectors and links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tasks.core.checks import CheckError
from tasks.families.zoom_graph.check import check_links
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index, only
from tests.tasks.making import Built, Check

NAMES = np.array([10, 20, 30, 40], dtype=np.uint64)
SOUND: dict[str, Any] = {
    "names": np.array([10, 20, 30], dtype=np.uint64),
    "indptr": np.array([0, 2, 3, 3], dtype=np.uint8),
    "partners": np.array([1, 2, 2], dtype=np.uint8),
    "steps": np.array([5, 6, 7], dtype=np.int16),
}
OTHER: dict[str, Any] = {
    "names": np.array([30, 40], dtype=np.uint64),
    "indptr": np.array([0, 1, 1], dtype=np.uint8),
    "partners": np.array([1], dtype=np.uint8),
    "steps": np.array([8], dtype=np.int16),
}


def test_sound_links_pass() -> None:
    check_links("document_links", [SOUND, OTHER], NAMES)
    check_links("document_links", [OTHER, SOUND], NAMES[::-1])
    check_links("document_links", [], NAMES[:0])


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([SOUND, SOUND], "in two blocks"),
        ([{**OTHER, "names": np.array([30, 41], dtype=np.uint64)}], "a row that does not exist"),
        ([{**SOUND, "partners": np.array([0, 2, 2], dtype=np.uint8)}], "not listed under its lower name"),
        ([{**SOUND, "partners": np.array([1, 1, 2], dtype=np.uint8)}], "do not ascend"),
        ([{**SOUND, "steps": np.array([1, 2], dtype=np.int16)}], "has the shape"),
    ],
)
def test_broken_ones_do_not(blocks: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(CheckError, match=why):
        check_links("document_links", blocks, NAMES)


@pytest.fixture(scope="module")
def shard() -> Iterator[Check]:
    """The check of a shard of documents."""
    with quick_folder() as folder:
        Index(folder / "store", families=only("zoom_graph")).build(documents(30))
        built = Built(folder / "store")
        found: dict[str, str] = {}
        label = min(label for stage, label in built.outputs if stage == "ingest")
        for (_, own), outputs in built.outputs.items():
            found |= outputs if own == label else {}
        yield Check(built.store, label, found)


def test_vectors_of_the_shard_pass(shard: Check) -> None:
    shard.run()


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("keys", lambda held: held[::-1], "the vectors belong to other documents"),
        ("vectors", lambda held: held[:-1], "has the shape"),
        ("vectors", lambda held: np.full_like(held, 5_000), "expected less than 4001"),
    ],
)
def test_vectors_of_other_documents_are_refused(shard: Check, name: str, wrong: Any, why: str) -> None:
    with pytest.raises(CheckError, match=why):
        shard.with_arrays("document_vectors", **{name: wrong(shard.pack("document_vectors")[name])}).run()
