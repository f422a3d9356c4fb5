"""The JSON schemas of answers: objects with exactly the given properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT: Mapping[str, Any] = {"type": "string", "pattern": r"\S"}
"""The JSON schema of a text that is not blank."""


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(name: str) -> dict[str, Any]:
    """The JSON schema of an answer with one property of this name, a text that is not blank."""
    return object_schema(**{name: TEXT})


def list_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a list of objects with exactly these properties."""
    return {"type": "array", "items": object_schema(**properties)}
