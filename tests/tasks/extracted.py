"""Tables of mentions and extractions as files, small enough to be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from indexmill.text.canonical_names import canonical_name, entity_id
from schemas.tables import EXTRACTED, MENTIONS, PASSAGES, RELATIONS
from storage.table_blobs import table_bytes


def told(name: str, kind: str = "", description: str = "") -> tuple[str, str, str]:
    """What a passage tells of an entity: its surface, type and description."""
    return name, kind, description


class Shard:
    """The files of a shard, passage by passage: p1, p2 and so on are of the documents d1, d2 and so on."""

    def __init__(self, folder: Path, label: str = "p") -> None:
        self.folder, self.label = folder, label
        self._rows: dict[str, list[dict[str, Any]]] = {"passages": [], "mentions": [], "extracted": [], "relations": []}

    def passage(
        self,
        number: int,
        mentions: Sequence[str] = (),
        extracted: Sequence[tuple[str, str, str]] = (),
        relations: Sequence[tuple[str, str, str, str, str]] = (),
        kind: str = "name",
    ) -> Shard:
        """Add a passage. relations: source, target, kind, text, description."""
        passage, rows = f"p{number}", self._rows
        whole = {"ordinal": 0, "start": 0, "end": 1, "text": "x", "tokens": 1, "section": "", "language": "en"}
        rows["passages"].append({"passage_id": passage, "document_id": f"d{number}", **whole})
        for surface in mentions:
            named = {"name": canonical_name(surface), "entity_id": entity_id(canonical_name(surface))}
            where = {"sentence": 0, "start": 0, "end": len(surface), "surface": surface, "kind": kind}
            rows["mentions"].append({"passage_id": passage, **where, **named})
        for surface, type_, description in extracted:
            named = {"name": canonical_name(surface), "entity_id": entity_id(canonical_name(surface))}
            said = {"surface": surface, "type": type_, "description": description}
            rows["extracted"].append({"passage_id": passage, **named, **said})
        for source, target, kind_, text, description in relations:
            ends = {"source": entity_id(canonical_name(source)), "target": entity_id(canonical_name(target))}
            said = {"kind": kind_, "text": text, "description": description}
            key = f"{len(rows['relations']):032x}"
            rows["relations"].append({"relation_id": key, "unit_id": key, "passage_id": passage, **ends, **said})
        return self

    def file(self, table: str) -> Path:
        """A table of the shard as a file."""
        schema = {"passages": PASSAGES, "mentions": MENTIONS, "extracted": EXTRACTED, "relations": RELATIONS}[table]
        path = self.folder / f"{table}-{self.label}"
        path.write_bytes(table_bytes(pa.Table.from_pylist(self._rows[table], schema), schema))
        return path
