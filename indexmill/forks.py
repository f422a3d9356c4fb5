"""Renew state in forked processes, such as the workers of a preloading web server.

A child has one thread, the one that forked. A lock that another thread held stays locked, and a library with a thread
pool waits for threads that no longer exist. So a child replaces locks, reopens an encoder's runtime, and runs torch in
a thread that it starts.

Import locks cannot be replaced: Python locks a module while a thread imports it, and in a child it would stay locked.
So a fork waits until no thread is importing.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - as for logging
import logging  # noqa: F401 - registers fork handlers, which must not happen while a fork waits for LOADING
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")


class Renewable(Protocol):
    """An object with state that a forked child cannot use."""

    def after_fork(self) -> None:
        """Replace the unusable state in the child before anything else runs there. Must take no lock."""
        ...


_every: weakref.WeakSet[Renewable] = weakref.WeakSet()
_torch_has_threads = False
"""True if an ancestor process had loaded torch; torch's threads do not exist in this process."""


def renew_in_children(renewable: Renewable) -> None:
    """Call ``after_fork`` in every process forked from here, as long as the object lives."""
    _every.add(renewable)


def keep_forever(*objects: object) -> None:
    """Never free these objects, not even at process exit: their destructors would wait for threads of the parent."""
    import ctypes

    for permanent in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(permanent))


class Lock:
    """A reentrant lock that is unlocked in a forked child, whichever thread held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renew_in_children(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.RLock()


class _Loading(ContextDecorator):
    """``with LOADING:`` or ``@LOADING`` marks code that may import modules: a fork waits until the code has finished.

    Any number of threads may load at the same time. A fork waits for all threads but its own. It proceeds if no module
    was imported for PATIENCE seconds, so that a blocked thread cannot delay it forever; on a busy machine, imports that
    still advance may take much longer.
    """

    PATIENCE: ClassVar[float] = 10.0
    """The number of seconds without an import after which a fork waits no longer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._depths: dict[int, int] = {}
        """The nesting depth of loads, by thread."""

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._depths[thread] = self._depths.get(thread, 0) + 1

    def __exit__(self, *raised: object) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._depths[thread] -= 1
            if not self._depths[thread]:
                del self._depths[thread]
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no other thread is loading, and block new loads until ``after_fork``."""
        self._changed.acquire()
        current, imported = threading.get_ident(), len(sys.modules)
        while not self._changed.wait_for(lambda: not self._depths.keys() - {current}, self.PATIENCE):
            if imported == (imported := len(sys.modules)):
                break

    def after_fork(self) -> None:
        """Allow loads again, in the parent."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Forget the threads that exist only in the parent."""
        current = threading.get_ident()
        self._changed = threading.Condition()
        self._depths = {thread: depth for thread, depth in self._depths.items() if thread == current}


LOADING = _Loading()


class TorchTurn:
    """Runs torch, one call at a time.

    libgomp keeps a thread pool for each thread that has computed in parallel; in a child, the thread that forked would
    wait for pool threads of the parent. A thread started in the child gets a new pool of the same size, so results are
    bit-identical.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: ThreadPoolExecutor | None = None
        renew_in_children(self)

    def run(self, act: Callable[[], T]) -> T:
        """Run ``act``, and return its result or raise its error."""
        if not _torch_has_threads:
            with self._lock:
                return act()
        with self._lock:
            if self._thread is None:
                from concurrent.futures import ThreadPoolExecutor

                self._thread = ThreadPoolExecutor(1, thread_name_prefix="torch")
            thread = self._thread
        return thread.submit(act).result()

    def after_fork(self) -> None:
        self._thread = None


def _renew() -> None:
    global _torch_has_threads
    _torch_has_threads = _torch_has_threads or "torch" in sys.modules
    for renewable in list(_every):
        renewable.after_fork()


if hasattr(os, "register_at_fork"):  # on systems where processes can fork
    os.register_at_fork(after_in_child=_renew)
    os.register_at_fork(
        before=LOADING.before_fork,
        after_in_parent=LOADING.after_fork,
        after_in_child=LOADING.after_fork_in_child,
    )
