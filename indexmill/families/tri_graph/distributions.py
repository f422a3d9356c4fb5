"""Degrees in the graph of tri_graph, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.retrieve.distributions import Distribution, Level, row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["distributions", "levels"]


def distributions(artifacts: Artifacts) -> tuple[Distribution, ...]:
    """Entities per passage and per sentence, and passages per entity. Raises CorruptBlob."""
    arrays = artifacts.arrays("tri_graph/matrices")
    return (
        Distribution("Entities per passage", "passages", row_lengths(arrays["contents.indptr"])),
        Distribution("Entities per sentence", "sentences", row_lengths(arrays["mentions.indptr"])),
        Distribution("Passages per entity", "entities", row_lengths(arrays["contained_in.indptr"])),
    )


def levels(artifacts: Artifacts) -> tuple[Level, ...]:
    """None: the graph has no levels."""
    return ()
