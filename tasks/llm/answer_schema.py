"""The JSON schemas of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.models.llm import object_schema

TEXT: Mapping[str, Any] = {"type": "string", "pattern": r"\S"}
"""The JSON schema of a text that is not blank."""


def text_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of an answer with one property of this name, a text that is not blank."""
    return object_schema(**{name: TEXT})


def list_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a list of objects with exactly these properties."""
    return {"type": "array", "items": object_schema(**properties)}
