"""Hierarchies as text: which nodes are drawn, and the lines of a drawing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from indexmill.text.printable import one_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MOST", "TEXT", "fitted", "largest", "under"]

MOST = 1000
"""Nodes of one outline at most, the upper layers first."""


TEXT = 200
"""Characters of a node's text in an outline."""


WIDTH = 120


def largest(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], count: int) -> list[int]:
    """The first of some nodes, those with more under them before the others, then by row."""
    order = (-sizes[rows]).argsort(kind="stable")
    found: list[int] = rows[order[:count]].tolist()
    return found


def under(node: dict[str, Any], indent: str, line: Callable[[dict[str, Any]], str], unit: str) -> list[str]:
    """The lines of all that is told under a node, one for each; ``unit`` is what nodes count."""
    children = node.get("children")
    if not children:
        return []
    more = node["below"] - len(children)
    lines = []
    for number, child in enumerate(children, start=1):
        last = number == len(children) and not more
        lines.append(fitted(line(child), indent + ("└─ " if last else "├─ ")))
        lines += under(child, indent + ("   " if last else "│  "), line, unit)
    if more:
        hidden = node[unit] - sum(child[unit] for child in children)
        lines.append(f"{indent}└─ {more:,} more, {hidden:,} {unit}")
    return lines


def fitted(line: str, indent: str) -> str:
    """A text as one line of the drawing."""
    text = " ".join(one_line(line).split())
    room = max(WIDTH - len(indent), 40)
    return indent + (text if len(text) <= room else text[: room - 1].rstrip() + "…")
