"""The hierarchy of lsh_tree, as ``indexmill show --tree`` draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from indexmill.text.counted import counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from indexmill.snapshot import Snapshot

__all__ = ["MOST", "drawing", "fitted", "largest", "outline", "under"]

MOST = 1000
"""Nodes of one outline at most, the upper layers first."""

TEXT = 200
"""Characters of a node's text in an outline."""

WIDTH = 120


def outline(snapshot: Snapshot, depth: int, width: int) -> dict[str, Any]:
    """The upper part of a snapshot's tree, as ``show --tree --json`` prints it.

    depth: layers from the roots down. width: roots, and children of a node, the largest first. A node is ``{"id",
    "kind", "layer", "passages", "text"}``, where ``passages`` counts those under it; a summary has ``"below"``, how
    many children it has, and those of them that are told in ``"children"``. Raises FamilyNotFound.
    """
    import numpy as np

    tree = snapshot.summaries.tree
    sizes = tree.sizes()
    roots = tree.roots()
    told: list[dict[str, Any]] = []
    tier = [(told, row) for row in largest(roots, sizes, width)]
    left = MOST
    for level in range(depth, 0, -1):
        tier = tier[:left]
        left -= len(tier)
        below = []
        for siblings, row in tier:
            node = _node(snapshot, row, int(sizes[row]))
            siblings.append(node)
            if row >= tree.passages:
                children = tree.children(np.array([row]))
                node |= {"below": len(children), "children": []}
                if level > 1:
                    below += [(node["children"], child) for child in largest(children, sizes, width)]
        tier = below
    return {
        "version": snapshot.version,
        "layers": [{"layer": layer, "nodes": len(tree.rows(layer))} for layer in range(tree.layers + 1)],
        "roots": len(roots),
        "tree": told,
    }


def largest(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], count: int) -> list[int]:
    """The first of some nodes, those with more under them before the others, then by row."""
    order = (-sizes[rows]).argsort(kind="stable")
    found: list[int] = rows[order[:count]].tolist()
    return found


def _node(snapshot: Snapshot, row: int, passages: int) -> dict[str, Any]:
    import numpy as np

    summaries = snapshot.summaries
    first = summaries.tree.passages
    if row < first:
        (hit,) = snapshot.passages.hits(np.array([row]), np.zeros(1))
        kind, identity, text = "passage", hit.id, f"{hit.title}: {hit.text}" if hit.title else hit.text
    else:
        at = np.array([row - first])
        kind, (identity,), (text,) = "summary", summaries.ids(at), summaries.texts(at)
    layer = summaries.tree.layer(row)
    return {"id": identity, "kind": kind, "layer": layer, "passages": passages, "text": text[:TEXT]}


def drawing(told: dict[str, Any], unnumbered: str) -> str:
    """An outline as text; ``unnumbered`` names a snapshot that has no version."""
    *_, top = told["layers"]
    counts = [one["nodes"] for one in told["layers"]]
    version = unnumbered if told["version"] is None else f"version {told['version']}"
    above = f"{counted(sum(counts[1:]), 'summary')}, {counted(told['roots'], 'root')}"
    lines = [f"{version}  {counted(counts[0], 'passage')} under {above}"]
    if top["layer"]:
        lines += [f"  layer {one['layer']}  {counted(one['nodes'], 'summary')}" for one in told["layers"][:0:-1]]
    else:
        lines.append("  no summaries: there are not more passages than one segment holds")
    lines.append("")
    for node in told["tree"]:
        lines += [fitted(_line(node), ""), *under(node, "", _line, "passages")]
    if more := told["roots"] - len(told["tree"]):
        lines.append(f"{more:,} more")
    return "\n".join(lines)


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


def _line(node: dict[str, Any]) -> str:
    if node["kind"] != "summary":
        return str(node["text"])
    grouped = f" in {node['below']:,}" if node["layer"] > 1 else ""
    return f"{counted(node['passages'], 'passage')}{grouped}: {node['text']}"
