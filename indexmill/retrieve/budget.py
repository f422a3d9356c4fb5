"""What fits into a budget of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["fitting"]


def fitting(tokens: Iterable[int], budget: int | None) -> list[int]:
    """The places of those texts that fit into the budget, taken in turn; one that does not fit is passed over."""
    places = []
    left = math.inf if budget is None else budget
    for place, count in enumerate(tokens):
        if count <= left:
            places.append(place)
            left -= count
    return places
