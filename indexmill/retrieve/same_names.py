"""The pairs of entities whose names are nearly the same: the rows of the table ``same_as``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def same_names(artifacts: Artifacts, most: int | None = None) -> list[dict[str, Any]] | None:
    """A snapshot's pairs, the most alike first, ties by id; None where it has no table of them.

    A pair is ``{"entities": [{"id", "surface"}, {"id", "surface"}], "cosine", "likeness"}``. most: how many at most.
    Raises CorruptBlob.
    """
    import pyarrow.compute as pc

    if not artifacts.shards("same_as"):
        return None
    found = artifacts.table("same_as")
    if not len(found):
        return []
    described = artifacts.table("described", ["entity_id", "surface"])
    ids = described["entity_id"].combine_chunks()
    surfaces = described["surface"].combine_chunks()
    ends = ("entity_id", "other_id")
    order = [("likeness", "descending"), ("cosine", "descending"), *((end, "ascending") for end in ends)]
    found = found.sort_by(order)[:most]
    for end in ends:
        found = found.append_column(f"surface of {end}", surfaces.take(pc.index_in(found[end], ids)))
    return [
        {
            "entities": [{"id": pair[end], "surface": pair[f"surface of {end}"]} for end in ends],
            "cosine": round(pair["cosine"], 4),
            "likeness": round(pair["likeness"], 4),
        }
        for pair in found.to_pylist()
    ]
