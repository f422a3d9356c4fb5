"""The hierarchy of community_tree, as ``indexmill show --communities`` draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.families.lsh_tree.show import MOST, TEXT, fitted, largest, under
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["drawing", "outline"]


def outline(snapshot: Snapshot, depth: int, width: int) -> dict[str, Any]:
    """The upper part of a snapshot's communities, as ``show --communities --json`` prints it.

    depth: levels from the roots down. width: roots, and members of a node, the largest first. A node is ``{"id",
    "kind", "level", "entities", "title", "text"}``, where ``entities`` counts those under it; a community has
    ``"rating"``, ``"below"``, how many members it has, and those of them that are told in ``"children"``. Raises
    FamilyNotFound.
    """
    from indexmill.families.community_tree.nodes import quality

    tree = snapshot.communities.tree
    roots = tree.roots()
    told: list[dict[str, Any]] = []
    tier = [(told, row) for row in largest(roots, tree.sizes, width)]
    left = MOST
    for level in range(depth, 0, -1):
        tier = tier[:left]
        left -= len(tier)
        below = []
        for siblings, row in tier:
            node = _node(snapshot, row)
            siblings.append(node)
            if row >= tree.entities:
                members = tree.members(row)
                node |= {"rating": snapshot.communities.rating(row), "below": len(members), "children": []}
                if level > 1:
                    below += [(node["children"], member) for member in largest(members, tree.sizes, width)]
        tier = below
    return {
        "version": snapshot.version,
        "entities": tree.entities,
        "levels": quality(snapshot),
        "roots": len(roots),
        "tree": told,
    }


def _node(snapshot: Snapshot, row: int) -> dict[str, Any]:
    communities = snapshot.communities
    named, level = communities.told(row), communities.tree.level(row)
    return {
        "id": named.id,
        "kind": "community" if level else "entity",
        "level": level,
        "entities": int(communities.tree.sizes[row]),
        "title": named.title,
        "text": named.text[:TEXT],
    }


def drawing(told: dict[str, Any], unnumbered: str) -> str:
    """An outline as text; ``unnumbered`` names a snapshot that has no version."""
    counts = {level: one["communities"] for level, one in told["levels"].items()}
    version = unnumbered if told["version"] is None else f"version {told['version']}"
    held = f"{counted(sum(counts.values()), 'community')}, {counted(told['roots'], 'root')}"
    lines = [f"{version}  {counted(told['entities'], 'entity')} in {held}"]
    for level, one in reversed(told["levels"].items()):
        chi, sim = ("-" if one[name] is None else f"{one[name]:.3f}" for name in ("chi", "sim"))
        lines.append(f"  level {level}  {counted(one['communities'], 'community')}, CHI {chi}, Sim {sim}")
    if not counts:
        lines.append("  no communities: nothing was extracted, or too few entities")
    lines.append("")
    for node in told["tree"]:
        lines += [fitted(_line(node), ""), *under(node, "", _line, "entities")]
    if more := told["roots"] - len(told["tree"]):
        lines.append(f"{more:,} more")
    return "\n".join(lines)


def _line(node: dict[str, Any]) -> str:
    if node["kind"] == "entity":
        return f"{node['title']}: {node['text']}" if node["text"] else str(node["title"])
    grouped = f" in {node['below']:,}" if node["level"] > 1 else ""
    return f"{counted(node['entities'], 'entity')}{grouped}, rating {node['rating']:g}: {node['title']}"
