"""Prompts that have no answer: what a model sent back could not be used, nor what it sent to mend it.

    refusals/<key>

The key is that of the ledger. A prompt that stands here is not asked again by itself; one that is answered leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import StringConstraints

from indexmill.store.layout import refusal_name, refusal_prefix
from storage import prompt_records
from storage.prompt_records import PromptRecord
from storage.protocol import Store

__all__ = ["RefusedPrompt", "find", "record", "remove", "scan"]


class RefusedPrompt(PromptRecord):
    """One prompt without an answer."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """A word, and where it helps a colon and more; nothing of the corpus or of the answer."""

    @property
    def name(self) -> str:
        """The name of the record in a store."""
        return refusal_name(self.key)


def find(store: Store, key: str) -> RefusedPrompt | None:
    """The record of a key; None if there is none that can be read."""
    return prompt_records.find(store, refusal_name(key), RefusedPrompt)


def record(store: Store, refused: RefusedPrompt) -> None:
    """Keep a record in the place of any that is there."""
    while not store.create(refused.name, refused.to_bytes()):
        if find(store, refused.key) == refused:
            return
        store.delete(refused.name)


def remove(store: Store, key: str) -> None:
    """Take a record away: the prompt has been answered."""
    store.delete(refusal_name(key))


def scan(store: Store) -> Iterator[tuple[str, RefusedPrompt | None]]:
    """Every record by name, ordered by key; None for what cannot be read."""
    return ((name, refused) for name, _, refused in prompt_records.scan(store, (refusal_prefix(),), RefusedPrompt))
