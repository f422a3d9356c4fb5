"""The signatures of a store's versions: any number for each, by any signer; they are never changed."""

from __future__ import annotations

import contextlib

from indexmill.errors import NotFound
from indexmill.store.layout import signature_name, signature_prefix
from storage.protocol import Store
from storage.records import last_number, numbered


def envelopes(store: Store, version: int) -> list[bytes]:
    """Return the envelopes of a version, oldest first, as they were added."""
    contents = []
    for name in numbered(store.list(signature_prefix(version))).values():
        with contextlib.suppress(NotFound):
            contents.append(store.get(name))
    return contents


def add(store: Store, version: int, envelope: bytes) -> bool:
    """Store an envelope; False if the version already has it. Needs no lease."""
    while envelope not in envelopes(store, version):
        number = last_number(store, signature_prefix(version)) + 1
        if store.create(signature_name(version, number), envelope):
            return True
    return False
