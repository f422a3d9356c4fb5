"""Schemas for answers, and reading them: a usable answer is complete, valid JSON, and fits the requested schema.

A `BadAnswer` has fixed wording without text from the answer, and so without text from the corpus.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json

from indexmill.models.llm import Completion
from indexmill.models.readable import BadAnswer, value_of
from indexmill.store.canonical import canonical_json, strict_json

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_SHOWN = 200

_SENTENCES = re.compile(r".*(?:[.!?](?=\s)|(?<=\D)[.!?]$|[。！？।؟])", re.DOTALL)
"""A text up to the end of its last complete sentence."""

_CHARACTERS = 8
"""The characters per token at which a text ends: about twice as many as English has."""

_MANY = 8
"""The fewest items of a list in which repetitions are looked for."""

_MOST_CHARACTERS = 1_999
"""The greatest length that all versions of llama.cpp take."""


def string(most: int, least: int = 0) -> dict[str, Any]:
    """Return the JSON schema of a text of at most `most` characters, where the endpoint can enforce it."""
    return {"type": "string", "minLength": least, "maxLength": min(most, _MOST_CHARACTERS)}


def prose(tokens: int, least: int = 1) -> dict[str, Any]:
    """Return the JSON schema of a text of about `tokens` tokens, which ends at about twice as many."""
    return string(_CHARACTERS * tokens, least)


def list_schema(most: int, item: Mapping[str, Any], least: int = 0) -> dict[str, Any]:
    """Return the JSON schema of a list of at most `most` items, where the endpoint can enforce it."""
    return {"type": "array", "items": dict(item), "minItems": least, "maxItems": most}


def read(completion: Completion, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read the value of an answer; raises BadAnswer as `value_of` does, and `wrong-schema` as `checked` does."""
    return checked(value_of(completion), schema)


def salvaged(completion: Completion, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the complete items of an answer that was cut off, or the complete sentences if it is one text.

    None if it was not cut off, or if nothing is complete.
    """
    value = _before_cut(completion.text, schema) if completion.finish_reason == "length" else None
    return value if value is not None and fits(value, schema) else None


def repeats_items(value: Any) -> bool:
    """Return whether a list in a value, of eight items or more, has fewer than half as many different items."""
    if isinstance(value, Mapping):
        return any(map(repeats_items, value.values()))
    if not isinstance(value, list):
        return False
    distinct = {canonical_json(item) for item in value}
    return (len(value) >= _MANY and len(distinct) < len(value) / 2) or any(map(repeats_items, value))


def _before_cut(answer: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is complete of a cut-off answer, as an object of the schema; None if nothing is."""
    if "<think>" in answer:  # a thought that has not ended
        return None
    begun = answer[max(answer.find("{"), 0) :]
    modes: tuple[Literal[True, "trailing-strings"], ...] = (True, "trailing-strings")
    try:
        whole, partial = (from_json(begun, allow_inf_nan=False, allow_partial=mode) for mode in modes)
    except ValueError:
        return None
    names = list(schema["properties"])
    if len(names) == 1 and schema["properties"][names[0]]["type"] == "string":
        sentences = _SENTENCES.match(str(partial.get(names[0], ""))) if isinstance(partial, dict) else None
        return {names[0]: sentences[0]} if sentences else None
    value = _completed(whole, schema)
    return value if isinstance(value, dict) and any(value.values()) else None


def _completed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value without its incomplete last items, and with empty lists for missing ones; None if impossible."""
    kind = schema.get("type")
    if kind == "array" and isinstance(value, list):
        last = [_completed(item, schema.get("items", {})) for item in value[-1:]]
        return value[:-1] + [item for item in last if item is not None]
    if kind != "object" or not isinstance(value, dict):
        return value
    fields: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        optional = part["type"] == "array" and not part.get("minItems")
        fields[name] = _completed(value[name], part) if name in value else [] if optional else None
    return None if None in fields.values() else fields


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


def _rules(schema: Any) -> Any:
    """Return the schema by which answers are checked: blank texts are refused, long texts and lists accepted.

    The maximum lengths in a request stop models in a loop; an answer that exceeds them anyway can be used.
    """
    if isinstance(schema, list):
        return [_rules(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    rules = {name: _rules(part) for name, part in schema.items() if name not in ("maxLength", "maxItems", "minLength")}
    return rules | {"pattern": r"\S"} if schema.get("minLength") else rules


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
    return Draft202012Validator(_rules(value))
