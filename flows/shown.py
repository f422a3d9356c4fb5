"""What Prefect shows of a run: a flow beside the work, which neither waits for it nor fails with it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from flows.server import PrefectServer
from tasks.core.report import Progress

__all__ = ["Shown"]

_LAST_WORD = 30.0
_LAST_WORD_OF_A_FAILURE = 5.0
"""Seconds that the flow has to tell the server how the run ended, once it has."""


class Shown:
    """The flow of some stages at work, for the length of a block that ends when they have.

    In a thread: in the main thread Prefect would take the signals. Prefect is imported there, too, which takes seconds.
    Where a deployed flow runs the build, its context shows this one as a flow below it.
    """

    def __init__(
        self, flow: str, run: str, stages: Mapping[str, Future[None]], server: PrefectServer, progress: Progress
    ) -> None:
        self._flow, self._run, self._stages, self._server, self._progress = flow, run, stages, server, progress
        self._problem: str | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._show,), name=f"flow {run}", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(_LAST_WORD if kind is None else _LAST_WORD_OF_A_FAILURE)
        if kind is None and (self._thread.is_alive() or self._problem is not None):
            self._progress.warn(
                f"the Prefect server at {self._server.url} {self._problem or 'does not answer'}: it does not show how "
                "this run ended; the run itself needs no server"
            )

    def _show(self) -> None:
        try:
            self._server.wait()
            from flows.build import show_flow

            show_flow(self._flow, self._run, self._stages, password=self._server.password)
        except Exception as error:
            if not any(stage.done() and stage.exception() is not None for stage in self._stages.values()):
                self._problem = f"failed ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
