"""The HTTP endpoints of a server."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from indexmill.errors import BadInput
from indexmill.serve.callers import CallerTokens
from indexmill.serve.engine import Engine
from indexmill.serve.guard import Guard, error_response
from indexmill.serve.messages import (
    AnswerRequest,
    AnswerResponse,
    ExploreRequest,
    Health,
    RetrieveRequest,
    RetrieveResponse,
    VersionsResponse,
)
from indexmill.serve.metrics import Metrics
from indexmill.serve.openapi import HttpOperation, openapi_document
from indexmill.serve.rejections import CrossSiteRequest, Draining, NoExplorer, RejectedRequest, WrongType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractAsyncContextManager

    from starlette.routing import BaseRoute

M = TypeVar("M", bound=BaseModel)

_EVENTS = (
    "With `stream`: the event `hits` (RetrieveResponse), then `answer` (AnswerResponse) or `error` (ErrorResponse)."
)

OPERATIONS = (
    HttpOperation("/retrieve", "POST", "Find the passages that answer a question.", RetrieveResponse, RetrieveRequest),
    HttpOperation(
        "/answer",
        "POST",
        "Answer a question from the passages found.",
        AnswerResponse,
        AnswerRequest,
        (("text/event-stream", _EVENTS),),
    ),
    HttpOperation(
        "/explore",
        "GET",
        "A subgraph of the index as an HTML page.",
        None,
        media=(("text/html", "A self-contained page."),),
        query=ExploreRequest,
    ),
    HttpOperation("/versions", "GET", "The versions of the store, and the one that is served.", VersionsResponse),
    HttpOperation("/health", "GET", "Liveness of the process.", Health, token=False),
    HttpOperation("/ready", "GET", "Readiness: 503 once the server drains.", Health, token=False),
    HttpOperation(
        "/metrics", "GET", "Metrics for Prometheus.", None, media=(("text/plain", "Prometheus' text format."),)
    ),
)


class _NoSuchPage(RejectedRequest):
    """The server does not have this path or method."""

    def __init__(self, error: HTTPException) -> None:
        super().__init__(f"{error.detail}: /openapi.json lists the paths")
        self.status = error.status_code  # type: ignore[misc] # of this instance
        self.code = "no_such_page" if error.status_code == 404 else "wrong_method"  # type: ignore[misc]


class Surface:
    """The endpoints of ``OPERATIONS``, answered by an engine; each method has the name of its path."""

    def __init__(self, engine: Engine, metrics: Metrics, tokens: bool) -> None:
        self._engine, self._metrics = engine, metrics
        self._document = json.dumps(openapi_document(OPERATIONS, tokens)).encode()

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all endpoints."""
        return [
            *(Route(one.path, getattr(self, one.path.strip("/")), methods=[one.method]) for one in OPERATIONS),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def retrieve(self, request: Request) -> Response:
        body = await _body(request, RetrieveRequest)
        result, batch = await self._engine.retrieve(body, request.state.caller)
        request.state.notes.update(version=result.version, batch=batch)
        return _json(result.to_dict())

    async def answer(self, request: Request) -> Response:
        body = await _body(request, AnswerRequest)
        if not body.stream:
            result = await self._engine.answer(body, request.state.caller)
            request.state.notes.update(version=result.answer.version)
            return _json(result.to_dict())
        steps = self._engine.answer_in_steps(body, request.state.caller)
        first = await anext(steps)  # before the status is sent, so that errors up to here have their own status
        request.state.notes.update(version=first[1].to_dict()["version"])
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_events(first, steps, request.state.request_id), 200, headers, "text/event-stream")

    async def explore(self, request: Request) -> Response:
        site, destination = (request.headers.get(f"sec-fetch-{what}") for what in ("site", "dest"))
        if site == "cross-site" and destination != "document":
            raise CrossSiteRequest("other sites cannot load this page; open it by its URL")
        if importlib.util.find_spec("jinja2") is None:
            raise NoExplorer("this server draws no pages; its operator can install 'indexmill[pages]'")
        version, page = await self._engine.explore(_query(request, ExploreRequest), request.state.caller)
        request.state.notes.update(version=version)
        headers = {
            "cache-control": "no-store",
            "content-security-policy": page.policy,
            "cross-origin-resource-policy": "same-origin",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        }
        return Response(page.html, 200, headers, "text/html; charset=utf-8")

    async def versions(self, request: Request) -> Response:
        refs, version, manifest, methods = await self._engine.versions()
        refusal = self._engine.index.refusal
        return _json(
            {
                "served": {"version": version, "manifest": manifest},
                "methods": methods,
                "alias": self._engine.choice.alias,
                "refused": None if refusal is None else {"version": refusal.version},
                "versions": [
                    {"version": ref.version, "manifest": ref.manifest, "created": ref.created, "note": ref.note}
                    for ref in refs
                ],
            }
        )

    async def health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        if request.state.draining:
            raise Draining("this server is shutting down; use another one")
        return _json({"status": "ready", "version": self._engine.index.version})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")


def make_app(
    engine: Engine,
    metrics: Metrics,
    *,
    tokens: CallerTokens | None,
    hosts: Collection[str] | None,
    more: Collection[BaseRoute] = (),
    around: Callable[[], AbstractAsyncContextManager[object]] = contextlib.nullcontext,
) -> Guard:
    """Build a server's application, which closes the engine at shutdown. more: extra routes. around: their lifespan."""
    routes = [*Surface(engine, metrics, tokens is not None).routes(), *more]

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with around():
            yield
        engine.close()

    def failed(request: Request, error: Exception) -> Response:
        shown_error = _NoSuchPage(error) if isinstance(error, HTTPException) else error
        return error_response(shown_error, request.state.request_id)

    kinds = (HTTPException, RejectedRequest, BadInput, Exception)
    app = Starlette(routes=routes, lifespan=life, exception_handlers=dict.fromkeys(kinds, failed))
    paths = {route.path for route in routes if isinstance(route, Route)}
    return Guard(app, paths=paths, limits=engine.limits, metrics=metrics, tokens=tokens, hosts=hosts)


async def _body(request: Request, model: type[M]) -> M:
    """Parse the body of a request; raises BadInput, which names the first mistakes."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise WrongType("send the question as JSON, with the header `Content-Type: application/json`")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise _wrong(error, "the body") from None


def _query(request: Request, model: type[M]) -> M:
    """Parse the query of a URL; raises BadInput, which names the first mistakes."""
    parameters = request.query_params.multi_items()
    names = [name for name, _ in parameters]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"{', '.join(duplicates)}: given twice; expected once")
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise _wrong(error, "the query") from None


def _wrong(error: ValidationError, what: str) -> BadInput:
    """Describe the first mistakes of a request, without its values."""
    wrong = error.errors(include_url=False, include_input=False, include_context=False)
    return BadInput("; ".join(f"{'.'.join(map(str, detail['loc'])) or what}: {detail['msg']}" for detail in wrong[:3]))


async def _events(
    first: tuple[str, Any], steps: AsyncIterator[tuple[str, Any]], request_id: str
) -> AsyncIterator[bytes]:
    """Yield server-sent events; if an error occurs, it is the last event."""
    yield _event(first[0], _dumped(first[1].to_dict()))
    try:
        async for name, result in steps:
            yield _event(name, _dumped(result.to_dict()))
    except Exception as error:
        yield _event("error", bytes(error_response(error, request_id).body))


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _dumped(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _json(content: object) -> Response:
    return Response(_dumped(content), media_type="application/json")
