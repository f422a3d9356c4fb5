"""Messages for mistakes in settings, one line each: the full key, the allowed values, and the value found.

pydantic finds the mistakes, but its messages name classes, patterns and every branch of a union. The allowed values
come from the JSON schema of the settings.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indexmill.models.secrets import redacted

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_LONGEST_SHOWN = 40
_UNSHOWN = re.compile("key|secret|token_provider|password|url|proxy", re.IGNORECASE)
"""Settings that may contain a secret, by mistake or by design: their values are not shown."""


class WrongSettings(ValueError):
    """Mistakes that a setting's validator found in nested settings, by name: ``{"k2": "there is no such setting"}``."""

    def __init__(self, by_name: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {wrong}" for name, wrong in by_name.items()))
        self.by_name = dict(by_name)


def mistakes(error: ValidationError, schema: Mapping[str, Any], above: str = "") -> list[str]:
    """Return a line for each mistake, such as ``split.tokens: expected a whole number, found 'many'``.

    schema: the JSON schema of the validated settings. above: the key of their section, if any.
    """
    by_key: dict[str, tuple[Mapping[str, Any], list[ErrorDetails]]] = {}
    for detail in error.errors(include_url=False):
        key, node = _at(schema, detail["loc"], above)
        by_key.setdefault(key, (node, []))[1].append(detail)
    return [line for key, (node, errors) in by_key.items() for line in _lines(key, node, errors, schema)]


def allowed_values(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Describe a setting's allowed values in words. node: its schema. schema: the full schema, with its ``$defs``."""
    node = _resolved(node, schema)
    if "enum" in node or "const" in node:
        return _or([_quoted(value) for value in node.get("enum", [node.get("const")])])
    if "anyOf" in node:
        words = list(dict.fromkeys(allowed_values(branch, schema) for branch in node["anyOf"]))
        return _or([word for word in words if word != "a whole number" or "a number" not in words])
    kind = node.get("type")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(node)
    if kind == "string":
        return ("a path" if node.get("format") == "path" else "a string") + _length(node)
    if kind == "array":
        items = node.get("items", {})
        if "enum" in items:
            return f"a list of {allowed_values(items, schema)}" + _length(node)
        return f"a list of {'strings' if items.get('type') == 'string' else 'values'}" + _length(node)
    if kind == "object":
        names = node.get("properties")
        return f"a section with {', '.join(names)}" if names else "a section, one `name: value` per line"
    return {"boolean": "true or false", "null": "null"}.get(str(kind), "something else")


def shown_value(value: object, key: str = "") -> str:
    """Format a value for a message: shortened, and with possible secrets hidden."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        shown = repr(value)
        hidden = _UNSHOWN.search(key.rpartition(".")[2]) or redacted(shown) != shown or len(value) > _LONGEST_SHOWN
        return f"a string of {len(value)} characters" if hidden else shown
    if isinstance(value, Mapping):
        return "a section"
    if value in ([], ()):
        return "an empty list"
    return "a list" if isinstance(value, Sequence) else f"a {type(value).__name__}"


def unknown_setting(name: object, siblings: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the message for an unknown setting; it suggests a similar sibling, else a similar key of ``elsewhere``."""
    names = list(siblings)
    message = "there is no such setting"
    if near := difflib.get_close_matches(str(name), names, n=1):
        return f"{message}; did you mean {near[0]}?"
    by_last: dict[str, list[str]] = {}
    for key in elsewhere:
        by_last.setdefault(key.rpartition(".")[2], []).append(key)
    if near := difflib.get_close_matches(str(name), list(by_last), n=1, cutoff=0.9):
        return f"{message} here; did you mean {_or(by_last[near[0]][:3])}?"
    return f"{message}; the settings are {', '.join(names)}" if names else message


def _lines(
    key: str, node: Mapping[str, Any], errors: Sequence[ErrorDetails], schema: Mapping[str, Any]
) -> Iterator[str]:
    first = errors[0]
    reason = first.get("ctx", {}).get("error")
    begin = f"{key}: " if key else ""
    if isinstance(reason, WrongSettings):
        yield from (f"{key}.{name}: {wrong}" for name, wrong in reason.by_name.items())
    elif isinstance(reason, ValueError):
        yield f"{begin}{reason}"
    elif first["type"] in _UNKNOWN:
        siblings = _resolved(node, schema).get("properties", {})
        yield f"{begin}{unknown_setting(first['loc'][-1], siblings, _keys(schema, schema))}"
    elif first["type"] == "invalid_key" or first["loc"][-1:] == ("[key]",):
        above = key.rpartition(".")[0]
        yield f"{above}{': ' if above else ''}names of settings must be strings, found {shown_value(first['input'])}"
    elif first["type"] == "missing":
        yield f"{begin}is required: {allowed_values(node, schema)}"
    else:
        finite = "a finite number: " if first["type"] == "finite_number" else ""
        yield f"{begin}expected {finite}{allowed_values(node, schema)}, found {shown_value(first['input'], key)}"


_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def _at(schema: Mapping[str, Any], loc: Sequence[int | str], above: str) -> tuple[str, Mapping[str, Any]]:
    """Find the key and the schema at pydantic's location ``loc``; for an unknown setting, the schema of its section.

    pydantic appends the branch of a union to the location; the branch is not part of the key.
    """
    key, node = above, schema
    for part in loc:
        node = _resolved(node, schema)
        below = node.get("additionalProperties")
        if isinstance(part, int) and node.get("type") == "array":
            key, node = f"{key}[{part}]", node.get("items", {})
        elif part in node.get("properties", {}):
            key, node = f"{key}.{part}", node["properties"][part]
        elif isinstance(below, Mapping) and part != "[key]":
            key, node = f"{key}.{part}", below
        elif node.get("type") == "object" and part == loc[-1] and part != "[key]":
            key = f"{key}.{part}"
        else:
            break
    return key.removeprefix("."), node


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve the references of a node; for an optional section, return the section itself."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    branches = [branch for branch in node.get("anyOf", ()) if branch.get("type") != "null"]
    return _resolved(branches[0], schema) if len(branches) == 1 and "$ref" in branches[0] else node


def _keys(node: Mapping[str, Any], schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, below in _resolved(node, schema).get("properties", {}).items():
        yield f"{above}{name}"
        yield from _keys(below, schema, f"{above}{name}.")


def _bounds(node: Mapping[str, Any]) -> str:
    phrases = {
        "minimum": "greater than or equal to",
        "exclusiveMinimum": "greater than",
        "maximum": "less than or equal to",
        "exclusiveMaximum": "less than",
    }
    values = {name: node[name] for name in phrases if name in node}
    bounds = [f"{phrases[name]} {int(value) if value == int(value) else value}" for name, value in values.items()]
    return " " + " and ".join(bounds) if bounds else ""


def _length(node: Mapping[str, Any]) -> str:
    what, of = ("character", "Length") if node.get("type") == "string" else ("item", "Items")
    least, most = node.get(f"min{of}"), node.get(f"max{of}")
    if least == most == 1:
        return f" of one {what}"
    bounds = [f"at {word} {count}" for word, count in (("least", least), ("most", most)) if count is not None]
    return f" of {' and '.join(bounds)} {what}{'' if (most or least) == 1 else 's'}" if bounds else ""


def _quoted(value: object) -> str:
    return repr(value) if isinstance(value, str) else json.dumps(value)


def _or(words: Sequence[str]) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])}{',' if any(' ' in word for word in words) else ''} or {words[-1]}"
