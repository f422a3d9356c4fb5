"""Degrees in the graph of tri_graph, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.families.tri_graph.graph import matrices_of
from indexmill.retrieve.distributions import Distribution, FamilySizes
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def sizes(artifacts: Artifacts) -> FamilySizes:
    """Count entities per passage and per sentence, and passages per entity. Raises CorruptBlob."""
    matrices = matrices_of(artifacts)
    return FamilySizes(
        (
            Distribution("Entities per passage", "passages", row_lengths(matrices.contents.indptr)),
            Distribution("Entities per sentence", "sentences", row_lengths(matrices.mentions.indptr)),
            Distribution("Passages per entity", "entities", row_lengths(matrices.contained_in.indptr)),
        )
    )
