"""What `check` refuses of zoom_graph's matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.core.checks import CheckError
from tasks.families.zoom_graph.check import check_matrices

SOUND: dict[str, Any] = {
    "passage_document": np.array([0, 0, 1, 2]),
    "documents.indptr": np.array([0, 1, 3, 4]),
    "documents.indices": np.array([1, 0, 2, 1]),
    "documents.weights": np.array([2.0, 2.0, 1.5, 1.5], dtype=np.float32),
    "entities.indptr": np.array([0, 0, 0]),
    "entities.indices": np.array([], dtype=np.int32),
    "entities.weights": np.array([], dtype=np.float32),
}


def check(**changes: Any) -> None:
    pack = {**SOUND, **{name.replace("_", ".", 1): value for name, value in changes.items()}}
    check_matrices(pack, {"documents": 3, "passages": 4, "entities": 2})


def test_a_sound_graph_passes() -> None:
    check()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"documents_weights": np.array([2.0, 2.0, 1.5, 1.25], dtype=np.float32)}, "symmetric"),
        ({"documents_indices": np.array([1, 2, 0, 1])}, "symmetric"),
        ({"documents_indptr": np.array([0, 1, 4])}, "expected 4 where it has 3"),
        ({"entities_indptr": np.array([0, 0])}, "expected 3 where it has 2"),
        (
            {
                "documents_indptr": np.array([0, 1, 1, 1]),
                "documents_indices": np.array([0]),
                "documents_weights": np.array([1.0], dtype=np.float32),
            },
            "linked to themselves",
        ),
    ],
)
def test_a_broken_one_does_not(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckError, match=why):
        check(**changes)
