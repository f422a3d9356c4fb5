"""The pack of the family bm25: the terms of a shard's passages, with their occurrences."""

from __future__ import annotations

from indexmill.store.pack_schema import SMALLEST, Array, PackSchema, indices, keys, pointers


def _field(prefix: str, what: str) -> dict[str, Array]:
    terms, postings = f"{prefix}terms", f"{prefix}postings"
    return {
        f"{prefix}keys": keys(
            terms,
            f"the terms of {what}, each as the first eight bytes (big-endian) of its SHA-256; "
            "`indexmill/text/terms.py` defines terms",
        ),
        f"{prefix}indptr": pointers(terms, postings, "where the postings of each term begin, and the end", SMALLEST),
        f"{prefix}passages": indices(
            postings, "own passages", "the rows of the passages that contain each term, ascending", dtype=SMALLEST
        ),
        f"{prefix}counts": Array(SMALLEST, (postings,), "how often the term occurs in the passage", least=0),
        f"{prefix}lengths": Array(SMALLEST, ("own passages",), "how many terms each passage has", least=0),
    }


POSTINGS = PackSchema(
    "the words of the shard's passages",
    _field("", "the passages") | _field("titles.", "the titles of the passages alone"),
    tables=("own passages",),
)

PACKS = {"bm25/<shard>": POSTINGS}
