"""Helper processes: a batch of questions is divided among processes that have the same snapshot open.

Python runs one thread at a time, so one process answers a batch on one core, except for numpy's larger products. The
parent divides the batch and collects the hits. Only the parent has the encoder: helpers send it the texts that they
need encoded. Arrays are memory maps, which all processes share; data that a method derives from them on first use
is private to each process.

Parent and helper communicate over a pair of sockets, which a forked process closes. The parent sends a function that
opens the snapshot, then a ``_Part`` for each part of a batch. The helper replies with ``("encode", texts)`` as often as
needed, then with ``("found", rows)`` or ``("error", error)``.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.spawn import get_executable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from indexmill.errors import BadInput, StoreError
from indexmill.hits import Hit
from indexmill.retrieve.retrieval_method import QueryBatch, Retriever, Vectors

FEWEST = 8
"""The parent answers smaller batches: sending the questions costs more than the helpers save."""

PART = 64
"""The maximum number of questions per part."""

PATIENCE = 5.0
"""Seconds between closing the sockets of helpers and killing them."""

ANSWER_SECONDS = 300.0
QUESTION_SECONDS = 5.0
"""A helper's timeout per part, plus that per question; a late helper is killed, and another process answers."""

FIRST_ANSWER_SECONDS = 3600.0
"""The timeout of a helper's first part per method: it opens the snapshot and hashes the files that it reads."""

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from indexmill.retrieve.worker_pool import serve; serve()"
)

_ENVIRONMENT = {
    # The helpers already use the cores.
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    # The C library reuses the memory of one part for the next; otherwise the kernel would have to clear it again.
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 25)),
}
"""Defaults for a helper's environment; the parent's environment takes precedence."""


class Opened(Protocol):
    """A snapshot opened by a helper."""

    def retriever(self, method: str | None = None) -> Retriever:
        """Return the retriever of a method."""
        ...


class _Part(NamedTuple):
    """Some questions of a batch, for a helper. encodes: True if the helper may ask the parent to encode texts."""

    method: str
    parameters: dict[str, object]
    batch: QueryBatch
    k: int
    encodes: bool


_values: Callable[[Hit], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(Hit)))
"""Returns the fields of a hit; sending them takes a third of the time that sending hits would take."""


class ReaderPool:
    """A pool of helper processes that open the same snapshot as this process and answer batches for it.

    The pool answers one batch at a time, from any thread. If a helper ends or times out, a warning is issued and a
    different process answers its part; the next batch starts a new helper. A forked process has no helpers and answers
    batches itself.
    """

    def __init__(self, opening: Callable[[], Opened], count: int) -> None:
        """Start ``count`` helpers; raises BadInput if it is below 1. opening: opens the snapshot; picklable."""
        if not isinstance(count, int) or count < 1:
            raise BadInput(f"processes is {count!r}; expected a whole number of at least 1")
        self._opening = opening
        self._lock = threading.RLock()  # reentrant: a signal handler may close the pool while its thread is in search
        self._owner = os.getpid()
        self._readers = [_Reader(self._opening) for _ in range(count)]
        self._finalizer = weakref.finalize(self, _end, self._readers, self._owner)
        _EVERY.add(self)

    @property
    def processes(self) -> list[int]:
        """The ids of the helpers."""
        return [helper.process.pid for helper in self._readers]

    def search(
        self,
        retriever: Retriever,
        method: str,
        parameters: Mapping[str, object],
        batch: QueryBatch,
        k: int,
    ) -> list[list[Hit]]:
        """Return the hits of ``retriever.search(batch, k)``. method, parameters: those of ``retriever``."""
        if len(batch.questions) < FEWEST or os.getpid() != self._owner:
            return retriever.search(batch, k)
        with self._lock:
            if self._owner < 0:  # closed in the meantime
                return retriever.search(batch, k)
            for i, helper in enumerate(self._readers):
                if not helper.is_idle():
                    helper.end()
                    self._readers[i] = _Reader(self._opening)
            part = _Part(method, dict(parameters), replace(batch, encode=None, shared={}), k, batch.encode is not None)
            return self._shared(retriever, part, batch)

    def _shared(self, retriever: Retriever, whole: _Part, batch: QueryBatch) -> list[list[Hit]]:
        size = min(PART, -(-len(batch.questions) // len(self._readers)))
        remaining = deque(slice(first, first + size) for first in range(0, len(batch.questions), size))
        idle = list(self._readers)
        busy: dict[Any, tuple[_Reader, slice]] = {}  # by connection
        hits_by_start: dict[int, list[list[Hit]]] = {}
        error: Exception | None = None
        try:
            while remaining or busy:
                while remaining and idle:
                    part = remaining.popleft()
                    helper = idle.pop()
                    busy[helper.connection] = helper, part
                    part_batch = _some(whole.batch, part)
                    helper.ask(whole._replace(batch=part_batch), len(part_batch.questions), whole.method)
                if not busy:  # every helper has ended
                    part = remaining.popleft()
                    hits_by_start[part.start] = retriever.search(_some(batch, part), whole.k)
                    continue
                for connection in wait(list(busy)):
                    helper, part = busy[connection]
                    kind, content = helper.receive()
                    if kind == "encode":
                        reply = _tried(partial(batch.encode or _unable, content))
                        helper.ask(reply, len(batch.questions[part]), whole.method)
                        continue
                    del busy[connection]
                    if kind == "ended":
                        remaining.appendleft(part)
                        warnings.warn(f"{content}; other processes answer its questions", RuntimeWarning, stacklevel=4)
                        continue
                    helper.outstanding = False
                    helper.warm_methods.add(whole.method)
                    idle.append(helper)
                    if kind == "error":
                        error = error or content
                        remaining.clear()
                    else:
                        hits_by_start[part.start] = [[Hit(*values) for values in rows] for rows in content]
        except BaseException:
            for helper, _ in busy.values():  # nothing waits for their answers
                helper.end()
            raise
        if error is not None:
            raise error
        return [hits for first in sorted(hits_by_start) for hits in hits_by_start[first]]

    def close(self) -> None:
        """Make the helpers end after the current batch; the parent answers later batches itself."""
        if os.getpid() == self._owner:
            with self._lock:
                self._owner = -1
                self._finalizer()


_EVERY: weakref.WeakSet[ReaderPool] = weakref.WeakSet()


def _forked() -> None:
    """Close the helpers' sockets in a forked child, so that helpers end with the process that started them."""
    for helpers in _EVERY:
        for helper in helpers._readers:
            helper.connection.close()


os.register_at_fork(after_in_child=_forked)


def _some(batch: QueryBatch, part: slice) -> QueryBatch:
    """Return a batch of some of the questions, without shared results."""
    return replace(
        batch, questions=batch.questions[part], vectors=batch.vectors[part], names=batch.names[part], shared={}
    )


class _Reader:
    """A helper process, and the parent's end of its socket.

    outstanding: True from a request until its answer is received. warm_methods: the methods that the helper has used.
    """

    def __init__(self, opening: Callable[[], Opened]) -> None:
        executable = get_executable()
        if not executable:
            raise StoreError("Python does not know its executable, so no helpers can start: pass processes=1")
        path = [str(Path(folder).absolute()) for folder in sys.path if isinstance(folder, str)]
        self.outstanding = False
        self.warm_methods: set[str] = set()
        self._watch: threading.Timer | None = None
        self._late = ""
        self.connection, helper_end = Pipe()
        with helper_end:
            self.process = subprocess.Popen(  # noqa: S603
                [executable, "-P", "-c", _START, json.dumps(path), str(helper_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **os.environ},
                pass_fds=[helper_end.fileno()],
                process_group=0,  # Ctrl-C interrupts only the parent
            )
        self.send(opening)

    def is_idle(self) -> bool:
        """Return True if the helper runs and owes no answer; after an interrupt, an answer may be outstanding."""
        return not (self.outstanding or self.connection.closed) and self.process.poll() is None

    def ask(self, what: object, questions: int, method: str) -> None:
        """Send a part, or the reply to a request of the helper, and start the timeout for ``questions`` questions."""
        self.outstanding = True
        seconds = ANSWER_SECONDS + QUESTION_SECONDS * questions
        if method not in self.warm_methods:
            seconds = max(seconds, FIRST_ANSWER_SECONDS)
        self._watch = threading.Timer(seconds, self._kill, [seconds])
        self._watch.daemon = True
        self._watch.start()
        self.send(what)

    def _kill(self, seconds: float) -> None:
        """Kill the process from the timer's thread; this unblocks a thread that sends to it or waits for it."""
        self._late = f"has not answered for {seconds:.0f} seconds and was killed"
        self.process.kill()

    def send(self, what: object) -> None:
        """Send an object to the helper; errors of a helper that has ended are ignored."""
        with contextlib.suppress(OSError):
            self.connection.send(what)

    def receive(self) -> tuple[str, Any]:
        """Return the next message from the helper, or ``("ended", reason)`` if the helper has ended."""
        try:
            message: tuple[str, Any] = self.connection.recv()
            return message
        except (EOFError, OSError):
            ended = self.end()
            return "ended", f"the helper process {self.process.pid} {self._late or f'has ended with exit code {ended}'}"
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def end(self) -> int:
        """Kill the helper and return its exit code."""
        if self._watch is not None:
            self._watch.cancel()
        self.connection.close()
        self.process.kill()
        return self.process.wait()


def _end(helpers: list[_Reader], owner: int) -> None:
    """Close the helpers' sockets, so that they end; kill those that do not end in time."""
    if os.getpid() != owner:
        return
    for helper in helpers:
        helper.connection.close()
    until = time.monotonic() + PATIENCE
    for helper in helpers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            helper.process.wait(max(0.0, until - time.monotonic()))
        helper.end()


def _unable(texts: list[str]) -> Vectors:
    raise RuntimeError(f"a helper requested vectors of {len(texts)} texts, but the parent has no encoder")


def _tried(act: Callable[[], object]) -> tuple[str, Any]:
    """Return ``("found", result)``, or ``("error", error)`` with a picklable error."""
    try:
        return "found", act()
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            return "error", RuntimeError(f"{type(error).__name__}: {error}")
        return "error", error


def serve() -> None:
    """Run a helper: answer over the socket named in the arguments until it is closed."""
    with Connection(int(sys.argv[2])) as connection, contextlib.suppress(EOFError, OSError):
        state, snapshot = _tried(connection.recv())
        while state == "found":
            part: _Part = connection.recv()
            connection.send(_tried(partial(_rows, snapshot, part, connection)))
        connection.recv()
        connection.send((state, snapshot))  # the next helper may succeed


def _rows(snapshot: Opened, part: _Part, connection: Connection) -> list[list[tuple[Any, ...]]]:
    """Return the fields of each question's hits."""

    def encode(texts: list[str]) -> Vectors:
        connection.send(("encode", texts))
        state, content = connection.recv()
        if state == "error":
            raise content
        vectors: Vectors = content
        return vectors

    retriever = snapshot.retriever(part.method).with_parameters(part.parameters)
    hit_lists = retriever.search(replace(part.batch, encode=encode if part.encodes else None), part.k)
    return [list(map(_values, hits)) for hits in hit_lists]
