"""The index that a server answers from: one version, or the one that an alias or the store's newest is at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import indexmill
from indexmill.errors import GateRefused, SnapshotNotFound
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.snapshot import Snapshot
from indexmill.store.bucket import place_of
from indexmill.store.canonical import digest_of
from indexmill.store.exported import is_exported

if TYPE_CHECKING:
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.store.manifest import Ref
    from indexmill.store.signatures import Trust


_PATIENCE = 5.0
"""Seconds for which a snapshot is kept open for questions that are late already."""


class Index(Protocol):
    """Where questions go. Thread-safe."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The version served now, the same for the length of the block."""
        ...

    @property
    def version(self) -> int | None:
        """Its number."""
        ...

    def close(self) -> None:
        """Close it once the questions under way have finished."""
        ...


class Pinned:
    """One snapshot, as an ``Index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._idle = threading.Condition()
        self._users = 0

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See ``Index``."""
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
        """See ``Index``."""
        return self._snapshot.version

    def close(self) -> None:
        """See ``Index``."""
        with self._idle:
            self._idle.wait_for(lambda: not self._users, _PATIENCE)
        self._snapshot.close()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which index to serve: see ``indexmill.open`` and ``indexmill.follow``.

    version: pins one, nothing is followed. demand_rights: True to serve no version that everyone may read all of.
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
        """True if the version served may change."""
        place = place_of(self.path)
        return self.version is None and self.manifest is None and not (isinstance(place, Path) and is_exported(place))

    def versions(self) -> list[Ref]:
        """The versions of the store; none for an exported folder, which holds no others."""
        place = place_of(self.path)
        return [] if isinstance(place, Path) and is_exported(place) else indexmill.versions(self.path)


def open_index(wanted: Wanted) -> Index:
    """Open the index and use its methods once; raises as ``indexmill.open`` does."""
    if wanted.follows:
        return indexmill.follow(
            wanted.path,
            wanted.alias,
            wanted.poll,
            processes=wanted.processes,
            methods=wanted.methods,
            smoke=wanted.smoke,
            check=check_rights if wanted.demand_rights else None,
            trust=wanted.trust,
            encoder=wanted.encoder,
        )
    if wanted.smoke:
        raise SnapshotNotFound(f"{wanted.path}: smoke questions try versions that are followed; this one is pinned")
    snapshot = indexmill.open(
        wanted.path,
        wanted.version,
        wanted.alias,
        processes=wanted.processes,
        manifest=wanted.manifest,
        trust=wanted.trust,
        encoder=wanted.encoder,
    )
    try:
        if wanted.demand_rights:
            check_rights(snapshot)
        for method in wanted.methods or (snapshot.default_method,):
            snapshot.retrieve("What is this about?", method, principals=UNRESTRICTED)
    except BaseException:
        snapshot.close()
        raise
    return Pinned(snapshot)


def check_rights(snapshot: Snapshot) -> None:
    """Raise GateRefused for a snapshot that does not say who may read its documents."""
    if snapshot.access is None:
        which = "it" if snapshot.version is None else f"version {snapshot.version}"
        raise GateRefused(
            f"{snapshot.path}: {which} does not say who may read its documents, which --demand-rights asks for; set "
            "corpus.access and build again"
        )


def manifest_digest(snapshot: Snapshot) -> str:
    """The SHA-256 of a snapshot's manifest, which determines every byte of it."""
    if snapshot.ref is not None:
        return snapshot.ref.manifest
    compute: Callable[[], str] = lambda: digest_of(snapshot.manifest.to_bytes())  # noqa: E731
    return snapshot.once("manifest digest", compute)
