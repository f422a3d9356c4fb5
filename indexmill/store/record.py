"""The base class of all records of a store (strictly typed canonical JSON), and the types of their fields.

A writer rejects unknown fields; a reader drops them, because the manifest itself names the oldest reader that
understands it.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, ValidationInfo, model_validator

from indexmill.errors import CorruptBlob
from indexmill.store.canonical import canonical_json

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hex."""

Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})*$")
]
"""A relative path of plain components."""

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$")]
"""One plain component of a name."""

Timestamp = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")]
"""A time in UTC, ISO 8601."""

READING = {"unknown fields": "dropped"}
"""The validation context for reading a record that another release may have written."""

RECORD_ADVICE = "restore the file from a copy of the store: no build recreates it, and deleting it loses its content"


class Record(BaseModel):
    """A record that is stored as canonical JSON: frozen, strictly typed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_unknown_fields(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is READING and isinstance(value, dict):
            fields = {field.alias or name for name, field in cls.model_fields.items()}
            return {name: item for name, item in value.items() if name in fields}
        return value

    def to_bytes(self) -> bytes:
        """Return the record as canonical JSON; raises ValueError for NaN, infinities and lone surrogates."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Read a record, dropping fields of newer writers; raises CorruptBlob, naming ``where``, if it is invalid."""
        try:
            return cls.model_validate_json(data, context=READING)
        except ValidationError as error:
            field, problem = first_problem(error)
            raise CorruptBlob(
                f"{where} is not a readable {cls.__name__.lower()} ({len(data)} bytes)"
                f"{f', at {field}' if field else ''}: {problem}; {RECORD_ADVICE}"
            ) from error


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the first problem of a validation error: the dotted path of the invalid field, and the message."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"]
