"""What a retrieval did, read from the explanations of its hits, whichever method made them.

An explanation names entities by ``entity_id`` and communities by ``community_id``, each with a ``score`` or the amount
``added``, and entities perhaps with the ``hop`` on which they were reached, the ``sentence`` that led there and the
surface that it was ``reached_from``; ``passages`` lists ids. ``fused`` has the explanation of every method under its
name. What else an explanation says becomes lines of text.
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

    kind: ``entity`` or ``community``. hop: 0 for what the question names, None where the method does not say. source:
    the surface that it was reached from.
    """

    kind: str
    id: str
    score: float | None
    hop: int | None = None
    source: str | None = None
    sentence: str = ""


_IDS = {"entity_id": "entity", "community_id": "community"}


def reasons(hit: Hit) -> Iterator[Reason]:
    """What led to a hit, in the order in which its explanation says so."""
    for _, own in _by_method(hit.explanation):
        for listed in own.values():
            for said in listed if isinstance(listed, list) else ():
                for key, kind in _IDS.items():
                    if isinstance(said, dict) and isinstance(said.get(key), str):
                        yield _reason(kind, said[key], said)


def passages_behind(hit: Hit) -> list[str]:
    """The ids of the passages that a hit that is no passage comes from."""
    listed = (hit.explanation or {}).get("passages", ())
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


def lines(hit: Hit) -> list[str]:
    """What an explanation says beside entities and communities, a line each."""
    found: list[str] = []
    for method in (hit.explanation or {}).get("methods", ()):
        found.append(f"{method['name']}: rank {method['rank']}, score {method['score']:.4g}")
    for name, own in _by_method(hit.explanation):
        found += [_cut(line) for key, said in own.items() for line in _told(f"{name} {key}".strip(), said)]
    return found[:_MOST_LINES]


def _by_method(explanation: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The explanation of each method that has one; the method has no name where it is the only one."""
    if explanation is None:
        return
    methods = explanation.get("methods")
    if not isinstance(methods, list):
        yield "", explanation
        return
    for method in methods:
        own = explanation.get(method["name"])
        if isinstance(own, dict):
            yield method["name"], own


def _reason(kind: str, identity: str, said: Mapping[str, Any]) -> Reason:
    score = said.get("score", said.get("added"))
    hop, sentence = said.get("hop"), said.get("sentence")
    return Reason(
        kind,
        identity,
        float(score) if isinstance(score, int | float) else None,
        hop if isinstance(hop, int) else None,
        said.get("reached_from"),
        sentence if isinstance(sentence, str) else "",
    )


def _told(name: str, said: object) -> Iterator[str]:
    if isinstance(said, list):
        told = [one for one in said if isinstance(one, dict) and _IDS.keys().isdisjoint(one)]
        yield from (f"{name}: {_values(one)}" for one in told)
    elif said is True:
        yield name
    elif isinstance(said, int | float) and not isinstance(said, bool):
        yield f"{name} {said:.4g}"


def _values(said: Mapping[str, Any]) -> str:
    shown: Sequence[str] = [
        f"{key} {value:.4g}" if isinstance(value, float) else str(value)
        for key, value in said.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and not key.endswith("_id")
    ]
    return ", ".join(shown)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
