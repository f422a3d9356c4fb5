"""The OpenAPI document of a server, generated from the models of its requests and responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import indexmill
from indexmill.serve.messages import ErrorResponse


class HttpOperation(NamedTuple):
    """A path and its method. media: response types besides JSON, with descriptions. query: model of URL parameters."""

    path: str
    method: str
    summary: str
    answer: type[BaseModel] | None
    request: type[BaseModel] | None = None
    media: tuple[tuple[str, str], ...] = ()
    token: bool = True
    query: type[BaseModel] | None = None


def openapi_document(operations: Sequence[HttpOperation], tokens: bool) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of some operations. tokens: True if callers need a token."""
    requests = {operation.request for operation in operations if operation.request is not None}
    answers: set[type[BaseModel]] = {operation.answer for operation in operations if operation.answer is not None} | {
        ErrorResponse
    }
    by_name = [(model, "validation") for model in requests] + [(model, "serialization") for model in answers]
    by_name.sort(key=lambda pair: pair[0].__name__)
    _, schemas = models_json_schema(by_name, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, tokens)
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    if tokens:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "indexmill", "version": indexmill.__version__},
        "paths": paths,
        "components": components,
    }


def _operation(operation: HttpOperation, tokens: bool) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": _ref(operation.answer)}
    for media, about in operation.media:
        content[media] = {"schema": {"type": "string", "description": about}}
    error = {"description": "An error.", "content": {"application/json": {"schema": _ref(ErrorResponse)}}}
    description: dict[str, Any] = {
        "operationId": operation.path.strip("/").replace(".", "_"),
        "summary": operation.summary,
        "responses": {"200": {"description": "Success.", "content": content}, "default": error},
    }
    if operation.request is not None:
        description["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(operation.request)}},
        }
    if operation.query is not None:
        description["parameters"] = [_parameter(name, schema) for name, schema in _fields(operation.query).items()]
    if tokens and operation.token:
        description["security"] = [{"token": []}]
    return description


def _fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    fields: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return fields


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    types = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    kind = {key: value for key, value in types[0].items() if key not in ("title", "description")}
    return {"name": name, "in": "query", "required": False, "description": schema["description"], "schema": kind}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
