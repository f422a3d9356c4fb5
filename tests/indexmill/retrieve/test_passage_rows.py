"""Passages by their ids."""

from __future__ import annotations

import numpy as np

from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.snapshot import Snapshot


def test_rows_are_found_by_ids_across_shards(snapshot: Snapshot) -> None:
    passages = passages_of(snapshot)
    every = passages.ids(np.arange(len(passages)))
    assert passages.rows_of(every).tolist() == list(range(len(passages)))
    assert passages.rows_of([every[-1], "unknown", every[0]]).tolist() == [len(passages) - 1, -1, 0]
    assert passages.rows_of([]).tolist() == []


def test_without_entities_nothing_names_one(snapshot: Snapshot) -> None:
    across, back = entity_labels_of(snapshot).passages()
    assert (len(across), len(back)) == (0, len(passages_of(snapshot)))
