"""The checks of bm25: postings agree with each other and with their passages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.bm25.schema import POSTINGS
from indexmill.retrieve.term_index import FIELD_ARRAYS, FIELDS
from tasks.core.checks import Check, check_pack, refuse_if
from tasks.core.stage import Input, Part


def _check(part: Part[Any], counts: Mapping[str, int]) -> None:
    check_postings(part.pack("bm25"), counts["passages"], f"bm25/{part.job.shard}")


def check_postings(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    """Raise CheckError if a shard's bm25 arrays contradict each other or its passages."""
    check_pack(POSTINGS, pack, where, {"own passages": rows})
    for field in FIELDS:
        _check_field({name: pack[field + name] for name in FIELD_ARRAYS}, rows, f"{where} {field}".rstrip(" ."))


def _check_field(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    keys, ends, passages = pack["keys"], pack["indptr"].astype(np.int64), pack["passages"].astype(np.int64)
    refuse_if(bool((keys[1:] <= keys[:-1]).any()), f"{where}: the terms are not in the order of their keys")
    passage_counts = np.diff(ends)
    refuse_if(bool((passage_counts < 1).any()), f"{where}: a term has no passages")
    place = np.arange(len(keys)).repeat(passage_counts) * rows + passages
    refuse_if(bool((np.diff(place) <= 0).any()), f"{where}: a term's passages are not in the order of their rows")
    words = np.bincount(passages, pack["counts"], rows)
    refuse_if(bool((words != pack["lengths"]).any()), f"{where}: occurrences do not add up to the passages' lengths")


CHECKS = (Check((Input("bm25", POSTINGS),), _check),)
