"""The settings of the ingest stage: the corpus and the format of its records."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from schemas.encodings import AUTO, codec_of
from schemas.sources import CorpusSection, FormatNames, Names, SourceSettings, as_tuple, is_url, source_of_url

EVERYTHING_ELSE = "*"
"""The value of `FieldNames.metadata` that keeps every field except id, title, text and source."""


class FieldNames(CorpusSection):
    """The fields of a record by their role: keys of a JSON object, columns of a CSV or Parquet file."""

    id: str = Field(default="id", min_length=1)
    title: str | None = Field(
        default="title", description="null for a corpus without titles; a record without a title gets an empty one"
    )
    text: str = Field(default="text", min_length=1)
    source: Names = Field(default=("source", "url"), description="The source is the first of these that is a string")
    metadata: str | tuple[str, ...] = Field(
        default=EVERYTHING_ELSE,
        description="'*' keeps every other field, and also the keys of an object called `metadata`; "
        "a list keeps these fields; a name keeps the keys of the object in this field",
    )

    @model_validator(mode="after")
    def _one_role_each(self) -> FieldNames:
        roles = [name for name in (self.id, self.title, self.text) if name is not None]
        if len(set(roles)) < len(roles):
            raise ValueError(f"id, title and text must be different fields; they are {roles}")
        return self


class AccessSettings(CorpusSection):
    """Access to documents: a field of their metadata names the groups that may read them."""

    field: str = Field(min_length=1, description="A key of the metadata, whose value is a string or a list of strings")
    required: bool = Field(
        default=True, description="false: everyone may read a document without the field; true: it is refused"
    )


class FileExtractSettings(CorpusSection):
    """How text is extracted from files of formats such as PDF."""

    ocr: str = Field(
        default="",
        pattern=r"^[A-Za-z_+]*$",
        description="Languages for OCR of scanned pages with tesseract, such as `eng+deu`; if empty, a file without "
        "text is refused",
    )
    max_pages: int = Field(
        default=5_000, ge=1, description="Maximum number of pages or slides of a file; longer files are refused"
    )
    max_expanded_bytes: int = Field(
        default=256 << 20, ge=1 << 20, description="Maximum unpacked size of an archive, such as a DOCX file"
    )


class CorpusSettings(CorpusSection):
    """The location of the corpus and how it is read."""

    paths: Names = Field(default=(), description="Files, folders, globs; URLs of buckets, sitemaps and pages")
    sources: tuple[SourceSettings, ...] = Field(
        default=(),
        description="Other sources: databases, repositories, tables, change feeds; see docs/operations/sources.md",
    )
    include: Names = Field(default=(), description="Globs below a folder; empty means every file of a known format")
    exclude: Names = Field(default=(), description="Globs below a folder, which override include")
    formats: FormatNames = Field(
        default={}, description="The formats of files by suffix, beside those known, such as `{.log: text}`"
    )
    encoding: str | dict[str, str] = Field(
        default=AUTO,
        description="The encoding of texts that are not in UTF-8 and have no byte order mark: `auto` decides for each "
        "file; a name such as `windows-1252` is that of all files; names by glob, the first that matches counts",
    )
    fields: FieldNames = FieldNames()
    extract: FileExtractSettings = FileExtractSettings()
    file_metadata: Annotated[
        tuple[Literal["path", "modified", "owner", "groups", "language"], ...], BeforeValidator(as_tuple)
    ] = Field(default=(), description="Properties of a file that are kept as metadata")
    access: AccessSettings | None = Field(
        default=None,
        description="The field that names the groups which may read a document: `{field: groups, required: "
        "true}`; null: everyone may read all. With `required: false`, everyone may read documents without the field",
    )
    max_document_bytes: int = Field(
        default=10_000_000, ge=1, le=500_000_000, description="Maximum size of title, text and metadata as UTF-8"
    )
    max_document_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="Maximum CPU time for reading one document, which may take 20 times as long by the clock. Beyond "
        "that, the document and the rest of its file are refused",
    )
    max_reading_memory_bytes: int = Field(
        default=4 << 30,
        ge=256 << 20,
        description="Maximum memory of a process that reads a file: at least eight times max_document_bytes. Memory "
        "still in use after earlier files does not count, and may be as much again",
    )
    follow_links: bool = Field(
        default=False, description="Also read links below a folder that point to files outside the corpus"
    )
    csv_delimiter: str = Field(
        default=AUTO,
        description="`auto`: the comma, semicolon, tab or | that finds the columns of id and text in the first row",
    )

    @model_validator(mode="after")
    def _have_a_place(self) -> Self:
        if not self.paths and not self.sources:
            raise ValueError("give paths or sources of documents")
        return self

    @field_validator("csv_delimiter")
    @classmethod
    def _can_delimit(cls, value: str) -> str:
        if value != AUTO and (len(value) != 1 or value in '"\r\n \0' or not value.isascii()):
            raise ValueError(f"{value!r} cannot delimit CSV columns; use a comma, semicolon, tab or |")
        return value

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding(cls, value: str | dict[str, str]) -> str | dict[str, str]:
        for label in (value,) if isinstance(value, str) else value.values():
            try:
                codec_of("utf-8" if label == AUTO else label)
            except LookupError as error:
                raise ValueError(f"{error}; expected auto, or a name such as utf-16, windows-1252 or gbk") from error
        return value

    @model_validator(mode="after")
    def _have_memory_for_a_document(self) -> Self:
        if self.max_reading_memory_bytes < 8 * self.max_document_bytes:
            raise ValueError(
                f"max_reading_memory_bytes is {self.max_reading_memory_bytes}, but documents of max_document_bytes "
                f"({self.max_document_bytes}) need up to eight times as much to read: raise the former or lower the "
                "latter"
            )
        return self

    @model_validator(mode="after")
    def _keep_the_groups(self) -> Self:
        if self.access is None:
            return self
        field, fields = self.access.field, self.fields
        if field in {fields.id, fields.title, fields.text, *fields.source}:
            raise ValueError(f"access.field is {field!r}, which `fields` uses for something else: use a separate field")
        if isinstance(fields.metadata, tuple) and field not in fields.metadata:
            raise ValueError(f"access.field is {field!r}, which `fields.metadata` does not keep: add it there")
        return self

    @property
    def places(self) -> tuple[SourceSettings, ...]:
        """The sources that are not files of this machine: the entries of `sources`, and the URLs in `paths`.

        A source of records that does not name its id field uses the one in `fields`; a source of files uses `formats`.
        """
        shared = {"id": self.fields.id, "formats": self.formats}
        sources = (*(source_of_url(path) for path in self.paths if is_url(path)), *self.sources)
        return tuple(
            source.model_copy(
                update={
                    name: value
                    for name, value in shared.items()
                    if name in type(source).model_fields and name not in source.model_fields_set
                }
            )
            for source in sources
        )

    @property
    def max_line_bytes(self) -> int:
        """The maximum length of a line of JSON in bytes; escaping non-ASCII letters can triple the size of a text."""
        return 3 * self.max_document_bytes + 65_536
