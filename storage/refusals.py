"""Prompts that have no answer: what a model sent back could not be used, nor what it sent to mend it.

    refusals/<key>

The key is that of the ledger. A prompt that stands here is not asked again by itself; one that is answered leaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints

from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.layout import refusal_name, refusal_prefix
from indexmill.store.manifest import Digest, Timestamp, Word
from storage.ledger import Id, Signed
from storage.protocol import Store
from storage.records import get_record

__all__ = ["RefusedPrompt", "find", "record", "remove", "scan"]


class RefusedPrompt(Signed):
    """One prompt without an answer."""

    key: Digest
    task: Word
    model: Id
    prompt_version: Id
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """A word, and where it helps a colon and more; nothing of the corpus or of the answer."""
    about: Annotated[tuple[Id, ...], Field(strict=False)] = ()
    """The ids of the passages and nodes whose text the prompt held."""
    makes: Annotated[str, StringConstraints(max_length=1000)] = ""
    """The id of what the answer would have been for."""
    run_id: Word
    created: Timestamp


def find(store: Store, key: str) -> RefusedPrompt | None:
    """The record of a key; None if there is none that can be read."""
    name = refusal_name(key)
    with contextlib.suppress(NotFound, CorruptBlob):
        found = get_record(store, name, RefusedPrompt)
        if found.key == key:
            return found
    return None


def record(store: Store, refused: RefusedPrompt) -> None:
    """Keep a record in the place of any that is there."""
    while not store.create(refusal_name(refused.key), refused.to_bytes()):
        if find(store, refused.key) == refused:
            return
        store.delete(refusal_name(refused.key))


def remove(store: Store, key: str) -> None:
    """Take a record away: the prompt has been answered."""
    store.delete(refusal_name(key))


def scan(store: Store) -> Iterator[tuple[str, RefusedPrompt | None]]:
    """Every record by name, ordered by key; None for what cannot be read."""
    for name in store.list(refusal_prefix()):
        try:
            found = get_record(store, name, RefusedPrompt)
            yield name, found if refusal_name(found.key) == name else None
        except CorruptBlob:
            yield name, None
        except (NotFound, ValueError):  # gone by now, or a name that is none of a store's
            continue
