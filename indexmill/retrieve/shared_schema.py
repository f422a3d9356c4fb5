"""The packs that no family owns (vectors of passages, sentences, titles and names), and arrays that several share."""

from __future__ import annotations

from indexmill.store.pack_schema import Array, PackSchema, hashes, indices, keys, sparse, vectors

__all__ = ["NAMES", "PACKS", "TITLES", "VECTORS", "sentence_arrays"]

VECTORS = PackSchema(
    "vectors of the shard's passages and sentences, row by row with the two tables",
    {
        "passages": vectors("own passages", "the vector of each passage"),
        "sentences": vectors("own sentences", "the vector of each sentence"),
        "passage_keys": hashes("own passages", "what each vector was made from"),
        "sentence_keys": hashes("own sentences", "what each vector was made from"),
    },
    tables=("own passages", "own sentences"),
)

TITLES = PackSchema(
    "vectors of the titles of the shard's documents, row by row with `documents`; absent where "
    "`split.title_in_passage` is off, and from older snapshots",
    {
        "vectors": vectors("own documents", "the vector of each title; zeros for a document without one"),
        "text_keys": hashes("own documents", "what each vector was made from"),
        "passage_document": indices("own passages", "own documents", "the row of each passage's document"),
    },
    tables=("own passages", "own documents"),
)

NAMES = PackSchema(
    "vectors of the canonical names of some of the shard's entities",
    {
        "vectors": vectors("names", "the vector of each name"),
        "entity_keys": keys("names", "the entity of each: the first 16 digits of its id"),
        "keys": hashes("names", "what each vector was made from"),
    },
)

PACKS = {"vectors/<shard>": VECTORS, "titles/<shard>": TITLES, "names/<entity shard>": NAMES}


def sentence_arrays() -> dict[str, Array]:
    """The arrays that link sentences and entities, with the passage of each sentence and the key of each entity."""
    return {
        **sparse("mentions", "sentences", "entities", "sentences by entities"),
        **sparse("mentioned_in", "entities", "sentences", "entities by sentences"),
        "sentence_passage": Array(
            "int32", ("sentences",), "the row of each sentence's passage", below="passages", least=0, rising=True
        ),
        "entity_keys": keys("entities", "the first 16 digits of each entity's id"),
    }
