"""Running a server: open the index, build the application, and serve until shutdown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from indexmill.serve.addresses import LOOPBACK
from indexmill.serve.app import make_app
from indexmill.serve.callers import CallerTokens
from indexmill.serve.engine import Engine, ServerModels
from indexmill.serve.limits import ServerLimits
from indexmill.serve.logs import event, log_to_standard_error
from indexmill.serve.metrics import Metrics
from indexmill.serve.served_index import IndexChoice, open_index
from indexmill.serve.server import Address, Server, bind

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

Mount = Callable[[Engine], tuple["Sequence[BaseRoute]", Callable[[], AbstractAsyncContextManager[object]]]]


def serve(
    choice: IndexChoice,
    address: Address,
    limits: ServerLimits,
    models: ServerModels,
    tokens: CallerTokens | None,
    *,
    mount: Mount | None = None,
    insecure: bool = False,
) -> None:
    """Serve until a signal stops the server. Raises as ``open_index`` does; ConfigurationError for an address in use.

    mount: returns additional routes for the engine, and their lifespan. insecure: True to answer any host without
    tokens.
    """
    log_to_standard_error()
    metrics = Metrics()
    listener = bind(address)
    with contextlib.closing(listener):
        index = open_index(choice)
        engine = Engine(index, choice, limits, models, metrics.batch)
        metrics.gauge("version", "The served version; 0 for an exported folder.", lambda: index.version or 0)
        metrics.gauge("waiting_questions", "Questions waiting for a thread.", lambda: engine.batches.waiting)
        metrics.gauge(
            "refused_version",
            "1 while a newer version is rejected because it failed its checks.",
            lambda: float(index.refusal is not None),
        )
        more, around = ([], contextlib.nullcontext) if mount is None else mount(engine)
        hosts = None if tokens is not None or insecure else LOOPBACK
        guard = make_app(engine, metrics, tokens=tokens, hosts=hosts, more=more, around=around)
        server = Server(guard, address, limits)
        event("started", url=address.url(listener), version=index.version)
        server.run([listener])
        event("ended")
