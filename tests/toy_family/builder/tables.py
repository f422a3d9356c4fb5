"""The table of the family incipits."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import published

INCIPITS = published(
    "incipit_texts/<shard>", "the first words of passages", passage_id=pa.string(), incipit=pa.string()
)
