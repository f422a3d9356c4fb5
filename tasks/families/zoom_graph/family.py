"""The family zoom_graph: its own similarity links, and the mention links made by the shared stage `mention_links`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.mention_matrices import linked_documents
from tasks.core.builder_family import BuilderFamily
from tasks.core.step import Step, shard_step
from tasks.families.zoom_graph import compare, document_vectors, links
from tasks.families.zoom_graph.check import CHECKS

Packs = Sequence[Mapping[str, NDArray[Any]]]


def counts(mention_links: Packs, zoom_state: Packs) -> dict[str, int]:
    """Return the graph's sizes for the manifest; full rows have chosen `cap` links. zoom_state: one pack per kind."""
    keys = np.concatenate([np.empty(0, np.uint64), *(pack["entity_keys"] for pack in mention_links)])
    similar = [pack["counts"].tolist() for pack in zoom_state]
    (documents, documents_full), (entities, entities_full) = [*similar, [0, 0]][:2]
    return {
        "documents": sum(len(pack["document_passages"]) - 1 for pack in mention_links),
        "entities": len(np.unique(keys)),
        "document_links": documents,
        "entity_links": entities,
        "content_links": sum(len(linked_documents(pack)[1]) for pack in mention_links),
        "documents_full": documents_full,
        "entities_full": entities_full,
    }


FAMILY = BuilderFamily(
    "zoom_graph",
    steps=(
        shard_step("document_vectors", document_vectors),
        Step("zoom_links", links.drive, (compare.STAGE, links.STAGE)),
    ),
    artifact="",
    counts=counts,
    shared=("mention_links", "zoom_state"),
    checks=CHECKS,
)
