"""Records about prompts sent to language models: the answer, or the fact that there is none.

Each is named after the prompt's key, and contains the digest of its content, which reveals damage.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, StringConstraints

from indexmill.errors import CorruptBlob, NotFound, UnsupportedFormat
from indexmill.store.canonical import canonical_json, digest_of, strict_json
from indexmill.store.record import Digest, Record, Timestamp, Word
from storage.protocol import Store

Id = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""The id of a passage, a node or a document."""


class PromptRecord(Record):
    """The common fields of all records about a prompt."""

    format: Literal[1] = 1
    key: Digest
    """The hash of everything that shapes the answer."""
    task: Word
    model: Id
    prompt_version: Id
    about: Annotated[tuple[Id, ...], Field(strict=False)] = ()
    """The ids of the passages and nodes whose text the prompt contained."""
    makes: Annotated[str, StringConstraints(max_length=1000)] = ""
    """The id of the item that the answer is for."""
    run_id: Word
    created: Timestamp

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the record in a store."""

    def to_bytes(self) -> bytes:
        """Return the record as canonical JSON, with its digest."""
        content = self.model_dump(mode="json", by_alias=True)
        return canonical_json({**content, "digest": digest_of(canonical_json(content))})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Read a record. Raises CorruptBlob if its digest does not match, UnsupportedFormat if its format is newer.

        The messages quote no content of the record.
        """
        try:
            content = strict_json(data)
            digest = content.pop("digest")
            whole = canonical_json(content)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CorruptBlob(f"{where} is not a {cls.__name__} ({len(data)} bytes)") from None
        if digest != digest_of(whole):
            raise CorruptBlob(f"{where}: the content does not match its digest ({len(data)} bytes)")
        if type(content.get("format")) is int and content["format"] > 1:
            raise UnsupportedFormat(
                f"{where} has format {content['format']}; this version of indexmill reads 1: install a newer one"
            )
        return super().from_bytes(whole, where)


_R = TypeVar("_R", bound=PromptRecord)


def read(store: Store, name: str, kind: type[_R]) -> _R:
    """Read the record with this name; NotFound if there is none, CorruptBlob if it is damaged or has another key."""
    return _checked(store.get(name), store, name, kind)


def find(store: Store, name: str, kind: type[_R]) -> _R | None:
    """Return the record with this name; None if it is missing or cannot be read."""
    with contextlib.suppress(NotFound, CorruptBlob):
        return read(store, name, kind)
    return None


def scan(
    store: Store, prefixes: Iterable[str], kind: type[_R], advanced: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, int, _R | None]]:
    """Yield (name, size in bytes, record), ordered by key; the record is None if it cannot be read.

    Keeps the names of one prefix in memory at a time; `advanced` is called after each prefix.
    """
    for prefix in prefixes:
        for name in store.list(prefix):
            with contextlib.suppress(NotFound, ValueError):  # removed by now, or not a name of a store
                data = store.get(name)
                try:
                    yield name, len(data), _checked(data, store, name, kind)
                except CorruptBlob:
                    yield name, len(data), None
        advanced()


def _checked(data: bytes, store: Store, name: str, kind: type[_R]) -> _R:
    where = f"{store.url}/{name}"
    record = kind.from_bytes(data, where)
    if record.name != name:
        raise CorruptBlob(f"{where} belongs to a different key")
    return record
