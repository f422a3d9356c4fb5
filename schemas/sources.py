"""The settings of the sources of documents other than files and folders of this machine.

An entry of `corpus.sources` names its kind: `{kind: git, repository: ..., ref: main}`. A URL in `corpus.paths` stands
for such an entry.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from indexmill.models.secrets import redacted

PATHS_OF_SOURCES = ("lists", "paths", "repository", "url")
"""The settings of sources that may be paths on this machine."""

_URL_SCHEMES = frozenset({"s3", "gs", "az", "http", "https"})
_SITEMAPS = (".xml", ".xml.gz")
_SUFFIX = re.compile(r"\.[^./\\\sA-Z]+")


def is_url(path: str) -> bool:
    """Return True for a URL in `corpus.paths`."""
    return "://" in path and path.partition("://")[0].lower() in _URL_SCHEMES


def as_tuple(value: object) -> object:
    """Wrap a single string in a tuple; other values stay unchanged."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


def _check_suffixes(formats: dict[str, str]) -> dict[str, str]:
    for suffix in formats:
        if _SUFFIX.fullmatch(suffix) is None:
            raise ValueError(f"{suffix!r} is not a suffix: write a dot and lower-case letters, such as .log")
    return formats


FormatNames = Annotated[dict[str, str], AfterValidator(_check_suffixes)]
"""The names of formats by suffix."""


class CorpusSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _FilesSettings(CorpusSection):
    include: Names = Field(default=(), description="Globs below the source; empty means every file of a known format")
    exclude: Names = Field(default=(), description="Globs below the source, which override include")
    prefix: str = Field(
        default="",
        pattern=r"^([^/\\\x00-\x1f]+/)*$",
        description="A prefix of the files' names, which are the documents' ids, such as `handbook/`",
    )
    formats: FormatNames = Field(default={}, description="As `corpus.formats`, which applies if this is not given")

    @field_validator("prefix")
    @classmethod
    def _stays_below(cls, value: str) -> str:
        if {".", ".."} & set(value.split("/")):
            raise ValueError(f"{value!r} leaves the folder; use only names, such as handbook/")
        return value


class BucketSettings(_FilesSettings):
    """The objects below a prefix of a bucket. Credentials come from the environment, as for a store in a bucket."""

    kind: Literal["bucket"] = "bucket"
    url: str = Field(pattern=r"^(s3|gs|az)://", description="s3://BUCKET/PREFIX, gs://... or az://...")


class WebSettings(_FilesSettings):
    """Pages and files of the web: URLs, lists of them, sitemaps."""

    kind: Literal["web"] = "web"
    urls: Names = Field(default=(), description="Pages to read")
    lists: Names = Field(default=(), description="Files, or their URLs, that list one URL per line")
    sitemaps: Names = Field(default=(), description="URLs of sitemaps or sitemap indexes")
    delay_seconds: float = Field(
        default=1.0, ge=0, description="Minimum time between two requests to a host; robots.txt may demand more"
    )
    max_file_bytes: int = Field(
        default=100_000_000, ge=1, description="Maximum size of a page or file, unpacked; larger ones are refused"
    )
    max_files: int = Field(default=100_000, ge=1, description="Maximum URLs; more end the build before any request")
    contact: str = Field(
        default="",
        pattern=r"^[\x21-\x27\x2A-\x7E]*$",
        description="A URL or address at which sites can reach you, sent in the User-Agent of every request",
    )

    @model_validator(mode="after")
    def _name_some(self) -> Self:
        if not (self.urls or self.lists or self.sitemaps):
            raise ValueError("give urls, lists or sitemaps of the pages to read")
        return self


class GitSettings(_FilesSettings):
    """The files of a commit of a git repository."""

    kind: Literal["git"] = "git"
    repository: str = Field(description="A folder on this machine, or a URL that git can clone")
    ref: str = Field(default="HEAD", description="A branch, a tag or a commit")


class SqlSettings(CorpusSection):
    """The rows of a query. Its columns are the fields of the records."""

    kind: Literal["sql"] = "sql"
    url: str = Field(
        repr=False,
        description="A URL: postgresql://..., sqlite:///FILE, duckdb:///FILE; $NAME is an environment variable",
    )
    query: str = Field(
        min_length=1,
        description="If it contains :cursor, only rows changed since the last version are read: "
        "`... WHERE updated_at > :cursor`",
    )
    name: str = Field(default="", description="The name by which later runs recognise it; default: URL and query")
    id: str = Field(default="id", min_length=1, description="The column of ids, as in corpus.fields.id")
    cursor: str | None = Field(default=None, description="The column whose maximum becomes the next cursor")
    deleted: str | None = Field(
        default=None, description="The column that is true, or contains a time, in rows of deleted documents"
    )
    overlap_seconds: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="How far before the cursor reading starts: at least the duration of the longest transaction",
    )

    @model_validator(mode="after")
    def _have_both_or_none(self) -> Self:
        mentioned = re.search(r"(?<![:\w]):cursor\b", self.query) is not None
        if mentioned and self.cursor is None:
            raise ValueError("the query has :cursor: set `cursor` to the column that it is compared with")
        if self.cursor is not None and not mentioned:
            raise ValueError(f"the query lacks :cursor: write `WHERE {self.cursor} > :cursor`, or leave out `cursor`")
        if self.overlap_seconds and self.cursor is None:
            raise ValueError("overlap_seconds is for a query with :cursor")
        return self


class TableSettings(CorpusSection):
    """A snapshot of a Delta or Iceberg table. Its columns are the fields of the records."""

    kind: Literal["table"] = "table"
    format: Literal["delta", "iceberg"]
    url: str = Field(
        description="A folder, or a bucket's URL; for Iceberg, those of the table's metadata file or folder"
    )
    version: int | None = Field(default=None, description="A version or a snapshot id; None for the newest")


class FeedSettings(CorpusSection):
    """A change feed: JSON Lines of `{"op": "upsert", ...}` and `{"op": "delete", "id": ...}`, in order."""

    kind: Literal["feed"] = "feed"
    paths: Names = Field(min_length=1, description="Files, folders or globs, each read in the order of its names")
    name: str = Field(default="", description="The name by which later runs recognise it; default: its paths")
    id: str = Field(default="id", min_length=1, description="The field of ids, as in corpus.fields.id")
    max_line_bytes: int = Field(default=32 << 20, ge=1, description="Longer lines are refused")


class PluginSettings(_FilesSettings):
    """A custom class that lists and reads files; see `tasks.stages.ingest.sources.source_interface.FileSource`."""

    kind: Literal["plugin"] = "plugin"
    named: str = Field(alias="class", pattern=r"^[\w.]+:[\w.]+$", description="module:Class")
    options: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of the class")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


SourceSettings = Annotated[
    BucketSettings | WebSettings | GitSettings | SqlSettings | TableSettings | FeedSettings | PluginSettings,
    Field(discriminator="kind"),
]


def name_of_source(place: SourceSettings) -> str:
    """Return the name of a source for users; passwords in URLs are redacted."""
    settings = ("name", "url", "repository", "sitemaps", "lists", "urls", "paths")
    values = (getattr(place, name, None) for name in settings)
    value = next((value for value in values if value), getattr(place, "named", place.kind))
    return redacted(value if isinstance(value, str) else ", ".join(value[:3]))


def source_of_url(url: str) -> SourceSettings:
    """Return the source that a URL in `corpus.paths` stands for: a bucket, sitemap (.xml), list (.txt) or page."""
    if url.partition("://")[0].lower() not in {"http", "https"}:
        return BucketSettings(url=url)
    path = urlsplit(url).path.lower()
    if path.endswith(_SITEMAPS):
        return WebSettings(sitemaps=(url,))
    return WebSettings(lists=(url,)) if path.endswith(".txt") else WebSettings(urls=(url,))
