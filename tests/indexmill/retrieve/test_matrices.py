from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.retrieve.columns import distinct
from indexmill.retrieve.matrices import Sparse, both_ways
from tests.deep import examples

HEIGHT, WIDTH = 5, 7
LINKS = st.lists(st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, 9)))


def dense(matrix: Sparse, width: int) -> list[list[int]]:
    """The matrix in full; its columns ascend within each row."""
    found = np.zeros((len(matrix), width), dtype=np.int64)
    for row in range(len(matrix)):
        places = np.arange(matrix.indptr[row], matrix.indptr[row + 1])
        assert (np.diff(matrix.indices[places]) > 0).all()
        found[row, matrix.indices[places]] = matrix.occurrences(places)
    return found.tolist()


@examples(20, deep=100)
@given(links=LINKS)
def test_links_are_added_up_by_rows_and_by_columns(links: list[tuple[int, int, int]]) -> None:
    rows, columns, counts = np.array(links, dtype=np.int32).reshape(-1, 3).T
    expected = np.zeros((HEIGHT, WIDTH), dtype=np.int64)
    np.add.at(expected, (rows, columns), counts)
    for weights, whole in ((counts, expected), (None, (expected > 0).astype(np.int64))):
        across, down = both_ways(rows, columns, weights, HEIGHT, WIDTH)
        assert dense(across, WIDTH) == whole.tolist()
        assert dense(down, HEIGHT) == whole.T.tolist()
        assert (across.indptr.dtype, across.indices.dtype, down.indices.dtype) == (np.int64, np.int32, np.int32)


@examples(20, deep=100)
@given(values=st.lists(st.integers(-(2**62), 2**62)))
def test_distinct_values_ascend(values: list[int]) -> None:
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
