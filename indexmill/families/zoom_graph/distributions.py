"""Degrees in the graph of zoom_graph, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.families.zoom_graph.similar import document_links
from indexmill.retrieve.distributions import Distribution, FamilySizes
from indexmill.retrieve.mention_matrices import mention_links_of
from indexmill.store.pack_checks import row_lengths

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def sizes(artifacts: Artifacts) -> FamilySizes:
    """Count similar documents per document, and entities per document. Raises CorruptBlob."""
    links, (contents, _) = document_links(artifacts), mention_links_of(artifacts).documents()
    return FamilySizes(
        (
            Distribution("Similar documents per document", "documents", row_lengths(links.indptr)),
            Distribution("Entities per document", "documents", row_lengths(contents.indptr)),
        )
    )
