"""Refused prompts: neither the model's answer nor its repair was valid.

    refusals/<key>

The key is that of the ledger. A prompt with such a record is not sent again by default; an answer removes the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints

from indexmill.store.layout import REFUSALS, refusal_name
from storage import prompt_records
from storage.prompt_records import PromptRecord
from storage.protocol import Store


class RefusedPrompt(PromptRecord):
    """One prompt without an answer."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """A word, sometimes with a colon and details; never text of the corpus or of the answer."""
    runs: Annotated[int, Field(ge=1, exclude_if=lambda runs: runs == 1)] = 1
    """The number of runs in which the prompt got no answer."""

    @property
    def name(self) -> str:
        return refusal_name(self.key)


def find(store: Store, key: str) -> RefusedPrompt | None:
    """Return the record of a key; None if it is missing or cannot be read."""
    return prompt_records.find(store, refusal_name(key), RefusedPrompt)


def record(store: Store, refused: RefusedPrompt) -> None:
    """Write a record, replacing an existing one."""
    while not store.create(refused.name, refused.to_bytes()):
        if find(store, refused.key) == refused:
            return
        store.delete(refused.name)


def remove(store: Store, key: str) -> None:
    """Remove a record once its prompt has been answered."""
    store.delete(refusal_name(key))


def scan(store: Store) -> Iterator[tuple[str, RefusedPrompt | None]]:
    """Yield (name, record), ordered by key; the record is None if it cannot be read."""
    return ((name, refused) for name, _, refused in prompt_records.scan(store, (REFUSALS,), RefusedPrompt))
