"""What a store's quarantine holds."""

from __future__ import annotations

from collections import Counter

from storage import runs
from storage.protocol import Store


def reasons_in(store: Store) -> dict[str, int]:
    """The reasons of the rows that the last run refused, with their numbers."""
    _, refused = runs.quarantine_of(store)
    return dict(Counter(refused.column("reason").to_pylist()))
