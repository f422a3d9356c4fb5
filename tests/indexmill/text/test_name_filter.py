"""The filter of names: it lets every name through, and little else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.name_filter import NameFilter


def column(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of some texts one after the other, and where each begins and the last ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])


def likely(made: NameFilter, texts: list[str], before: str = "") -> list[bool]:
    """Which of some texts are let through, wherever they stand in a longer one."""
    text, bounds = column([before, *texts])
    found: list[bool] = made.likely(text, bounds[1:-1], bounds[2:]).tolist()
    return found


@given(st.lists(st.lists(st.text(), max_size=8), min_size=1, max_size=4), st.text())
def test_every_name_is_let_through_wherever_it_stands(shards: list[list[str]], before: str) -> None:
    made = NameFilter(map(column, shards), sum(map(len, shards)) or 1)
    assert all(likely(made, [name for names in shards for name in names], before))


def test_little_else_is_let_through() -> None:
    names = [f"bridge {i} of vell" for i in range(20_000)]
    made = NameFilter([column(names)], len(names))
    others = [f"bridge {i} over vell" for i in range(20_000)]
    assert all(likely(made, names))
    assert sum(likely(made, others)) < len(others) / 20
    assert sum(likely(made, [name[::-1] for name in others])) < len(others) / 20
