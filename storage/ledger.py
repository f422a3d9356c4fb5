"""The ledger: the answers of language models, each paid for once.

    ledger/<first two digits of the key>/<key>

The key is a hash of everything that shapes the answer. A record is created once the answer has been validated, and is
on disk before it is used. Any number of processes may write: the first record of a key stands. A record that cannot
be read, or does not match its digest, counts as missing and is replaced by the next answer.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated

from pydantic import Field, JsonValue

from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.layout import ledger_name, ledger_prefixes
from storage import prompt_records
from storage.prompt_records import PromptRecord
from storage.protocol import Store

LONGEST = 16 << 20
"""The maximum size of a record in bytes."""

_Count = Annotated[int, Field(ge=0, lt=2**53)]


class LedgerEntry(PromptRecord):
    value: dict[str, JsonValue]
    """The answer, in the form of the task's schema."""
    input_tokens: _Count
    output_tokens: _Count
    """The tokens that were billed for it, a repair included."""

    @property
    def name(self) -> str:
        return ledger_name(self.key)


class AnswerCounts(Counter[str]):
    """Counts of one model and task: answers, input_tokens, output_tokens, bytes."""


def find(store: Store, key: str) -> LedgerEntry | None:
    """Return the answer of a key; None if it is missing or cannot be read."""
    return prompt_records.find(store, ledger_name(key), LedgerEntry)


def record(store: Store, entry: LedgerEntry, stands: Callable[[LedgerEntry], bool] = lambda _: True) -> LedgerEntry:
    """Store an answer; returns the one to use: this one, or an earlier one of the same key for which `stands` holds.

    The returned record survives a loss of power.
    """
    name, data = entry.name, entry.to_bytes()
    while not store.create(name, data):
        with contextlib.suppress(CorruptBlob, NotFound):
            existing = prompt_records.read(store, name, LedgerEntry)
            if stands(existing):
                return existing
        store.delete(name)
    return entry


def scan(store: Store, advanced: Callable[[], object] = lambda: None) -> Iterator[tuple[str, int, LedgerEntry | None]]:
    """Yield every answer, as `prompt_records.scan` does; `advanced` is called 256 times, once for each prefix."""
    return prompt_records.scan(store, ledger_prefixes(), LedgerEntry, advanced)


def stats(
    store: Store, advanced: Callable[[], object] = lambda: None, run_id: str | None = None
) -> tuple[dict[tuple[str, str], AnswerCounts], int, int]:
    """Count the answers by (model, task); also returns the number of unreadable records, and their bytes.

    run_id: count only the answers that this run paid for.
    """
    totals: dict[tuple[str, str], AnswerCounts] = {}
    damaged = lost = 0
    for _, size, entry in scan(store, advanced):
        if entry is None:
            damaged, lost = damaged + 1, lost + size
            continue
        if run_id is not None and entry.run_id != run_id:
            continue
        counts = totals.setdefault((entry.model, entry.task), AnswerCounts())
        counts["answers"] += 1
        counts["input_tokens"] += entry.input_tokens
        counts["output_tokens"] += entry.output_tokens
        counts["bytes"] += size
    return dict(sorted(totals.items())), damaged, lost
