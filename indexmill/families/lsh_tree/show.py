"""The hierarchy of lsh_tree, as ``indexmill show --tree`` draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.text.counted import counted
from indexmill.text.outline import TEXT, drawn, outlined

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def outline(artifacts: Artifacts, depth: int, width: int) -> dict[str, Any]:
    """Return the upper part of a snapshot's tree, as ``show --tree --json`` prints it.

    depth: the number of layers, from the roots down. width: the maximum number of roots, and of children per node; the
    largest are chosen. A node is ``{"id", "kind", "layer", "passages", "text"}``, where ``passages`` is the number of
    passages under it. A summary also has the number of its children as ``"below"``, and the chosen children as
    ``"children"``. Raises FamilyNotFound.
    """
    tree = summaries_of(artifacts).tree
    sizes = tree.summed(np.ones(tree.leaves, np.int64))
    roots = tree.roots()

    def members(row: int) -> npt.NDArray[np.int64] | None:
        return tree.members(row) if row >= tree.leaves else None

    return {
        "version": artifacts.version,
        "layers": [{"layer": layer, "nodes": len(tree.rows(layer))} for layer in range(tree.height + 1)],
        "roots": len(roots),
        "tree": outlined(roots, sizes, depth, width, lambda row: _node(artifacts, row, int(sizes[row])), members),
    }


def _node(artifacts: Artifacts, row: int, passages: int) -> dict[str, Any]:
    summaries = summaries_of(artifacts)
    first = summaries.tree.leaves
    if row < first:
        (hit,) = passages_of(artifacts).hits(np.array([row]), np.zeros(1))
        kind, identity, text = "passage", hit.id, f"{hit.title}: {hit.text}" if hit.title else hit.text
    else:
        at = np.array([row - first])
        kind, (identity,), (text,) = "summary", summaries.ids(at), summaries.texts(at)
    layer = summaries.tree.layer(row)
    return {"id": identity, "kind": kind, "layer": layer, "passages": passages, "text": text[:TEXT]}


def drawing(hierarchy: dict[str, Any], unnumbered: str) -> str:
    """Draw an outline as text; ``unnumbered`` names a snapshot that has no version."""
    *_, top = hierarchy["layers"]
    counts = [layer["nodes"] for layer in hierarchy["layers"]]
    version = unnumbered if hierarchy["version"] is None else f"version {hierarchy['version']}"
    above = f"{counted(sum(counts[1:]), 'summary')}, {counted(hierarchy['roots'], 'root')}"
    lines = [f"{version}  {counted(counts[0], 'passage')} under {above}"]
    if top["layer"]:
        lines += [
            f"  layer {layer['layer']}  {counted(layer['nodes'], 'summary')}" for layer in hierarchy["layers"][:0:-1]
        ]
    else:
        lines.append("  no summaries: all passages fit in one segment")
    lines.append("")
    return "\n".join([*lines, *drawn(hierarchy, _line, "passages")])


def _line(node: dict[str, Any]) -> str:
    if node["kind"] != "summary":
        return str(node["text"])
    grouped = f" in {node['below']:,}" if node["layer"] > 1 else ""
    return f"{counted(node['passages'], 'passage')}{grouped}: {node['text']}"
