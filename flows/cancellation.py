"""End a run when its flow run is cancelled in Prefect's web interface or command line."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import copy_context

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from flows.interrupt import Interrupt

_POLL_SECONDS = 10.0


@contextlib.contextmanager
def cancelled_by_prefect(interrupt: Interrupt) -> Iterator[None]:
    """Stop the block's stages when the flow run is cancelled. Prefect sends signals only to runs of its workers."""
    run_id, ended = flow_run.id, threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            with contextlib.suppress(Exception), get_client(sync_client=True) as client:
                state = client.read_flow_run(run_id).state
                if state is not None and (state.is_cancelling() or state.is_cancelled()):
                    interrupt.cancel("a cancellation in Prefect")
                    return

    thread = threading.Thread(target=copy_context().run, args=(poll,), name="cancellation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
