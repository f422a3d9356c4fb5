"""The OpenAPI document of a server, made from the models of its requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import indexmill
from indexmill.serve.messages import ErrorResponse


class Operation(NamedTuple):
    """A path with its method.

    media: the types of its answer beside JSON, with what they hold. query: what its address may say.
    """

    path: str
    method: str
    summary: str
    answer: type[BaseModel] | None
    request: type[BaseModel] | None = None
    media: tuple[tuple[str, str], ...] = ()
    token: bool = True
    query: type[BaseModel] | None = None


def openapi_document(operations: Sequence[Operation], tokens: bool) -> dict[str, Any]:
    """An OpenAPI 3.1 document of some operations; tokens: whether callers need one."""
    requests = {one.request for one in operations if one.request is not None}
    answers: set[type[BaseModel]] = {one.answer for one in operations if one.answer is not None} | {ErrorResponse}
    by_name = [(model, "validation") for model in requests] + [(model, "serialization") for model in answers]
    by_name.sort(key=lambda pair: pair[0].__name__)
    _, schemas = models_json_schema(by_name, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, tokens)
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    if tokens:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "indexmill", "version": indexmill.__version__},
        "paths": paths,
        "components": components,
    }


def _operation(one: Operation, tokens: bool) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if one.answer is not None:
        content["application/json"] = {"schema": _ref(one.answer)}
    for media, about in one.media:
        content[media] = {"schema": {"type": "string", "description": about}}
    error = {"description": "What is wrong.", "content": {"application/json": {"schema": _ref(ErrorResponse)}}}
    found: dict[str, Any] = {
        "operationId": one.path.strip("/").replace(".", "_"),
        "summary": one.summary,
        "responses": {"200": {"description": "What was asked for.", "content": content}, "default": error},
    }
    if one.request is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(one.request)}}}
    if one.query is not None:
        found["parameters"] = [_parameter(name, schema) for name, schema in _fields(one.query).items()]
    if tokens and one.token:
        found["security"] = [{"token": []}]
    return found


def _fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    fields: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return fields


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A part of an address, none of which is required."""
    types = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    kind = {key: value for key, value in types[0].items() if key not in ("title", "description")}
    return {"name": name, "in": "query", "required": False, "description": schema["description"], "schema": kind}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
