"""Adaptive filtering: what each level of the community tree says of a question, then the answer from all of it.

ArchRAG, section 3.2.2, and figure 10 in our words. What was found on level i, ``R_i``, goes to the model in a prompt of
its own, which asks for points that matter to the question, each with a score from 0 to 100 (equation 3). The points of
all levels, the highest score first, go into the prompt that asks for the answer (equation 4), as many as fit.

``R_0`` holds the entities that were found and the relations between them, as in the paper. Ours: passages under them
are a level of their own; points of score 0 are left out, and where none is left nobody is asked for an answer: the
paper's model may then answer from memory, which is no answer from the collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from indexmill.answer.base import Bill, Said, prompt_tokens, text_tokens
from indexmill.answer.one_prompt import SCHEMA, OnePrompt, shown
from indexmill.answer.prompts import prompt
from indexmill.canonical import canonical_json
from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.llm import Request, data_block
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.models.prompts import Prompt
from indexmill.retrieve.base import settled
from indexmill.retrieve.lsh_tree import fitting

if TYPE_CHECKING:
    from indexmill.answer.asking import Ask

__all__ = [
    "NOT_TOLD",
    "POINTS",
    "AdaptiveFiltering",
    "FilterSettings",
    "Level",
    "Point",
    "levels_of",
    "points_of",
    "ranked",
]

NOT_TOLD = "The texts do not tell."
"""The answer where no level has a point."""

POINTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "points": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"description": {"type": "string"}, "score": {"type": "integer"}},
                "required": ["description", "score"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["points"],
    "additionalProperties": False,
}
"""The form of a filter's answer."""

_MARKS = 16  # tokens of the two delimiters around a text
_LEAST = 64  # tokens of texts that a prompt has to have room for

_PASSAGES, _ENTITIES = -1, 0

_MOST_LEVELS = 10  # eight of communities, entities, and passages


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The settings of adaptive filtering, which ``answering=`` of ``Snapshot.answer`` replaces.

    level_tokens: of the prompt about one level, all of it but the question; the best hits that fit are in it.
    merge_tokens: of the prompt for the answer, likewise, of points. Both are counted as ``text_tokens`` estimates them.
    least_score: a point with less is left out. filtered: False for one prompt with all hits, as other methods ask (the
    paper's variant "direct prompt").
    """

    level_tokens: Annotated[int, Field(ge=1)] = 3000
    merge_tokens: Annotated[int, Field(ge=1)] = 2000
    least_score: Annotated[int, Field(ge=1, le=100)] = 1
    filtered: bool = True


class Level(NamedTuple):
    """The hits of one level, best first. number: -1 for passages, 0 for entities, else that of the communities."""

    number: int
    hits: tuple[Hit, ...]

    @property
    def name(self) -> str:
        """What the level is called when something is said about it."""
        return {_PASSAGES: "passages", _ENTITIES: "entities"}.get(self.number, f"communities of level {self.number}")


class Point(NamedTuple):
    """What a level says of a question, on one line; score: 0 to 100, how much it matters."""

    text: str
    score: int


class _Read(NamedTuple):
    """A prompt about a level, and the hits that are in it."""

    level: Level
    hits: tuple[Hit, ...]
    request: Request


class AdaptiveFiltering:
    """Answers from points that a prompt for each level collects; the prompts of a question go side by side."""

    def __init__(self, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> None:
        self._setting = settled(FilterSettings(), settings or {})
        self._filter, self._merge = prompt("filter", prompts), prompt("merge", prompts)
        self._direct = None if self._setting.filtered else OnePrompt(prompts=prompts)
        self._room = _room("level_tokens", self._setting.level_tokens, self._filter, POINTS)
        self._merge_room = _room("merge_tokens", self._setting.merge_tokens, self._merge, SCHEMA)

    @property
    def uses_explanations(self) -> bool:
        """See ``Answering``: levels and relations are told there."""
        return self._direct is None

    def retrieval(self, k: int, parameters: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """See ``Answering``: k hits of every level, and k passages, unless parameters say otherwise."""
        each = {"k_level": k, "passages": k, **parameters}
        return k * _MOST_LEVELS, each

    def bill(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Bill:
        """See ``Answering``."""
        if self._direct is not None:
            return self._direct.bill(question, hits, max_output_tokens)
        prompts = [prompt_tokens(one.request) for one in self.filters(question, hits, max_output_tokens)]
        calls = len(prompts) + 1
        merge = self._setting.merge_tokens + text_tokens(question)
        return Bill(calls, sum(prompts) + merge, calls * max_output_tokens)

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Said:
        """See ``Answering``.

        A level whose prompt is not answered is left out, and a caution says so, unless no level's is.
        """
        if self._direct is not None:
            return await self._direct.answer(question, hits, ask)
        filters = self.filters(question, hits, ask.max_output_tokens)
        answers = await asyncio.gather(*(_asked(ask, one.request) for one in filters))
        answered = [(one, said) for one, said in zip(filters, answers, strict=True) if not isinstance(said, LlmError)]
        failed = [(one, said) for one, said in zip(filters, answers, strict=True) if isinstance(said, LlmError)]
        if not answered:
            raise failed[0][1]
        seen = {id(hit) for one, _ in answered for hit in one.hits}
        read = tuple(hit for hit in hits if id(hit) in seen)
        cautions = tuple(f"the {one.level.name} could not be read: {error}" for one, error in failed)
        points = ranked([point for _, said in answered for point in points_of(said)], self._setting.least_score)
        if not points:
            return Said(NOT_TOLD, False, "", read, cautions)
        said = await ask(self.merge(question, points, ask.max_output_tokens))
        return Said(said["answer"].strip(), said["found"], said["reasoning"].strip(), read, cautions)

    def filters(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> list[_Read]:
        """The prompt about each level that has hits, passages first, then entities, then communities from below."""
        read = []
        for level in levels_of(hits):
            texts, inside = _TEXTS.get(level.number, _reports)(level.hits, self._room)
            request = Request(
                task="filter",
                instructions=self._filter[0],
                prompt_version=self._filter[1],
                content=f"{data_block(texts)}\n\n{_told(level.number)}\n\nQuestion: {question}",
                schema=POINTS,
                max_output_tokens=max_output_tokens,
                about=tuple(hit.id for hit in inside),
            )
            read.append(_Read(level, inside, request))
        return read

    def merge(self, question: str, points: Sequence[Point], max_output_tokens: int) -> Request:
        """The prompt for the answer, from at least one point, the highest score first."""
        lines = [f"{point.score}: {point.text}" for point in points]
        chosen = _within(lines, [text_tokens(line) + 1 for line in lines], self._merge_room - _MARKS)
        return Request(
            task="merge",
            instructions=self._merge[0],
            prompt_version=self._merge[1],
            content=f"{data_block([_lines(text for _, text in chosen)])}\n\nQuestion: {question}",
            schema=SCHEMA,
            max_output_tokens=max_output_tokens,
        )


def levels_of(hits: Sequence[Hit]) -> list[Level]:
    """The hits by level, passages first, then entities, then communities from below; each in the order given."""
    found: dict[int, list[Hit]] = {}
    for hit in hits:
        if hit.kind == "passage":
            number = _PASSAGES
        elif hit.kind == "entity":
            number = _ENTITIES
        else:
            number = int((hit.explanation or {}).get("level", 1))
        found.setdefault(number, []).append(hit)
    return [Level(number, tuple(found[number])) for number in sorted(found)]


def points_of(said: Mapping[str, Any]) -> list[Point]:
    """The points of a filter's answer (``POINTS``) in its order, on a line each, scores between 0 and 100."""
    return [
        Point(text, min(max(one["score"], 0), 100))
        for one in said["points"]
        if (text := " ".join(one["description"].split()))
    ]


def ranked(points: Sequence[Point], least_score: int = 1) -> list[Point]:
    """The points of at least this score, the highest first, ties in the order given; each text once."""
    best: dict[str, Point] = {}
    for point in sorted(points, key=lambda point: -point.score):
        if point.score >= least_score:
            best.setdefault(point.text.casefold(), point)
    return list(best.values())


async def _asked(ask: Ask, request: Request) -> dict[str, Any] | LlmError:
    try:
        return await ask(request)
    except LlmForbidden:
        raise
    except LlmError as error:
        return error


def _room(name: str, limit: int, asked: Prompt, schema: Mapping[str, Any]) -> int:
    """The tokens that a limit leaves for texts; raises BadInput where these are too few."""
    around = text_tokens(asked[0]) + text_tokens(canonical_json(schema).decode()) + _LEAST  # the lines after the texts
    if limit < around + _LEAST:
        raise BadInput(
            f"answering=: {name} is {limit}, and the prompt around the texts has about {around} tokens; give at least "
            f"{around + _LEAST}"
        )
    return limit - around


_Texts = Callable[[tuple[Hit, ...], int], tuple[list[str], tuple[Hit, ...]]]


def _reports(hits: tuple[Hit, ...], room: int) -> tuple[list[str], tuple[Hit, ...]]:
    """The texts of communities or passages, and the hits whose texts they are."""
    texts = [shown(hit) for hit in hits]
    chosen = _within(texts, [_tokens(hit, text) + _MARKS for hit, text in zip(hits, texts, strict=True)], room)
    return [text for _, text in chosen], tuple(hits[place] for place, _ in chosen)


def _graph(hits: tuple[Hit, ...], room: int) -> tuple[list[str], tuple[Hit, ...]]:
    """Two texts, entities and the relations between those that are shown, one a line; and the hits that are shown."""
    lines = [_entity(hit) for hit in hits]
    room -= 2 * _MARKS
    counted = [_tokens(hit, line) + 1 for hit, line in zip(hits, lines, strict=True)]
    chosen = _within(lines, counted, room)
    inside = tuple(hits[place] for place, _ in chosen)
    room -= sum(counted[place] for place, _ in chosen)
    related = _relations(inside)
    kept = fitting([text_tokens(line) + 1 for line in related], room)
    texts = [_lines(text for _, text in chosen), _lines(related[place] for place in kept)]
    return [text for text in texts if text], inside


_TEXTS: Mapping[int, _Texts] = {_ENTITIES: _graph}


def _relations(hits: Sequence[Hit]) -> list[str]:
    """The relations between entities, each once, in the order in which their hits tell them."""
    ids = {hit.id for hit in hits}
    lines = [
        _line(f"{one['source']} -> {one['target']}{_kind(one['kind'])}: {one['description']}")
        for hit in hits
        for one in (hit.explanation or {}).get("relations", ())
        if one["entity_id"] in ids
    ]
    return list(dict.fromkeys(lines))


def _entity(hit: Hit) -> str:
    """An entity on a line: its name, its type and its description, those that it has."""
    name = f"{hit.title}{_kind((hit.explanation or {}).get('type', ''))}"
    return _line(name if hit.text == hit.title else f"{name}: {hit.text}")


def _kind(kind: str) -> str:
    return f" ({kind})" if kind else ""


def _told(number: int) -> str:
    if number == _PASSAGES:
        return "The texts are passages of the collection."
    if number == _ENTITIES:
        return "The first text says what is known of single things, one a line; the second how they are related."
    return "Each text is a report on a group of things that belong together."


def _within(texts: Sequence[str], tokens: Sequence[int], room: int) -> list[tuple[int, str]]:
    """Those texts that fit into the room, taken in turn, with their places; where none does, the first, cut."""
    places = fitting(tokens, room)
    if places or not texts:
        return [(place, texts[place]) for place in places]
    return [(0, _cut(texts[0], max(room - _MARKS, 1) / tokens[0]))]


def _cut(text: str, part: float) -> str:
    """The start of a text, about such a part of it, to the end of a word where one ends near there."""
    data = text.encode("utf-8", "replace")
    start = data[: int(part * len(data))].decode("utf-8", "ignore")
    head = start.rpartition(" ")[0]
    return (head if len(head) > len(start) * 0.8 else start) + " …"


def _tokens(hit: Hit, text: str) -> int:
    """Of a hit's text as it is shown; no fewer than the snapshot counts."""
    return max(hit.tokens or 0, text_tokens(text))


def _line(text: str) -> str:
    return " ".join(text.split())


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
