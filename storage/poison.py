"""Poison: documents that a stage cannot process, recorded for all later runs.

    poison/<maker>/<content hash>.json

The maker is a hash of the stage and everything that runs it, so other code, libraries or settings try the document
again. A record names no document: a document deleted from the corpus leaves only the hash of its content here.
"""

from __future__ import annotations

from indexmill.store.layout import poison_name, poison_prefix
from indexmill.store.record import Digest, Record, Word
from storage.protocol import Store
from storage.records import find_record


class Poison(Record):
    """A document that a stage cannot process, and the failure it caused."""

    content_hash: Digest
    stage: Word
    maker: Digest
    kills: bool  # a process that ran the stage on it alone died; otherwise the stage raised an exception
    detail: str
    run_id: Word

    @property
    def reason(self) -> str:
        """The reason as the quarantine shows it."""
        return "kills-worker" if self.kills else f"fails-{self.stage}"


def record(store: Store, poison: Poison) -> None:
    """Record a document that a stage cannot process; an existing record is kept if it can be read."""
    name = poison_name(poison.maker, poison.content_hash)
    while not store.create(name, poison.to_bytes()):
        if find_record(store, name, Poison) is not None:
            return
        store.delete(name)


def scan(store: Store, maker: str) -> list[Poison]:
    """Return the records of a maker, ordered by content hash; damaged ones are skipped: trying again is safe."""
    records = (find_record(store, name, Poison) for name in store.list(poison_prefix(maker)))
    return [poison for poison in records if poison is not None]
