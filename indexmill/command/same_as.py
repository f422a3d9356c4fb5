"""The entities whose names are nearly the same, as ``indexmill show --same-as`` tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.errors import FamilyNotFound
from indexmill.retrieve.registry import enable
from indexmill.retrieve.same_names import same_names
from indexmill.text.counted import counted
from indexmill.text.table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

MOST = 100
"""Pairs that are printed for people, the most alike first."""


def pairs(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot's pairs, as ``show --same-as --json`` prints them: the most alike first, ties by id.

    A pair is ``{"entities": [{"id", "surface"}, {"id", "surface"}], "cosine", "likeness"}``. Raises FamilyNotFound
    where the snapshot has no table of them.
    """
    found = same_names(snapshot)
    if found is None:
        raise FamilyNotFound(
            f"{snapshot.path}: the snapshot has no table 'same_as': no names were compared; set "
            f"`resolve: {{description: {{enabled: true}}}}` or {enable('described')} in indexmill.yaml, and build"
        )
    return {"version": snapshot.version, "same_as": found}


def listing(told: dict[str, Any], unnumbered: str) -> str:
    """The pairs as a table for people."""
    version = unnumbered if told["version"] is None else f"version {told['version']}"
    found = told["same_as"]
    if not found:
        return f"{version}: no two entities have nearly the same name"
    rows = [[*(one["surface"] for one in pair["entities"]), pair["likeness"], pair["cosine"]] for pair in found[:MOST]]
    header = ["entity", "other entity", "likeness", "cosine"]
    lines = [f"{version}: {counted(len(found), 'pair')}", "", table(header, rows)]
    if len(found) > MOST:
        lines += ["", f"and {len(found) - MOST:,} more: --json has them all"]
    return "\n".join(lines)
