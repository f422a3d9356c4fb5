"""The packs that a snapshot may have, by artifact: a line for each family."""

from __future__ import annotations

from indexmill.families.bm25 import schema as bm25
from indexmill.families.community_tree import schema as community_tree
from indexmill.families.heterograph import schema as heterograph
from indexmill.families.lsh_tree import schema as lsh_tree
from indexmill.families.tri_graph import schema as tri_graph
from indexmill.families.zoom_graph import schema as zoom_graph
from indexmill.retrieve import shared_schema
from indexmill.store.pack_schema import gathered

__all__ = ["PACKS"]

PACKS = gathered(
    shared_schema.PACKS,
    bm25.PACKS,
    tri_graph.PACKS,
    zoom_graph.PACKS,
    lsh_tree.PACKS,
    community_tree.PACKS,
    heterograph.PACKS,
)
