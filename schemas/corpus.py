"""The settings of the ingest stage: the corpus and the format of its records."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from schemas.places import PlaceSettings, is_url, place_of_url

EVERYTHING_ELSE = "*"
"""The value of `FieldNames.metadata` that keeps every field except id, title, text and source."""


def as_tuple(value: object) -> object:
    """A tuple of one for a single string; other values unchanged."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class FieldNames(BaseModel):
    """Which field of a record holds what: keys of a JSON object, columns of a CSV or Parquet file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(default="id", min_length=1)
    title: str | None = Field(
        default="title", description="None for a corpus without titles; a record without one has ''"
    )
    text: str = Field(default="text", min_length=1)
    source: Names = Field(default=("source", "url"), description="The first of these that holds a text is the source")
    metadata: str | tuple[str, ...] = Field(
        default=EVERYTHING_ELSE,
        description="'*' keeps every other field, the keys of an object called `metadata` lifted among them; "
        "a list keeps these fields; a name keeps what the object in this field holds",
    )

    @model_validator(mode="after")
    def _one_role_each(self) -> FieldNames:
        roles = [name for name in (self.id, self.title, self.text) if name is not None]
        if len(set(roles)) < len(roles):
            raise ValueError(f"id, title and text must be different fields; they are {roles}")
        return self


class AccessSettings(BaseModel):
    """Who may read a document: those in one of the groups that a field of its metadata names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(min_length=1, description="A key of the metadata: its value is a text or a list of texts")
    required: bool = Field(
        default=True, description="False: a document without the field is for everyone; true: it is refused"
    )


class ExtractSettings(BaseModel):
    """How files of formats such as PDF become text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ocr: str = Field(
        default="",
        pattern=r"^[A-Za-z_+]*$",
        description="Languages for reading pages that are pictures with tesseract, such as `eng+deu`; empty: a file "
        "without text is refused",
    )
    max_pages: int = Field(default=5_000, ge=1, description="Pages or slides of a file; more are refused")
    max_expanded_bytes: int = Field(default=256 << 20, ge=1 << 20, description="What an archive, as DOCX is, may hold")


class CorpusSettings(BaseModel):
    """Where the corpus lies and how it is read. Every text is UTF-8; there is no setting for another encoding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: Names = Field(default=(), description="Files, folders, globs; URLs of buckets, sitemaps and pages")
    sources: tuple[PlaceSettings, ...] = Field(
        default=(),
        description="Other places: databases, repositories, tables, change feeds; see docs/operations/sources.md",
    )
    include: Names = Field(default=(), description="Globs below a folder; empty means every file of a known format")
    exclude: Names = Field(default=(), description="Globs below a folder, stronger than include")
    fields: FieldNames = FieldNames()
    extract: ExtractSettings = ExtractSettings()
    file_metadata: Annotated[
        tuple[Literal["path", "modified", "owner", "groups", "language"], ...], BeforeValidator(as_tuple)
    ] = Field(default=(), description="What is known of a file besides its text, kept as metadata")
    access: AccessSettings | None = Field(
        default=None,
        description="Who may read a document, by groups that a field of it names: `{field: groups, required: true}`; "
        "null: everyone reads all. With `required: false` documents without the field are for everyone",
    )
    max_document_bytes: int = Field(
        default=10_000_000, ge=1, le=500_000_000, description="Title, text and metadata of one document, as UTF-8"
    )
    max_document_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="Processor time that reading one document may take; it may block for 20 times as long. Beyond "
        "that, the document and the rest of its file are refused",
    )
    max_reading_memory_bytes: int = Field(
        default=4 << 30,
        ge=256 << 20,
        description="Memory of a process that reads a file: at least eight times max_document_bytes. What earlier "
        "files left in it does not count, and may be as much again",
    )
    follow_links: bool = Field(
        default=False, description="Read files below a folder that are links to somewhere outside the corpus"
    )
    csv_delimiter: str = Field(default=",", min_length=1, max_length=1)

    @model_validator(mode="after")
    def _have_a_place(self) -> Self:
        if not self.paths and not self.sources:
            raise ValueError("give paths or sources: where the documents are")
        return self

    @field_validator("csv_delimiter")
    @classmethod
    def _can_delimit(cls, value: str) -> str:
        if value in '"\r\n \0' or not value.isascii():
            raise ValueError(f"{value!r} cannot delimit CSV columns; use a comma, semicolon, tab or |")
        return value

    @model_validator(mode="after")
    def _have_memory_for_a_document(self) -> Self:
        if self.max_reading_memory_bytes < 8 * self.max_document_bytes:
            raise ValueError(
                f"max_reading_memory_bytes is {self.max_reading_memory_bytes}, and documents of max_document_bytes "
                f"({self.max_document_bytes}) take up to eight times as much to read: raise the one or lower the other"
            )
        return self

    @model_validator(mode="after")
    def _keep_the_groups(self) -> Self:
        if self.access is None:
            return self
        field, fields = self.access.field, self.fields
        if field in {fields.id, fields.title, fields.text, *fields.source}:
            raise ValueError(f"access.field is {field!r}, which fields takes for something else: give groups their own")
        if isinstance(fields.metadata, tuple) and field not in fields.metadata:
            raise ValueError(f"access.field is {field!r}, which fields.metadata does not keep: add it there")
        return self

    @property
    def places(self) -> tuple[PlaceSettings, ...]:
        """The places besides this machine: `sources`, and what the URLs among the paths are short for.

        A place of records that does not say which field holds the ids takes that of `fields`.
        """
        named = {"id": self.fields.id}
        told = (
            one.model_copy(update=named) if "id" in type(one).model_fields and "id" not in one.model_fields_set else one
            for one in self.sources
        )
        return (*(place_of_url(path) for path in self.paths if is_url(path)), *told)

    @property
    def max_line_bytes(self) -> int:
        """The longest line that is held in memory: a text whose letters are all escaped triples its size."""
        return 3 * self.max_document_bytes + 65_536
