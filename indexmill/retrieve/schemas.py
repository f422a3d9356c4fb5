"""The schemas of all packs that a snapshot may have, by artifact: the shared packs and those of the families."""

from __future__ import annotations

from indexmill.retrieve import shared_schema
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from indexmill.store.pack_schema import PackSchema, gathered

PACKS: dict[str, PackSchema] = gathered(
    shared_schema.PACKS, *(load(method.packs) for method in METHODS.values() if method.packs)
)
