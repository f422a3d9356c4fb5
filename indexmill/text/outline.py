"""Hierarchies as text: selecting and drawing nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from indexmill.text.printable import one_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST = 1000
"""The maximum number of nodes per outline, the upper layers first."""


TEXT = 200
"""The maximum number of characters of a node's text in an outline."""


WIDTH = 120


def largest(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], count: int) -> list[int]:
    """Return the rows of the ``count`` largest nodes, the largest first; equal sizes keep the given order."""
    order = (-sizes[rows]).argsort(kind="stable")
    nodes: list[int] = rows[order[:count]].tolist()
    return nodes


def outlined(
    roots: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    depth: int,
    width: int,
    node: Callable[[int], dict[str, Any]],
    members: Callable[[int], npt.NDArray[np.int64] | None],
) -> list[dict[str, Any]]:
    """Return the upper part of a hierarchy as nested nodes, with ``below`` (a count) and ``children`` in inner nodes.

    sizes: ``(n_nodes,)``, the number of items under each node. depth: the number of layers, roots included. width: the
    maximum number of roots, and of children per node, the largest first. node: returns the fields of the node in a row.
    members: returns the rows directly below a node; None for a leaf.
    """
    outline: list[dict[str, Any]] = []
    tier = [(outline, row) for row in largest(roots, sizes, width)]
    remaining = MOST
    for level in range(depth, 0, -1):
        tier = tier[:remaining]
        remaining -= len(tier)
        below = []
        for siblings, row in tier:
            entry = node(row)
            siblings.append(entry)
            if (inside := members(row)) is not None:
                entry |= {"below": len(inside), "children": []}
                if level > 1:
                    below += [(entry["children"], member) for member in largest(inside, sizes, width)]
        tier = below
    return outline


def drawn(outline: dict[str, Any], line: Callable[[dict[str, Any]], str], unit: str) -> list[str]:
    """Draw ``outline["tree"]`` as lines; a last line counts omitted roots, if any."""
    lines = []
    for node in outline["tree"]:
        lines += [_fitted(line(node), ""), *_under(node, "", line, unit)]
    more = outline["roots"] - len(outline["tree"])
    return [*lines, f"{more:,} more"] if more else lines


def _under(node: dict[str, Any], indent: str, line: Callable[[dict[str, Any]], str], unit: str) -> list[str]:
    """Draw the nodes below a node, one per line. unit: the key of the nodes' counts."""
    children = node.get("children")
    if not children:
        return []
    more = node["below"] - len(children)
    lines = []
    for number, child in enumerate(children, start=1):
        last = number == len(children) and not more
        lines.append(_fitted(line(child), indent + ("└─ " if last else "├─ ")))
        lines += _under(child, indent + ("   " if last else "│  "), line, unit)
    if more:
        hidden = node[unit] - sum(child[unit] for child in children)
        lines.append(f"{indent}└─ {more:,} more, {hidden:,} {unit}")
    return lines


def _fitted(line: str, indent: str) -> str:
    """Indent a line of the drawing, and cut it to WIDTH; its text keeps at least 40 characters."""
    text = " ".join(one_line(line).split())
    room = max(WIDTH - len(indent), 40)
    return indent + (text if len(text) <= room else text[: room - 1].rstrip() + "…")
