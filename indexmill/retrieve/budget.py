"""Selection of texts within a token budget."""

from __future__ import annotations

import math
from collections.abc import Iterable


def fitting(tokens: Iterable[int], budget: int | None) -> list[int]:
    """Return the positions of the texts that fit into the budget, in order; a text that does not fit is skipped."""
    chosen = []
    remaining = math.inf if budget is None else budget
    for position, count in enumerate(tokens):
        if count <= remaining:
            chosen.append(position)
            remaining -= count
    return chosen
