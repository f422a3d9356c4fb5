"""The check refuses postings that do not fit their passages."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.bm25 import postings
from tasks.check import CheckError, check_postings

WHOLE = postings(["", "", ""], ["a lamp", "lamp lamp", "river"], 0)


def test_whole_postings_pass() -> None:
    check_postings(WHOLE, 3, "bm25/p")
    check_postings(postings([], [], 0), 0, "bm25/p")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": WHOLE["lengths"][:2]}, "2 lengths for 3 passages"),
        ({"lengths": WHOLE["lengths"][::-1]}, "add up"),
        ({"counts": WHOLE["counts"] + np.uint8(1)}, "add up"),
        ({"counts": WHOLE["counts"][:-1]}, "fit each other"),
        ({"keys": WHOLE["keys"][::-1]}, "order of their keys"),
        ({"keys": WHOLE["keys"][:-1]}, "fit each other"),
        ({"indptr": WHOLE["indptr"][::-1]}, "fit each other"),
        ({"indptr": WHOLE["indptr"][:0]}, "fit each other"),
        ({"passages": WHOLE["passages"][::-1]}, "order of their rows"),
        ({"passages": WHOLE["passages"] + np.uint8(3)}, "order of their rows"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_postings(WHOLE | changed, 3, "bm25/p")
