"""The ledger: the answers of language models, each paid for once.

    ledger/<first two digits of the key>/<key>

The key hashes all that shapes the answer. A record is created once, when the answer has been found to be good, and is
on disk before anybody uses it. Any number of processes may write: the first record of a key stands. One that cannot be
read, or whose digest is not that of its content, counts as none and is replaced by the next answer.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, StringConstraints

from indexmill.errors import CorruptBlob, NotFound, UnsupportedFormat
from indexmill.models.llm import key_of
from indexmill.store.canonical import canonical_json, digest_of, strict_json
from indexmill.store.layout import ledger_name, ledger_prefixes
from indexmill.store.manifest import Digest, Record, Timestamp, Word
from storage.protocol import Store

__all__ = ["LONGEST", "Answers", "Id", "LedgerEntry", "Signed", "find", "key_of", "record", "scan", "stats"]

LONGEST = 16 << 20
"""Bytes of a record at most."""

Id = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""The id of a passage, a node or a document."""

_Count = Annotated[int, Field(ge=0, lt=2**53)]


class Signed(Record):
    """A record that also holds the digest of its content, by which damage is told."""

    format: Literal[1] = 1

    def to_bytes(self) -> bytes:
        """The record as canonical JSON, with its digest."""
        content = self.model_dump(mode="json", by_alias=True)
        return canonical_json({**content, "digest": digest_of(canonical_json(content))})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Read a record. Raises CorruptBlob unless its digest is that of its content, UnsupportedFormat if it is newer.

        Neither message holds anything of the record.
        """
        try:
            content = strict_json(data)
            digest = content.pop("digest")
            whole = canonical_json(content)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CorruptBlob(f"{where} is no {cls.__name__} ({len(data)} bytes)") from None
        if digest != digest_of(whole):
            raise CorruptBlob(f"{where}: the content is not that of its digest ({len(data)} bytes)")
        if type(content.get("format")) is int and content["format"] > 1:
            raise UnsupportedFormat(
                f"{where} has format {content['format']}; this indexmill reads 1: install a newer one"
            )
        return super().from_bytes(whole, where)


class LedgerEntry(Signed):
    """The answer of a language model to one prompt."""

    key: Digest
    task: Word
    model: Id
    prompt_version: Id
    value: dict[str, JsonValue]
    """What was answered, as the task's schema has it."""
    input_tokens: _Count
    output_tokens: _Count
    """What was billed for it, a repair included."""
    about: Annotated[tuple[Id, ...], Field(strict=False)] = ()
    """The ids of the passages and nodes whose text the prompt held."""
    makes: Annotated[str, StringConstraints(max_length=1000)] = ""
    """The id of what the answer is for."""
    run_id: Word
    created: Timestamp


class Answers(Counter[str]):
    """Counts of one model and task: answers, input_tokens, output_tokens, bytes."""


def find(store: Store, key: str) -> LedgerEntry | None:
    """The answer of a key; None if there is none that can be read."""
    try:
        return _read(store, ledger_name(key), key)
    except (NotFound, CorruptBlob):
        return None


def record(store: Store, entry: LedgerEntry, stands: Callable[[LedgerEntry], bool] = lambda _: True) -> LedgerEntry:
    """Keep an answer; returns the one to use: this one, or an earlier one of the same key for which `stands` holds.

    On return it survives a loss of power.
    """
    name, data = ledger_name(entry.key), entry.to_bytes()
    while not store.create(name, data):
        with contextlib.suppress(CorruptBlob, NotFound):
            found = _read(store, name, entry.key)
            if stands(found):
                return found
        store.delete(name)
    return entry


def scan(store: Store, advanced: Callable[[], object] = lambda: None) -> Iterator[tuple[str, int, LedgerEntry | None]]:
    """Every record by name, with its bytes, in the order of the keys; None for what cannot be read.

    Holds the names of a 256th at a time; `advanced` is called after each of these.
    """
    for prefix in ledger_prefixes():
        for name in store.list(prefix):
            with contextlib.suppress(NotFound, ValueError):  # gone by now, or a name that is none of a store's
                data = store.get(name)
                try:
                    yield name, len(data), _checked(data, f"{store.url}/{name}", name)
                except CorruptBlob:
                    yield name, len(data), None
        advanced()


def stats(
    store: Store, advanced: Callable[[], object] = lambda: None
) -> tuple[dict[tuple[str, str], Answers], int, int]:
    """Counts by (model, task), and the number and bytes of the records that cannot be read."""
    found: dict[tuple[str, str], Answers] = {}
    damaged = lost = 0
    for _, size, entry in scan(store, advanced):
        if entry is None:
            damaged, lost = damaged + 1, lost + size
            continue
        counts = found.setdefault((entry.model, entry.task), Answers())
        counts["answers"] += 1
        counts["input_tokens"] += entry.input_tokens
        counts["output_tokens"] += entry.output_tokens
        counts["bytes"] += size
    return dict(sorted(found.items())), damaged, lost


def _read(store: Store, name: str, key: str) -> LedgerEntry:
    return _checked(store.get(name), f"{store.url}/{name}", ledger_name(key))


def _checked(data: bytes, where: str, name: str) -> LedgerEntry:
    entry = LedgerEntry.from_bytes(data, where)
    if ledger_name(entry.key) != name:
        raise CorruptBlob(f"{where} is the record of another key")
    return entry
