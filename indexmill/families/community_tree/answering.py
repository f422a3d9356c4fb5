"""Adaptive filtering: the model extracts points from each level of the community tree, then answers from all points.

ArchRAG, section 3.2.2, and figure 10 in our words. The hits of level i, ``R_i``, go to the model in a separate prompt,
which asks for points that matter to the question, each with a score from 0 to 100 (equation 3). The points of all
levels, the highest score first, go into the prompt that asks for the answer (equation 4), as many as fit.

Levels that fit into one prompt may share it, as the paper does in practice (appendix A.3). Ours: points of score 0 are
left out, and without points the model is not asked for an answer, since it could only answer from memory and not from
the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from indexmill.answer.answer_types import Bill, Reply, context_tokens, prompt_tokens, text_tokens
from indexmill.answer.asking import Ask, answer_or_error
from indexmill.answer.one_prompt import SCHEMA, OnePrompt, shown
from indexmill.answer.turns import all_of
from indexmill.errors import BadInput
from indexmill.families.community_tree.level_texts import (
    DELIMITER_TOKENS,
    LevelTexts,
    content_of,
    joined,
    levels_of,
    lines_of,
    within,
)
from indexmill.hits import Hit
from indexmill.models.llm import Request, data_block, object_schema
from indexmill.models.llm_errors import LlmError
from indexmill.models.prompts import Prompt, read_prompt
from indexmill.retrieve.retrieval_method import override_parameters
from indexmill.store.canonical import canonical_json

NO_POINTS = "The texts do not tell."
"""The answer if no level yields a point."""

_POINT = object_schema(description={"type": "string"}, score={"type": "integer"})
POINTS: Mapping[str, Any] = object_schema(points={"type": "array", "items": _POINT})
"""The JSON schema of a filter's answer."""

_AROUND = 16  # tokens of "Question:" and of the separator before it
_LEAST = 160  # tokens that a prompt must leave for texts
_ANY = 10**9  # a token limit that everything fits into

_MOST_LEVELS = 10  # eight levels of communities, the entities, and the passages


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The settings of adaptive filtering. ``answering=`` of ``Snapshot.answer`` overrides them.

    level_tokens: the token limit of a prompt about one level, without the question; it holds the best hits that fit.
    merge_tokens: the token limit of the prompt for the answer, which holds points. ``text_tokens`` estimates tokens.
    together: True if neighbouring levels whose hits all fit share a prompt. least_score: points with a lower score are
    dropped. filtered: False for one prompt with all hits, as for other methods (the paper's variant "direct prompt").
    """

    level_tokens: Annotated[int, Field(ge=1)] = 1500
    merge_tokens: Annotated[int, Field(ge=1)] = 2000
    together: bool = False
    least_score: Annotated[int, Field(ge=1, le=100)] = 1
    filtered: bool = True


class Point(NamedTuple):
    """A statement from a level's hits that matters to the question, on one line. score: its relevance, 0 to 100."""

    text: str
    score: int


class LevelPrompt(NamedTuple):
    """A prompt about one level, or about several neighbouring levels, and the hits in it."""

    levels: tuple[LevelTexts, ...]
    hits: tuple[Hit, ...]
    request: Request

    @property
    def name(self) -> str:
        """The names of the levels, joined by commas."""
        return ", ".join(level.name for level in self.levels)


class AdaptiveFiltering:
    """Answers from points that the model collects with one prompt per level; a question's prompts run concurrently."""

    def __init__(self, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> None:
        self._setting = override_parameters(FilterSettings(), settings or {})
        self._filter, self._merge = _prompt("filter", prompts), _prompt("merge", prompts)
        self._direct = None if self._setting.filtered else OnePrompt(prompts=prompts)
        self._room = _room("level_tokens", self._setting.level_tokens, self._filter, POINTS)
        self._merge_room = _room("merge_tokens", self._setting.merge_tokens, self._merge, SCHEMA)

    @property
    def uses_explanations(self) -> bool:
        """See ``Answering``: explanations give the levels and relations."""
        return self._direct is None

    def retrieval(self, k: int, parameters: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        """See ``Answering``: k hits of every level, and k passages, unless parameters say otherwise."""
        defaults = {"k_level": k, "passages": k, **parameters}
        return k * _MOST_LEVELS, defaults

    def tokens(self, hit: Hit) -> int:
        """See ``Answering``: the tokens of the hit's text."""
        return context_tokens(hit)

    def shown(self, hit: Hit) -> str:
        """See ``Answering``: the title and the text."""
        return shown(hit)

    def bill(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> Bill:
        """See ``Answering``."""
        if self._direct is not None:
            return self._direct.bill(question, hits, max_output_tokens)
        prompts = [prompt_tokens(prompt.request) for prompt in self.filters(question, hits, max_output_tokens)]
        calls = len(prompts) + 1
        merge = self._setting.merge_tokens + text_tokens(question)
        return Bill(calls, sum(prompts) + merge, calls * max_output_tokens)

    async def answer(self, question: str, hits: Sequence[Hit], ask: Ask) -> Reply:
        """See ``Answering``. A level whose prompt fails is left out, with a caution; raises an error if all fail."""
        if self._direct is not None:
            return await self._direct.answer(question, hits, ask)
        filters = self.filters(question, hits, ask.max_output_tokens)
        answers = await all_of(answer_or_error(ask, prompt.request) for prompt in filters)
        outcomes = list(zip(filters, answers, strict=True))
        successes = [(prompt, answer) for prompt, answer in outcomes if not isinstance(answer, LlmError)]
        failures = [(prompt, error) for prompt, error in outcomes if isinstance(error, LlmError)]
        if not successes:
            raise failures[0][1]
        seen = {id(hit) for prompt, _ in successes for hit in prompt.hits}
        read = tuple(hit for hit in hits if id(hit) in seen)
        cautions = tuple(f"the {prompt.name} could not be read: {error}" for prompt, error in failures)
        points = best_points(
            [point for _, answer in successes for point in points_of(answer)], self._setting.least_score
        )
        if not points:
            return Reply(NO_POINTS, False, "", read, cautions)
        merged = await ask(self.merge(question, points, ask.max_output_tokens))
        return Reply(merged["answer"].strip(), merged["found"], merged["reasoning"].strip(), read, cautions)

    def filters(self, question: str, hits: Sequence[Hit], max_output_tokens: int) -> list[LevelPrompt]:
        """Build the prompts about the levels that have hits, from the lowest level up."""
        filters = []
        for levels in self._shared(levels_of(hits)):
            content = joined([content_of(level, self._room) for level in levels])
            request = Request(
                task="filter",
                instructions=self._filter[0],
                prompt_version=self._filter[1],
                content=f"{data_block(content.texts)}\n\n{content.description}\n\nQuestion: {question}",
                schema=POINTS,
                max_output_tokens=max_output_tokens,
                about=tuple(hit.id for hit in content.hits),
            )
            filters.append(LevelPrompt(tuple(levels), content.hits, request))
        return filters

    def _shared(self, levels: Sequence[LevelTexts]) -> list[list[LevelTexts]]:
        """Group the levels by prompt: one level each, or as many neighbouring levels as fit completely."""
        groups: list[list[LevelTexts]] = []
        remaining = 0
        for level in levels:
            whole = content_of(level, _ANY).tokens if self._setting.together else self._room
            if whole <= remaining:
                groups[-1].append(level)
                remaining -= whole
            else:
                groups.append([level])
                remaining = self._room - whole
        return groups

    def merge(self, question: str, points: Sequence[Point], max_output_tokens: int) -> Request:
        """Build the prompt for the answer from at least one point, the highest score first."""
        lines = [f"{point.score}: {point.text}" for point in points]
        chosen = within(lines, [text_tokens(line) + 1 for line in lines], self._merge_room - DELIMITER_TOKENS)
        return Request(
            task="merge",
            instructions=self._merge[0],
            prompt_version=self._merge[1],
            content=f"{data_block([lines_of(text for _, text in chosen)])}\n\nQuestion: {question}",
            schema=SCHEMA,
            max_output_tokens=max_output_tokens,
        )


def points_of(answer: Mapping[str, Any]) -> list[Point]:
    """Return the points of a filter's answer (``POINTS``) in order, one line each, scores clipped to 0 to 100."""
    return [
        Point(text, min(max(point["score"], 0), 100))
        for point in answer["points"]
        if (text := " ".join(point["description"].split()))
    ]


def best_points(points: Sequence[Point], least_score: int = 1) -> list[Point]:
    """Return the points with at least this score without duplicate texts, highest score first, ties in input order."""
    best: dict[str, Point] = {}
    for point in sorted(points, key=lambda point: -point.score):
        if point.score >= least_score:
            best.setdefault(point.text.casefold(), point)
    return list(best.values())


def _room(name: str, limit: int, prompt: Prompt, schema: Mapping[str, Any]) -> int:
    """Return the number of tokens that a limit leaves for texts; raises BadInput if it is too small."""
    around = text_tokens(prompt[0]) + text_tokens(canonical_json(schema).decode()) + _AROUND
    if limit < around + _LEAST:
        raise BadInput(
            f"answering=: {name} is {limit}, and the prompt around the texts has about {around} tokens; expected at "
            f"least {around + _LEAST}"
        )
    return limit - around


def _prompt(name: str, folder: Path | None) -> Prompt:
    """Read the prompt from `folder` if it has one, else this family's own: see ``read_prompt``."""
    return read_prompt(Path(__file__).with_name(f"{name}.md"), folder)
