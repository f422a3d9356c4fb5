"""The pairs of entities whose names are nearly the same: the rows of the table ``same_as``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def same_names(artifacts: Artifacts, most: int | None = None) -> list[dict[str, Any]] | None:
    """List a snapshot's pairs of similar names, most alike first, ties by id; None if it has no such table.

    A pair is ``{"entities": [{"id", "surface"}, {"id", "surface"}], "cosine", "likeness"}``. most: the maximum number
    of pairs. Raises CorruptBlob.
    """
    import pyarrow.compute as pc

    if not artifacts.shards("same_as"):
        return None
    pairs = artifacts.table("same_as")
    if not len(pairs):
        return []
    described = artifacts.table("described", ["entity_id", "surface"])
    ids = described["entity_id"].combine_chunks()
    surfaces = described["surface"].combine_chunks()
    ends = ("entity_id", "other_id")
    order = [("likeness", "descending"), ("cosine", "descending"), *((end, "ascending") for end in ends)]
    pairs = pairs.sort_by(order)[:most]
    for end in ends:
        pairs = pairs.append_column(f"surface of {end}", surfaces.take(pc.index_in(pairs[end], ids)))
    return [
        {
            "entities": [{"id": pair[end], "surface": pair[f"surface of {end}"]} for end in ends],
            "cosine": round(pair["cosine"], 4),
            "likeness": round(pair["likeness"], 4),
        }
        for pair in pairs.to_pylist()
    ]
