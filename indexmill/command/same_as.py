"""The entities whose names are nearly the same, as ``indexmill show --same-as`` tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.errors import FamilyNotFound
from indexmill.retrieve.registry import enable
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["MOST", "listing", "pairs"]

MOST = 100
"""Pairs that are printed for people, the most alike first."""


def pairs(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot's pairs, as ``show --same-as --json`` prints them: the most alike first, ties by id.

    A pair is ``{"entities": [{"id", "surface"}, {"id", "surface"}], "cosine", "likeness"}``. Raises FamilyNotFound
    where the snapshot has no table of them.
    """
    import pyarrow.compute as pc

    if not snapshot.shards("same_as"):
        raise FamilyNotFound(
            f"{snapshot.path}: the snapshot has no table 'same_as': no names were compared; set "
            f"`resolve: {{description: {{enabled: true}}}}` or {enable('described')} in indexmill.yaml, and build"
        )
    found = snapshot.table("same_as")
    if not len(found):
        return {"version": snapshot.version, "same_as": []}
    described = snapshot.table("described", ["entity_id", "surface"])
    ids = described["entity_id"].combine_chunks()
    surfaces = described["surface"].combine_chunks()
    order = [
        ("likeness", "descending"),
        ("cosine", "descending"),
        ("entity_id", "ascending"),
        ("other_id", "ascending"),
    ]
    found = found.sort_by(order)
    ends = []
    for name in ("entity_id", "other_id"):
        shown = surfaces.take(pc.index_in(found[name], ids).combine_chunks()).to_pylist()
        ends.append(list(zip(found[name].to_pylist(), shown, strict=True)))
    numbers = (found[name].to_pylist() for name in ("cosine", "likeness"))
    return {
        "version": snapshot.version,
        "same_as": [
            {
                "entities": [{"id": identity, "surface": surface} for identity, surface in both],
                "cosine": round(cosine, 4),
                "likeness": round(likeness, 4),
            }
            for *both, cosine, likeness in zip(*ends, *numbers, strict=True)
        ],
    }


def listing(told: dict[str, Any], unnumbered: str) -> str:
    """The pairs as a table for people."""
    version = unnumbered if told["version"] is None else f"version {told['version']}"
    found = told["same_as"]
    if not found:
        return f"{version}: no two entities have nearly the same name"
    rows = [[*(one["surface"] for one in pair["entities"]), pair["likeness"], pair["cosine"]] for pair in found[:MOST]]
    lines = [f"{version}: {len(found):,} pairs", "", table(["entity", "other entity", "likeness", "cosine"], rows)]
    if len(found) > MOST:
        lines += ["", f"and {len(found) - MOST:,} more: --json has them all"]
    return "\n".join(lines)
