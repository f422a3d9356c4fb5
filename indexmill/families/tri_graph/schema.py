"""The pack of the family tri_graph in older snapshots; newer snapshots store its content in `mention_links`."""

from __future__ import annotations

from indexmill.retrieve.shared_schema import sentence_arrays
from indexmill.store.pack_schema import Array, PackSchema, sparse

_COUNTS = ("int32", "how often the entity occurs in the passage")

MATRICES = PackSchema(
    "sentences, passages and entities as sparse matrices, each by its rows and by its columns; in older snapshots "
    "alone, newer ones have `mention_links`",
    {
        **sentence_arrays(),
        **sparse("contents", "passages", "entities", "passages by entities", counts=_COUNTS),
        **sparse("contained_in", "entities", "passages", "entities by passages", counts=_COUNTS),
        "strengths": Array("int64", ("entities",), "how often each entity occurs in all passages", least=0),
        "documents": Array("int64", ("entities",), "how many documents each entity occurs in", least=0),
    },
    tables=("passages", "sentences", "entities"),
)

PACKS = {"tri_graph/matrices": MATRICES}
