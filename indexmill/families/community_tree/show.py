"""The hierarchy of community_tree, as ``indexmill show --communities`` draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.families.community_tree.nodes import TREE, communities_of
from indexmill.retrieve.matrices import Rows
from indexmill.text.counted import counted
from indexmill.text.outline import TEXT, drawn, outlined
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def outline(artifacts: Artifacts, depth: int, width: int) -> dict[str, Any]:
    """Return the upper part of a snapshot's communities, as ``show --communities --json`` prints it.

    depth: the number of levels, from the roots down. width: the maximum number of roots, and of members per node; the
    largest are chosen. A node is ``{"id", "kind", "level", "entities", "title", "text"}``, where ``entities`` is the
    number of entities under it. A community also has ``"rating"``, the number of its members as ``"below"``, and the
    chosen members as ``"children"``. Raises FamilyNotFound.
    """
    tree = communities_of(artifacts).tree
    roots = tree.roots()

    def members(row: int) -> Rows | None:
        return tree.members(row) if row >= tree.leaves else None

    return {
        "version": artifacts.version,
        "entities": tree.leaves,
        "levels": statistics(artifacts),
        "roots": len(roots),
        "tree": outlined(roots, tree.sizes, depth, width, partial(_node, artifacts), members),
    }


def _node(artifacts: Artifacts, row: int) -> dict[str, Any]:
    communities = communities_of(artifacts)
    named, level = communities.label(row), communities.tree.layer(row)
    rating = {"rating": communities.rating(row)} if level else {}
    return {
        "id": named.id,
        "kind": "community" if level else "entity",
        "level": level,
        "entities": int(communities.tree.sizes[row]),
        "title": named.title,
        "text": named.text[:TEXT],
        **rating,
    }


def drawing(hierarchy: dict[str, Any], unnumbered: str) -> str:
    """Draw an outline as text; ``unnumbered`` names a snapshot that has no version."""
    counts = {level: quality["communities"] for level, quality in hierarchy["levels"].items()}
    version = unnumbered if hierarchy["version"] is None else f"version {hierarchy['version']}"
    contents = f"{counted(sum(counts.values()), 'community')}, {counted(hierarchy['roots'], 'root')}"
    lines = [f"{version}  {counted(hierarchy['entities'], 'entity')} in {contents}"]
    for level, quality in reversed(hierarchy["levels"].items()):
        chi, sim = ("-" if quality[name] is None else f"{quality[name]:.3f}" for name in ("chi", "sim"))
        lines.append(f"  level {level}  {counted(quality['communities'], 'community')}, CHI {chi}, Sim {sim}")
    if not counts:
        lines.append("  no communities: nothing was extracted, or there are too few entities")
    lines.append("")
    return "\n".join([*lines, *drawn(hierarchy, _line, "entities")])


def _line(node: dict[str, Any]) -> str:
    if node["kind"] == "entity":
        return f"{node['title']}: {node['text']}" if node["text"] else str(node["title"])
    grouped = f" in {node['below']:,}" if node["level"] > 1 else ""
    return f"{counted(node['entities'], 'entity')}{grouped}, rating {node['rating']:g}: {node['title']}"


def statistics(artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    """Return the ``{"communities", "chi", "sim"}`` of each level: the number of communities, CHI and Sim (eqs. 5, 6).

    Undefined values are None; the result is empty for a snapshot without community_tree. Raises CorruptBlob.
    """
    if "community_tree" not in artifacts.manifest.families:
        return {}
    arrays = artifacts.arrays(TREE)
    offsets, quality = arrays["level_offsets"], arrays["quality"]
    return {
        str(level): {
            "communities": number,
            "chi": None if math.isnan(chi) else chi,
            "sim": None if math.isnan(sim) else sim,
        }
        for level, (number, (chi, sim)) in enumerate(
            zip(np.diff(offsets)[1:].tolist(), quality.tolist(), strict=True), start=1
        )
    }


def listing(levels: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the number and the quality of communities per level as text."""
    rows = [
        [
            level,
            f"{quality['communities']:,}",
            "-" if quality["chi"] is None else f"{quality['chi']:.3f}",
            "-" if quality["sim"] is None else f"{quality['sim']:.4f}",
        ]
        for level, quality in levels.items()
    ]
    return table(["level", "communities", "CHI", "Sim"], rows)


def other_counts(counts: Mapping[str, int], levels: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of the manifest, except those of the levels."""
    return {what: number for what, number in counts.items() if what.removeprefix("level_") not in levels}
