"""The packs that no family owns (vectors of passages, sentences, titles and names), and arrays that several share."""

from __future__ import annotations

from indexmill.store.pack_schema import Array, PackSchema, hashes, indices, keys, sparse, vectors

__all__ = ["CODES", "NAMES", "PACKS", "TITLES", "VECTORS", "sentence_arrays"]

VECTORS = PackSchema(
    "vectors of passages and sentences; a shard's pieces, in the order of their labels, have the rows of its tables",
    {
        "passages": vectors("passages here", "the vector of each passage"),
        "sentences": Array(
            "int8",
            ("sentences here", "dimensions"),
            "the direction of each sentence's vector, in steps; older snapshots have its vector",
            older="f4",
        ),
        "passage_keys": hashes("passages here", "what each vector was made from"),
        "sentence_keys": hashes("sentences here", "what each vector was made from"),
    },
)

CODES = PackSchema(
    "codes of the shard's passages, to find the nearest ones by: 8-bit steps from 128 of their vectors, those of their "
    "titles added",
    {
        "codes": Array("uint8", ("own passages", "dimensions"), "the steps of each passage"),
        "distances": Array("float32", ("own passages",), "how far each passage is from its code, at most"),
        "scale": Array("float64", (2,), "the size of a step, and the weight of a title"),
    },
    tables=("own passages",),
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

PACKS = {
    "vectors/<piece>": VECTORS,
    "passage_codes/<shard>": CODES,
    "titles/<shard>": TITLES,
    "names/<entity shard>": NAMES,
}


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
