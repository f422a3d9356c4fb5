"""What a reading of a place of records gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.sources.source_interface import Deleted, RecordSource, Until


@dataclass
class Read:
    """The values that `rows` yielded, by what they are."""

    records: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[RejectedRow] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)  # what happened to which id, in order
    until: Until | None = None

    @property
    def ids(self) -> list[Any]:
        """The ids of the records, in order."""
        return [record["id"] for record in self.records]

    @property
    def cursor(self) -> Any:
        """Where the next reading goes on."""
        assert self.until is not None
        return self.until.cursor

    @property
    def reasons(self) -> list[tuple[int | None, str]]:
        """Line and reason of each refusal."""
        return [(one.line, one.reason) for one in self.refusals]


def read(place: RecordSource, cursor: Any = None) -> Read:
    """All that a place yields; an `Until` has to be the last, and only there."""
    found = Read()
    rows: Iterator[SourceRow | RejectedRow | Deleted | Until] = place.rows(cursor)
    for one in rows:
        assert found.until is None
        match one:
            case SourceRow():
                found.records.append(dict(one.record))
                found.events.append(("upsert", str(one.record.get("id"))))
            case RejectedRow():
                found.refusals.append(one)
            case Deleted():
                found.deleted.append(one.document_id)
                found.events.append(("delete", one.document_id))
            case Until():
                found.until = one
    assert found.until is not None
    return found
