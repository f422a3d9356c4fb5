"""The outer layer around every request: it checks host, token, rate and size before, and logs and counts after."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import secrets
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from indexmill.serve.callers import ANONYMOUS, Caller, CallerTokens
from indexmill.serve.limits import CallerRates, ServerLimits
from indexmill.serve.logs import cause, event
from indexmill.serve.messages import ErrorResponse
from indexmill.serve.metrics import Metrics
from indexmill.serve.rejections import TooLarge, TooSlow, WrongHost, failure_of
from indexmill.telemetry import Span, joined, span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPEN = frozenset({"/health", "/ready", "/openapi.json"})
"""The paths that need no token."""

_UNTRACED = _OPEN | {"/metrics", "/mcp"}
"""The paths that are polled or held open."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Guard:
    """An ASGI application that wraps another application.

    paths: the paths that are logged and counted by name. tokens: the accepted tokens; None for a server without tokens.
    hosts: the accepted ``Host`` headers, so that no web page reaches the server under another name; None for any host.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        paths: Collection[str],
        limits: ServerLimits,
        metrics: Metrics,
        tokens: CallerTokens | None,
        hosts: Collection[str] | None,
    ) -> None:
        self._app, self._paths, self._limits, self._metrics = app, frozenset(paths), limits, metrics
        self._tokens, self._hosts, self._rates = tokens, hosts, CallerRates(limits.rate, time.monotonic)
        self.draining = False
        """True during shutdown, when responses close their connections."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        header = headers.get("x-request-id", "")
        request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
        state = {"request_id": request_id, "caller": ANONYMOUS, "draining": self.draining, "notes": {}}
        scope["state"] = {**scope.get("state", {}), **state}
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = MutableHeaders(scope=message)
                response_headers["x-request-id"] = request_id
                if self.draining:
                    response_headers["connection"] = "close"
            await send(message)

        try:
            scope["state"]["caller"] = caller = self._admit(scope["path"], headers)
            if scope["path"] not in _OPEN:
                self._rates.take(caller.name)
            with self._traced(scope, headers) as request_span:
                await self._app(scope, self._bounded(scope["path"], receive), answer)
                request_span.set({"http.response.status_code": status})
        except Exception as error:
            if not status:
                await error_response(error, request_id)(scope, receive, answer)
            elif failure_of(error).code != "internal" or status != 500:
                event("broken", level=logging.ERROR, request_id=request_id, cause=cause(error))
        finally:
            self._end(scope, status, time.perf_counter() - began)

    @contextlib.contextmanager
    def _traced(self, scope: Scope, headers: Headers) -> Iterator[Span]:
        """Record the span of a request, in the trace that its ``traceparent`` names."""
        path, method = scope["path"], scope["method"]
        if path not in self._paths or path in _UNTRACED:
            yield Span()
            return
        attributes = {"http.request.method": method, "http.route": path, "url.scheme": scope.get("scheme", "http")}
        with joined(headers), span(f"{method} {path}", attributes, kind="server") as request_span:
            yield request_span

    def _admit(self, path: str, headers: Headers) -> Caller:
        """Return the caller of a request; raises a RejectedRequest."""
        if self._hosts is not None and _host(headers.get("host", "")) not in self._hosts:
            raise WrongHost("this server accepts only requests to localhost: use localhost, or serve with --tokens")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._limits.body:
            raise _too_large(self._limits.body)
        if path in _OPEN:
            return ANONYMOUS
        return ANONYMOUS if self._tokens is None else self._tokens.caller(headers.get("authorization"))

    def _bounded(self, path: str, receive: Receive) -> Receive:
        """Limit the size of a body and the time to receive it."""
        if path == "/mcp":  # this path has its own limit, and waits for the client to disconnect
            return receive
        received, more = 0, True
        ends = time.monotonic() + self._limits.seconds

        async def bounded() -> Message:
            nonlocal received, more
            if not more:
                return await receive()
            try:
                async with asyncio.timeout(ends - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise TooSlow("the body did not arrive in time; send it at once") from None
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > self._limits.body:
                raise _too_large(self._limits.body)
            return message

        return bounded

    def _end(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.request(path, status, seconds)
        state = scope["state"]
        event(
            "request",
            request_id=state["request_id"],
            caller=state["caller"].name,
            method=scope["method"],
            path=path,
            status=status,
            ms=round(1000 * seconds, 1),
            **state["notes"],
        )


def error_response(error: Exception, request_id: str) -> Response:
    """Convert an error to a JSON response; logs the cause if the response does not contain it."""
    failure = failure_of(error)
    if failure.logged:
        event("failure", level=logging.ERROR, request_id=request_id, code=failure.code, cause=cause(error))
    headers = {}
    if failure.retry_after is not None:
        headers["retry-after"] = str(math.ceil(failure.retry_after))
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    if failure.status in (408, 413):
        headers["connection"] = "close"
    body = {"error": {"code": failure.code, "message": failure.message, "request_id": request_id}}
    text = ErrorResponse.model_validate(body).model_dump_json()
    return Response(text, failure.status, headers, "application/json")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit:,} bytes; ask for less at a time")


def _host(header: str) -> str:
    """Return the host of a ``Host`` header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
