"""Schemas for answers, and reading them: a usable answer is complete, valid JSON, and fits the requested schema.

A `BadAnswer` has fixed wording without text from the answer, and so without text from the corpus.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from indexmill.models.llm import Completion, object_schema
from indexmill.models.readable import BadAnswer, value_of
from indexmill.store.canonical import canonical_json, strict_json

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_SHOWN = 200

TEXT: Mapping[str, Any] = {"type": "string", "pattern": r"\S"}
"""The JSON schema of a text that is not blank."""


def text_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of an answer with one property of this name, a text that is not blank."""
    return object_schema(**{name: TEXT})


def list_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a list of objects with exactly these properties."""
    return {"type": "array", "items": object_schema(**properties)}


def read(completion: Completion, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read the value of an answer; raises BadAnswer as `value_of` does, and `wrong-schema` as `checked` does."""
    return checked(value_of(completion), schema)


def checked(value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value; raises BadAnswer if it is not an object or does not fit the schema."""
    if not isinstance(value, dict):
        raise BadAnswer("wrong-schema: not an object")
    from jsonschema.exceptions import best_match  # slow to import, and needed only for models' answers

    wrong = best_match(_validator(canonical_json(dict(schema))).iter_errors(value))
    if wrong is not None:  # the path and the rule come from the schema alone, unlike the message
        where = "/".join(map(str, wrong.absolute_schema_path))
        rule = canonical_json(wrong.validator_value).decode().strip()
        raise BadAnswer(f"wrong-schema: {where} is {rule}"[:_SHOWN])
    return value


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a value is an object that fits the schema."""
    try:
        checked(value, schema)
    except BadAnswer:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _validator(schema: bytes) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    value = strict_json(schema)
    Draft202012Validator.check_schema(value)
    return Draft202012Validator(value)
