"""Pairs of entities with nearly the same names, for ``indexmill show --same-as``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.errors import FamilyNotFound
from indexmill.retrieve.method_registry import enable
from indexmill.retrieve.same_names import same_names
from indexmill.text.counted import counted
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

MOST = 100
"""The maximum number of pairs printed without ``--json``."""


def pairs(snapshot: Snapshot) -> dict[str, Any]:
    """List the pairs in a snapshot, as ``show --same-as --json`` prints them: the most similar first, ties by id.

    A pair is ``{"entities": [{"id", "surface"}, {"id", "surface"}], "cosine", "likeness"}``. Raises FamilyNotFound if
    the snapshot has no table of pairs.
    """
    same_as_pairs = same_names(snapshot)
    if same_as_pairs is None:
        raise FamilyNotFound(
            f"{snapshot.path}: the snapshot has no table 'same_as': no names were compared; set "
            f"`resolve: {{description: {{enabled: true}}}}` or {enable('described')} in indexmill.yaml, and build"
        )
    return {"version": snapshot.version, "same_as": same_as_pairs}


def listing(pairs_json: dict[str, Any], unnumbered: str) -> str:
    """Format the pairs as a table."""
    version = unnumbered if pairs_json["version"] is None else f"version {pairs_json['version']}"
    same_as_pairs = pairs_json["same_as"]
    if not same_as_pairs:
        return f"{version}: no two entities have nearly the same name"
    rows = [
        [*(entity["surface"] for entity in pair["entities"]), pair["likeness"], pair["cosine"]]
        for pair in same_as_pairs[:MOST]
    ]
    header = ["entity", "other entity", "likeness", "cosine"]
    lines = [f"{version}: {counted(len(same_as_pairs), 'pair')}", "", table(header, rows)]
    if len(same_as_pairs) > MOST:
        lines += ["", f"and {len(same_as_pairs) - MOST:,} more: --json has them all"]
    return "\n".join(lines)
