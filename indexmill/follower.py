"""Follow a store: serve its newest version, or the one an alias points to, and switch when that changes.

A new version is opened while the old one is serving. Every byte is verified, each method is used once, and the caller's
smoke questions are run. Only then does the follower switch, and all later queries use the new version. Queries in
flight finish on the old version, which closes after the last of them. A version that fails is rejected: the old one
keeps serving, and the reason is logged and stored in ``refusal``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, Unpack

from indexmill import opening
from indexmill.errors import BadInput, GateRefused, IndexmillError, StoreError
from indexmill.forks import LOADING, Lock, renew_in_children
from indexmill.retrieve.retrieval_options import RetrievalKeywords, RetrievalOptions
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.snapshot import ENCODER, Snapshot
from indexmill.store.signatures import Trust

if TYPE_CHECKING:
    from indexmill.answer.answer_types import Answer, AnswerKeywords
    from indexmill.hits import Hit
    from indexmill.models.openai_embeddings import OpenAiEmbeddings

_LOG = logging.getLogger(__name__)
_READERS = 2
"""The number of threads that verify a new version: few, since the old version is serving."""
_QUESTION = "What is this about?"
"""The question that warms up each method."""


@dataclass(frozen=True, slots=True)
class RejectedVersion:
    """A rejected version and the reason; ``version`` is None if the store could not be read."""

    version: int | None
    reason: str


class _Served:
    """A snapshot and the number of queries that use it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.users = 0
        self.retired = False


class Follower:
    """An index whose version changes under the caller; see ``indexmill.follow``. Thread-safe, a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        alias: str | None = None,
        *,
        poll: float | None,
        processes: int,
        cache: str | os.PathLike[str] | None,
        methods: Sequence[str],
        smoke: Sequence[str],
        check: Callable[[Snapshot], object] | None,
        trust: Trust | str | os.PathLike[str] | None,
        encoder: OpenAiEmbeddings | None = None,
    ) -> None:
        if poll is not None and not poll > 0:
            raise BadInput(f"poll is {poll}; expected seconds above 0, or None to check only when look() is called")
        if isinstance(smoke, str) or isinstance(methods, str):
            raise BadInput("smoke or methods is a single string; expected a sequence of strings")
        self._path, self._alias, self._poll = path, alias, poll
        self._processes, self._cache, self._trust = processes, cache, None if trust is None else Trust.of(trust)
        self._methods, self._smoke, self._check = tuple(methods), tuple(smoke), check
        self._encoder = encoder
        self._lock, self._polling = Lock(), Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.refusal: RejectedVersion | None = None
        """Why the last check rejected a new version or could not read the store; None if all is well."""
        snapshot = self._open(None)
        try:
            self._try(snapshot, None)
        except BaseException:
            snapshot.close()
            raise
        self._served = _Served(snapshot)
        renew_in_children(self)
        self._ensure_polling()

    # Retrieval

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Pin the version served now: it stays open throughout the block."""
        self._ensure_polling()
        with self._lock:
            if self._closed.is_set():
                raise StoreError(f"the index of {self._path} was closed")
            served = self._served
            served.users += 1
        try:
            yield served.snapshot
        finally:
            with self._lock:
                served.users -= 1
                over = served.retired and not served.users
            if over:
                served.snapshot.close()

    def retrieve(
        self, question: str, *, options: RetrievalOptions | None = None, **changes: Unpack[RetrievalKeywords]
    ) -> list[Hit]:
        """Retrieve as ``Snapshot.retrieve`` does, from the version served now; every hit has that version's number."""
        with self.snapshot() as snapshot:
            return snapshot.retrieve(question, options=options, **changes)

    def retrieve_batch(
        self,
        questions: Sequence[str],
        *,
        options: RetrievalOptions | None = None,
        **changes: Unpack[RetrievalKeywords],
    ) -> list[list[Hit]]:
        """Retrieve as ``Snapshot.retrieve_batch`` does; one version answers the whole batch."""
        with self.snapshot() as snapshot:
            return snapshot.retrieve_batch(questions, options=options, **changes)

    def answer(
        self, question: str, *, options: RetrievalOptions | None = None, **changes: Unpack[AnswerKeywords]
    ) -> Answer:
        """Answer as ``Snapshot.answer`` does."""
        with self.snapshot() as snapshot:
            return snapshot.answer(question, options=options, **changes)

    def answer_batch(
        self, questions: Sequence[str], *, options: RetrievalOptions | None = None, **changes: Unpack[AnswerKeywords]
    ) -> list[Answer]:
        """Answer as ``Snapshot.answer_batch`` does; one version answers the whole batch."""
        with self.snapshot() as snapshot:
            return snapshot.answer_batch(questions, options=options, **changes)

    @property
    def version(self) -> int | None:
        """The number of the version served now."""
        return self._served.snapshot.version

    @property
    def methods(self) -> tuple[str, ...]:
        """The retrieval methods of the version served now, best first."""
        return self._served.snapshot.methods

    # Following

    def look(self) -> bool:
        """Check the store now; return True after switching to another version. Never raises: see ``refusal``."""
        with self._polling:
            if self._closed.is_set():
                return False
            before = self._served.snapshot
            fresh: Snapshot | None = None
            try:
                fresh = self._open(before)
                if fresh is before:
                    self.refusal = None
                    return False
                self._try(fresh, before)
            except Exception as error:  # whatever is wrong with the new version, the old one keeps serving
                if fresh is not None:
                    fresh.close()
                self._refuse(None if fresh is None else fresh.version, error)
                return False
            return self._switch_to(fresh)

    def _open(self, before: Snapshot | None) -> Snapshot:
        """Open the snapshot to serve; return ``before`` if the ref has not changed."""
        with LOADING:
            from indexmill.store.blob_cache import BlobCache
            from indexmill.store.reader import StoreReader

            store = StoreReader(self._path, None if self._cache is None else BlobCache.default(self._cache))
            ref = store.resolve(alias=self._alias)
            if before is not None and before.ref == ref:
                return before
            return opening.open(
                self._path,
                ref.version,
                processes=self._processes,
                cache=self._cache,
                trust=self._trust,
                encoder=self._encoder,
            )

    def _try(self, fresh: Snapshot, before: Snapshot | None) -> None:
        """Check and warm up a snapshot. Raises IndexmillError, or what the caller's check raises."""
        names = [artifact.name for artifact in fresh.manifest.artifacts]
        with ThreadPoolExecutor(_READERS) as pool:
            for _ in pool.map(fresh.file, names):
                if self._closed.is_set():
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise StoreError(f"the index of {self._path} was closed")
        if before is not None and before.access is not None and fresh.access is None:
            raise GateRefused(
                f"version {fresh.version} of {self._path} has no access control, unlike version {before.version}; "
                "if this is intended, restart"
            )
        if before is not None and _encoder_of(fresh) == _encoder_of(before):
            fresh.once(ENCODER, before.encoder)
        for method in self._methods or (fresh.default_method,):
            options = RetrievalOptions(method=method, principals=UNRESTRICTED)
            fresh.retrieve(_QUESTION, options=options)
            for question in self._smoke:
                if not fresh.retrieve(question, options=options):
                    raise GateRefused(
                        f"version {fresh.version} of {self._path}: {method} has no hits for {question!r:.200}"
                    )
        if self._check is not None:
            self._check(fresh)

    def _switch_to(self, fresh: Snapshot) -> bool:
        """Switch to a newly opened snapshot; return False if the follower was closed meanwhile."""
        with self._lock:
            closed, old = self._closed.is_set(), self._served
            if not closed:
                self._served, old.retired, self.refusal = _Served(fresh), True, None
            idle = not old.users
        if closed:
            fresh.close()
            return False
        _LOG.info("%s: switched to version %s from version %s", self._path, fresh.version, old.snapshot.version)
        if idle:
            old.snapshot.close()
        return True

    def _refuse(self, version: int | None, error: Exception) -> None:
        reason = str(error) if isinstance(error, IndexmillError) else f"{type(error).__name__}: {error}"
        refusal = RejectedVersion(version, reason)
        if refusal != self.refusal:
            which = "the store" if version is None else f"version {version}"
            _LOG.warning("%s: %s is rejected, version %s keeps serving: %s", self._path, which, self.version, reason)
        self.refusal = refusal

    def _ensure_polling(self) -> None:
        """Start the polling thread unless it is running; a forked child has none."""
        if self._poll is None or self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, args=(self._poll,), name="follow", daemon=True)
                self._thread.start()

    def _run(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            self.look()

    def after_fork(self) -> None:
        """Drop the polling thread, which does not exist in a forked child; the next query starts a new thread."""
        self._thread = None

    # Lifecycle

    def close(self) -> None:
        """Stop following, and close the snapshot once the queries in flight have finished."""
        with self._lock:
            self._closed.set()
            served = self._served
            served.retired = True
            idle = not served.users
        if idle:
            served.snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Follower of {os.fspath(self._path)!r} at version {self.version}>"


def _encoder_of(snapshot: Snapshot) -> object:
    """Return the models and artifacts that determine the encoder of questions."""
    manifest = snapshot.manifest
    return manifest.models, [(artifact.name, artifact.digest) for artifact in manifest.under("encoder")]
