"""Receipts: records of the part made for each key. If a complete receipt exists, the work is done.

A key is a hash of everything the part was made from, so a part is made once, whatever run needs it. The first writer of
a receipt wins and later ones use its outputs. A part with failed rows gets a receipt under the name of the attempt: it
names the rows that succeeded, and never replaces a complete one. Once a version was published with it, the part counts
as made, until a run is started to retry such rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Annotated

from pydantic import Field

from indexmill.store.layout import attempt_name, receipt_name, receipt_prefix
from indexmill.store.record import Digest, Record, Word
from storage.protocol import Store
from storage.records import find_record

_LABEL = re.compile(r"([A-Za-z])([01]*)")


class Receipt(Record):
    """The small record of a finished part."""

    stage: Word
    key: Word
    shard: str
    outputs: dict[str, Digest]
    rows: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    bytes: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    complete: bool = True
    failed: Annotated[int, Field(ge=0)] = 0
    texts: Annotated[int, Field(ge=0)] | None = None
    """The number of texts of the part that a language model writes, including failed ones; None if unknown."""
    row_space: str = ""
    """The hash of all inputs of the rows' own keys except the text: parts of one row space may share rows."""
    run_id: Word
    seconds: float | None = None


def find(store: Store, stage: str, key: str) -> Receipt | None:
    """Return the receipt of a complete part whose outputs all exist; None if the part is still to be made.

    A receipt whose blob was lost counts as missing: making the part again restores the blob.
    """
    return _usable(store, receipt_name(stage, key))


def find_incomplete(store: Store, stage: str, key: str, outputs: Mapping[str, str]) -> Receipt | None:
    """Return any run's receipt of a part with failed rows that has exactly these outputs."""
    for name in store.list(receipt_prefix(stage) + key):
        receipt = _usable(store, name)
        if receipt is not None and not receipt.complete and receipt.key == key and receipt.outputs == outputs:
            return receipt
    return None


def record(store: Store, receipt: Receipt) -> Receipt:
    """Publish a receipt; returns the one to use: this one, or that of an earlier writer of the same key.

    An incomplete receipt is named after its run; a complete one that appeared meanwhile is returned instead.
    """
    complete = receipt_name(receipt.stage, receipt.key)
    if not receipt.complete:
        winner = _usable(store, complete)
        if winner is not None:
            return winner
    name = complete if receipt.complete else attempt_name(receipt.stage, receipt.key, receipt.run_id)
    while not store.create(name, receipt.to_bytes()):
        winner = _usable(store, name)
        if winner is not None:
            return winner
        store.delete(name)  # damaged, or its blobs were lost: replace it
    return receipt


def replace(store: Store, receipt: Receipt) -> Receipt:
    """Replace the receipt of a key with a complete one; returns the receipt that stands.

    Used for a part that was made again on purpose and differs. Snapshots refer to blobs, so none of them changes.
    """
    store.delete(receipt_name(receipt.stage, receipt.key))
    return record(store, receipt)


def scan(store: Store, stage: str) -> list[Receipt]:
    """Return every receipt of a stage, ordered by name; damaged ones are skipped: making a part again is safe."""
    receipts = (find_record(store, name, Receipt) for name in store.list(receipt_prefix(stage)))
    return [receipt for receipt in receipts if receipt is not None]


def overlap(shard: str, candidate: str) -> int | None:
    """Return the distance of two shards in bits if they can contain the same document, otherwise None.

    `p01` and `p0110` are 2 apart; `p01` and `p00` contain different documents. A label that is not a letter and bits
    overlaps only itself.
    """
    if shard == candidate:
        return 0
    match, candidate_match = _LABEL.fullmatch(shard), _LABEL.fullmatch(candidate)
    if match is None or candidate_match is None or match[1] != candidate_match[1]:
        return None
    if not (match[2].startswith(candidate_match[2]) or candidate_match[2].startswith(match[2])):
        return None
    return abs(len(match[2]) - len(candidate_match[2]))


def candidates(
    store: Store,
    stage: str,
    row_space: str,
    shard: str,
    *,
    exclude: Collection[str] = (),
    receipts: Iterable[Receipt] | None = None,
) -> list[Receipt]:
    """Return the receipts that may contain rows for a shard, complete or not: same row space, overlapping prefix.

    The nearest prefix comes first, then the part with more rows. exclude: keys to skip. receipts: the result of an
    earlier `scan`. All blobs of the returned receipts exist.
    """
    ranked = [
        ((distance, -sum(receipt.rows.values()), receipt.key, receipt.run_id), receipt)
        for receipt in (scan(store, stage) if receipts is None else receipts)
        if receipt.row_space == row_space and receipt.key not in exclude
        if (distance := overlap(shard, receipt.shard)) is not None
    ]
    ranked.sort(key=itemgetter(0))
    return [receipt for _, receipt in ranked if has_outputs(store, receipt)]


def has_outputs(store: Store, receipt: Receipt) -> bool:
    """Return True if the outputs of a part exist, with the lengths that the receipt states."""
    sizes = ((output, store.blob_size(digest)) for output, digest in receipt.outputs.items())
    return all(size is not None and size == receipt.bytes.get(output, size) for output, size in sizes)


def _usable(store: Store, name: str) -> Receipt | None:
    receipt = find_record(store, name, Receipt)
    return receipt if receipt is not None and has_outputs(store, receipt) else None
