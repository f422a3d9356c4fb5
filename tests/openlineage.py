"""A receiver of OpenLineage events, which holds each against the schemas of the specification.

The client's classes are generated from the published JSON schemas, one for each definition. Here they are read back:
what a definition requires, its types and formats, and the address that ``schemaURL`` names it by.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import threading
import types
import typing
from enum import Enum
from typing import Any

import attr
import jsonschema

from tests.posts import PostServer

_FORMATS = {"runId": "uuid", "eventTime": "date-time", "producer": "uri", "_producer": "uri", "_schemaURL": "uri"}


def _classes() -> dict[str, Any]:
    """The classes of all definitions, by the address of each."""
    from openlineage.client import generated

    found = {}
    for info in pkgutil.iter_modules(generated.__path__):
        module = importlib.import_module(f"{generated.__name__}.{info.name}")
        for one in vars(module).values():
            if attr.has(one) and hasattr(one, "_get_schema"):
                found[one._get_schema()] = one
    return found


def _schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of an annotation."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(one) for one in arguments if one is not type(None)]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if kind in (str, int, float, bool):
        return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    return _object(kind) if attr.has(kind) else {}


def _object(kind: Any) -> dict[str, Any]:
    """The JSON schema of a class; further properties are allowed, as in the specification."""
    hints = typing.get_type_hints(kind)
    properties, required = {}, []
    for one in attr.fields(kind):
        properties[one.name] = {
            **_schema(hints[one.name]),
            **({"format": _FORMATS[one.name]} if one.name in _FORMATS else {}),
        }
        if one.default is attr.NOTHING or one.name in ("_producer", "_schemaURL", "producer", "schemaURL"):
            required.append(one.name)
    return {"type": "object", "properties": properties, "required": required}


def validate(event: dict[str, Any]) -> None:
    """Raise ``jsonschema.ValidationError`` for an event, or a facet, that is not as its schema says."""
    classes = _classes()

    def check(value: Any, address: str) -> None:
        schema = _object(classes[address])
        jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())

    check(event, event["schemaURL"])
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for name in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(name, {}).values():
                check(facet, facet["_schemaURL"])


class Receiver(PostServer):
    """An HTTP server that takes events, as a context manager. delay: in seconds, before it answers."""

    def __init__(self, *, status: int = 201, delay: float = 0.0) -> None:
        super().__init__(self._took)
        self.events: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.errors: list[str] = []
        self._status, self._delay = status, delay
        self._released = threading.Event()

    def _took(self, path: str, body: bytes) -> int:
        self._released.wait(self._delay)
        self.paths.add(path)
        event = json.loads(body)
        self.events.append(event)
        try:
            validate(event)
        except (jsonschema.ValidationError, LookupError) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        return self._status

    def __exit__(self, *error: object) -> None:
        self._released.set()
        super().__exit__(*error)
