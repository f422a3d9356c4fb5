"""The index of a server: a pinned version, or an index that follows an alias or the newest version."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import indexmill
from indexmill.errors import GateRefused, SnapshotNotFound
from indexmill.follower import Follower
from indexmill.retrieve.artifacts import CacheKey
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.snapshot import Snapshot
from indexmill.store.bucket import place_of
from indexmill.store.canonical import digest_of
from indexmill.store.exported import is_exported

if TYPE_CHECKING:
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.store.manifest import Ref
    from indexmill.store.signatures import Trust

_DIGEST: CacheKey[str] = CacheKey("manifest digest")

_PATIENCE = 5.0
"""The number of seconds for which closing waits for queries in flight."""


class Pinned:
    """A single snapshot with the interface of a ``Follower``. Thread-safe."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.refusal = None
        """Always None: no other version is tried, so none is rejected."""
        self._idle = threading.Condition()
        self._users = 0

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Yield the snapshot, which stays open throughout the block."""
        with self._idle:
            self._users += 1
        try:
            yield self._snapshot
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    @property
    def version(self) -> int | None:
        return self._snapshot.version

    def close(self) -> None:
        """Close the snapshot when the queries in flight have finished."""
        with self._idle:
            self._idle.wait_for(lambda: not self._users, _PATIENCE)
        self._snapshot.close()


Index = Pinned | Follower


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The choice of the index to serve: see ``indexmill.open`` and ``indexmill.follow``.

    version: the version to pin; None to follow. demand_rights: True to reject versions without access control.
    """

    path: str
    version: int | None = None
    alias: str | None = None
    manifest: str | None = None
    poll: float = 30.0
    processes: int = 1
    trust: Trust | None = None
    encoder: OpenAiEmbeddings | None = None
    methods: Sequence[str] = ()
    smoke: Sequence[str] = ()
    demand_rights: bool = False

    @property
    def follows(self) -> bool:
        """True if the served version may change."""
        location = place_of(self.path)
        return (
            self.version is None
            and self.manifest is None
            and not (isinstance(location, Path) and is_exported(location))
        )

    def versions(self) -> list[Ref]:
        """List the versions of the store; empty for an exported folder."""
        location = place_of(self.path)
        return [] if isinstance(location, Path) and is_exported(location) else indexmill.versions(self.path)


def open_index(choice: IndexChoice) -> Index:
    """Open the index and warm up its methods; raises as ``indexmill.open`` does."""
    if choice.follows:
        return indexmill.follow(
            choice.path,
            choice.alias,
            choice.poll,
            processes=choice.processes,
            methods=choice.methods,
            smoke=choice.smoke,
            check=check_rights if choice.demand_rights else None,
            trust=choice.trust,
            encoder=choice.encoder,
        )
    if choice.smoke:
        raise SnapshotNotFound(f"{choice.path}: smoke questions need a followed index, but this version is pinned")
    snapshot = indexmill.open(
        choice.path,
        choice.version,
        choice.alias,
        processes=choice.processes,
        manifest=choice.manifest,
        trust=choice.trust,
        encoder=choice.encoder,
    )
    try:
        if choice.demand_rights:
            check_rights(snapshot)
        for method in choice.methods or (snapshot.default_method,):
            snapshot.retrieve("What is this about?", method=method, principals=UNRESTRICTED)
    except BaseException:
        snapshot.close()
        raise
    return Pinned(snapshot)


def check_rights(snapshot: Snapshot) -> None:
    if snapshot.access is None:
        which = "it" if snapshot.version is None else f"version {snapshot.version}"
        raise GateRefused(
            f"{snapshot.path}: {which} has no access control, which --demand-rights requires; set corpus.access and "
            "build again"
        )


def manifest_digest(snapshot: Snapshot) -> str:
    """Return the SHA-256 of a snapshot's manifest, which determines all its bytes."""
    if snapshot.ref is not None:
        return snapshot.ref.manifest
    return snapshot.once(_DIGEST, lambda: digest_of(snapshot.manifest.to_bytes()))
