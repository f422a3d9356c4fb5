"""Reading the steps of a retrieval, by any method, from the explanations of its hits.

An explanation names entities by ``entity_id`` and communities by ``community_id``, each with a ``score`` or the amount
``added``. An entity may have the ``hop`` on which it was reached, the ``sentence`` that led there and the surface
``reached_from``; ``passages`` lists ids. ``fused`` has the explanation of every method under its name. All other fields
become lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.hits import Hit

_MOST_LINES = 12
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class Reason:
    """An entity or a community that led to a hit.

    kind: ``entity`` or ``community``. hop: 0 if the question names it; None if the method does not say. source: the
    surface of the entity that it was reached from.
    """

    kind: str
    id: str
    score: float | None
    hop: int | None = None
    source: str | None = None
    sentence: str = ""


_IDS = {"entity_id": "entity", "community_id": "community"}


def reasons(hit: Hit) -> Iterator[Reason]:
    """Yield the entities and communities that led to a hit, in the order of its explanation."""
    for _, explanation in _by_method(hit.explanation):
        for listed in explanation.values():
            for entry in listed if isinstance(listed, list) else ():
                for key, kind in _IDS.items():
                    if isinstance(entry, dict) and isinstance(entry.get(key), str):
                        yield _reason(kind, entry[key], entry)


def passages_behind(hit: Hit) -> list[str]:
    """Return the ids of the passages behind a hit that is not a passage."""
    listed = (hit.explanation or {}).get("passages", ())
    return [passage_id for passage_id in listed if isinstance(passage_id, str)] if isinstance(listed, list) else []


def lines(hit: Hit) -> list[str]:
    """Format each field of an explanation as a line, except entities and communities."""
    reason_lines: list[str] = []
    for method in (hit.explanation or {}).get("methods", ()):
        reason_lines.append(f"{method['name']}: rank {method['rank']}, score {method['score']:.4g}")
    for name, explanation in _by_method(hit.explanation):
        reason_lines += [
            cut(line, _LONGEST)
            for key, value in explanation.items()
            for line in _value_lines(f"{name} {key}".strip(), value)
        ]
    return reason_lines[:_MOST_LINES]


def _by_method(explanation: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and explanation of each method; the name is empty if there is only one method."""
    if explanation is None:
        return
    methods = explanation.get("methods")
    if not isinstance(methods, list):
        yield "", explanation
        return
    for method in methods:
        method_explanation = explanation.get(method["name"])
        if isinstance(method_explanation, dict):
            yield method["name"], method_explanation


def _reason(kind: str, identity: str, entry: Mapping[str, Any]) -> Reason:
    score = entry.get("score", entry.get("added"))
    hop, sentence = entry.get("hop"), entry.get("sentence")
    return Reason(
        kind,
        identity,
        float(score) if isinstance(score, int | float) else None,
        hop if isinstance(hop, int) else None,
        entry.get("reached_from"),
        sentence if isinstance(sentence, str) else "",
    )


def _value_lines(name: str, value: object) -> Iterator[str]:
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict) and _IDS.keys().isdisjoint(entry)]
        yield from (f"{name}: {_values(entry)}" for entry in entries)
    elif value is True:
        yield name
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{name} {value:.4g}"


def _values(entry: Mapping[str, Any]) -> str:
    shown: Sequence[str] = [
        f"{key} {value:.4g}" if isinstance(value, float) else str(value)
        for key, value in entry.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and not key.endswith("_id")
    ]
    return ", ".join(shown)


def cut(text: str, most: int) -> str:
    """Cut a text to at most ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
