"""The packs of the family incipits."""

from __future__ import annotations

from indexmill.store.pack_schema import Array, PackSchema, keys

FIRST_KEYS = PackSchema("a shard's first words", {"keys": keys("words", "of each passage, all together")})

WORDS = PackSchema(
    "how many passages begin with each word",
    {
        "keys": keys("words", "of the words, as of terms"),
        "passages": Array("int64", ("words",), "how many passages begin with it", least=1),
    },
)

PACKS = {"incipits/words": WORDS}
