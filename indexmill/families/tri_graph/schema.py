"""The pack of the family tri_graph: sentences, passages and entities as sparse matrices (LinearRAG, section 3.1)."""

from __future__ import annotations

from indexmill.store.pack_schema import Array, PackSchema, keys, sparse

__all__ = ["MATRICES", "PACKS", "sentence_arrays"]


def sentence_arrays() -> dict[str, Array]:
    """The links of sentences and entities, and what tells them from each other."""
    return {
        **sparse("mentions", "sentences", "entities", "sentences by entities"),
        **sparse("mentioned_in", "entities", "sentences", "entities by sentences"),
        "sentence_passage": Array(
            "int32", ("sentences",), "the row of each sentence's passage", below="passages", least=0, rising=True
        ),
        "entity_keys": keys("entities", "the first 16 digits of each entity's id"),
    }


_COUNTS = ("int32", "how often the entity occurs in the passage")

MATRICES = PackSchema(
    "sentences, passages and entities as sparse matrices, each by its rows and by its columns",
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
