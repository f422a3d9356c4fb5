"""The records of a snapshot: its manifest, the ref that publishes it, the aliases that point to a ref, and the hold.

A manifest contains no history (no time, host, cost or number of reused parts), so that the same input gives the same
digest; the ref and the run's record contain the history.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from indexmill.errors import UnsupportedFormat
from indexmill.store.artifact_listing import Artifact, Artifacts, Listing
from indexmill.store.canonical import canonical_json
from indexmill.store.layout import FORMAT_VERSION, READER_VERSION, TOO_OLD
from indexmill.store.record import Digest, Name, Record, Timestamp, Word

_Version = Annotated[int, Field(ge=1)]


class LanguageCounts(Record):
    """The documents and passages of one language, and how the encoder's tokenizer cuts their words.

    A document counts for the language of most of its passages. words: those of ``indexmill.text.terms.prose_words``.
    tokens: those of the words. unknown: tokens for characters that the tokenizer does not know. joints: places between
    two letters of a word. cuts: joints between two tokens; in a script without spaces, tokens beyond one per character;
    in a word with an unknown token, every joint. All are 0 if the model's tokenizer is not known, or does not show
    what the model reads.
    """

    documents: Annotated[int, Field(ge=0)] = 0
    passages: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    unknown: Annotated[int, Field(ge=0)] = 0
    joints: Annotated[int, Field(ge=0)] = 0
    cuts: Annotated[int, Field(ge=0)] = 0


class Corpus(Record):
    """The corpus of a snapshot: the digest of its set of documents, and its counts.

    languages: by two-letter code, "" for an unknown language; empty in snapshots made before languages were counted.
    """

    fingerprint: str
    documents: Annotated[int, Field(ge=0)]
    passages: Annotated[int, Field(ge=0)]
    counts: dict[str, int] = Field(default_factory=dict)
    languages: dict[str, LanguageCounts] = Field(default_factory=dict, exclude_if=operator.not_)

    def languages_that_count(self) -> dict[str, LanguageCounts]:
        """Return the known languages of at least 20 documents, or 2 % of all documents."""
        least = min(20, 0.02 * self.documents)
        return {name: counts for name, counts in sorted(self.languages.items()) if name and counts.documents >= least}


class FamilyRecord(Record):
    """One index family of a snapshot: the parameters it was built with, and its counts."""

    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    history_dependent: bool = False
    """True if the family depends on the previous snapshot: the declared exception to "update equals rebuild"."""
    details: dict[str, JsonValue] = Field(default_factory=dict)


class Manifest(Record):
    """The list of a snapshot's artifacts, and the inputs that determined their content."""

    format_version: _Version = FORMAT_VERSION
    minimum_reader_version: _Version = READER_VERSION
    corpus: Corpus
    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    environment: dict[str, JsonValue] = Field(default_factory=dict)
    models: dict[str, JsonValue] = Field(default_factory=dict)
    artifacts: Artifacts = Listing(())
    families: dict[Name, FamilyRecord] = Field(default_factory=dict)
    lineage: Digest

    def to_bytes(self) -> bytes:
        """Return the manifest as canonical JSON, which lists artifacts in groups."""
        fields = self.model_dump(mode="json", by_alias=True, exclude={"artifacts"})
        return canonical_json(fields | {"artifacts": [group.to_json() for group in self.listing.groups]})

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "the manifest") -> Self:
        """Read a manifest.

        Raises UnsupportedFormat if it requires a newer reader or was written before the first release, CorruptBlob if
        it is not a manifest.
        """
        with contextlib.suppress(ValidationError):  # the validation below reports the error
            _Versions.model_validate_json(data).check(where)
        return super().from_bytes(data, where)

    @property
    def listing(self) -> Listing:
        """The artifacts by name, folder and group."""
        return Listing.of(self.artifacts)

    def artifact(self, name: str) -> Artifact | None:
        """Return the artifact with this name, or None."""
        return self.listing.named(name)

    def under(self, folder: str) -> tuple[Artifact, ...]:
        """Return the artifacts `folder/...`, such as the shards of one table, ordered by name."""
        return self.listing.under(folder)


class _Versions(BaseModel):
    """The part of a manifest that a reader checks first."""

    model_config = ConfigDict(strict=True)

    format_version: _Version
    minimum_reader_version: _Version

    def check(self, where: str) -> None:
        """Raise UnsupportedFormat unless this indexmill reads the manifest."""
        if self.minimum_reader_version > READER_VERSION:
            raise UnsupportedFormat(
                f"{where} needs a reader of format {self.minimum_reader_version}; this indexmill reads format "
                f"{READER_VERSION}: install a newer indexmill"
            )
        if self.format_version < FORMAT_VERSION or self.minimum_reader_version < READER_VERSION:
            raise UnsupportedFormat(f"{where} {TOO_OLD}")


class Ref(Record):
    """A numbered version of the index: the digest of its manifest, and how it was created."""

    version: Annotated[int, Field(ge=1)]
    manifest: Digest
    parent: Annotated[int, Field(ge=1)] | None
    epoch: Annotated[int, Field(ge=0)]
    run_id: Word
    created: Timestamp
    cost: dict[str, JsonValue] = Field(default_factory=dict)
    note: str = ""

    @model_validator(mode="after")
    def _follows_its_parent(self) -> Self:
        if self.version != (self.parent or 0) + 1:
            raise ValueError(f"version {self.version} cannot follow {self.parent}")
        return self


class Alias(Record):
    """One record of an alias: the version that the alias points to from then on, or None if the alias was removed."""

    alias: Word
    number: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] | None
    created: Timestamp
    note: str = ""


class Hold(Record):
    """One record of the hold: whether the store refuses builds from then on, and who requested that."""

    number: Annotated[int, Field(ge=1)]
    held: bool
    version: Annotated[int, Field(ge=1)] | None
    """The version that was restored; None if the record ends the hold."""
    run_id: Word
    by: str
    """The user and the host that requested the hold."""
    created: Timestamp
    note: str = ""

    def __str__(self) -> str:
        why = f": {self.note}" if self.note else ""
        return f"on hold since {self.created} by {self.by} (run {self.run_id}), to stay at version {self.version}{why}"


class Candidate(Record):
    """The part of a run's end record that readers use: the manifest that a gate refused to publish, or None."""

    state: str
    manifest: Digest | None = None


class Removal(Record):
    """The record of a version's removal: it was collected or withdrawn.

    A version is withdrawn if it contains a forgotten document, or if a part of it was removed while it was published.
    """

    version: Annotated[int, Field(ge=1)]
    reason: Literal["gc", "forgotten", "incomplete"]
    run_id: Word
    created: Timestamp

    def __str__(self) -> str:
        if self.reason == "gc":
            return f"version {self.version} was removed by gc at {self.created}"
        if self.reason == "incomplete":
            return f"version {self.version} was withdrawn at {self.created}: it was incomplete when it was published"
        return f"version {self.version} was withdrawn at {self.created}: one of its documents is to be forgotten"
