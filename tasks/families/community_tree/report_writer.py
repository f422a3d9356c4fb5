"""The report on one community: what it is made of, and how it is written (ArchRAG, Algorithm 1, line 7).

A report has a title, a summary, findings, and a rating with a reason. It is made of the texts of the community's
members and of the relations between them, as far as `input_tokens` go; which of them, `chosen` says. `extractive`
needs no model. With one, `request` is what it is asked, and `parse` reads the report in its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json, digest_of
from schemas.config import Configuration
from tasks.core.shards import estimate_tokens
from tasks.core.writer import Writer
from tasks.llm.prompts import Prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import Extractive, fingerprint, plain, text_request

__all__ = [
    "WRITER",
    "Finding",
    "Member",
    "Relation",
    "Report",
    "ReportInput",
    "alone",
    "chosen",
    "community_text",
    "extractive",
    "most_output",
    "parse",
    "request",
]

_VERSION = 1
"""Of `chosen` and `extractive`: raise it whenever a report changes."""

_MEMBERS_SHARE = 2 / 3
"""Of `input_tokens`, what members may take while there are relations to tell."""

_MOST_FINDINGS = 5
_NAMED = 3  # members in the title of a report without a model
_TITLE_TOKENS = 24
_FINDING_TOKENS = 60

_TEXT = {"type": "string", "pattern": r"\S"}
_FINDING = {
    "type": "object",
    "properties": {"summary": _TEXT, "explanation": {"type": "string"}},
    "required": ["summary", "explanation"],
    "additionalProperties": False,
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "title": _TEXT,
        "summary": _TEXT,
        "findings": {"type": "array", "items": _FINDING},
        "rating": {"type": "number"},
        "rating_explanation": {"type": "string"},
    },
    "required": ["title", "summary", "findings", "rating", "rating_explanation"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Member:
    """An entity or, above the first level, a community. name: its title; body: its description or summary.

    text: what is embedded of it, both. size: the members that it has itself, 0 of an entity.
    """

    id: str
    digest: str
    name: str
    body: str
    text: str
    size: int = 0


@dataclass(frozen=True)
class Relation:
    """What is said of two members. digest: of the description."""

    source: str
    target: str
    digest: str
    description: str


@dataclass(frozen=True)
class ReportInput:
    """What a report is made of, in the order of its telling.

    above: of communities, not of entities. alone: the community has one member.
    """

    members: Sequence[Member]
    relations: Sequence[Relation]
    above: bool
    alone: bool = False

    def digest(self, level: int, summariser: Mapping[str, Any]) -> str:
        """The hash of all that the report is made of, 32 hex digits."""
        members = [[one.id, one.digest] for one in self.members]
        relations = [[one.source, one.target, one.digest] for one in self.relations]
        return digest_of(canonical_json([level, dict(summariser), self.alone, members, relations]))[:32]


@dataclass(frozen=True)
class Finding:
    """One insight of a report."""

    summary: str
    explanation: str


@dataclass(frozen=True)
class Report:
    """A report. rating: 0 to 10, how much the community matters."""

    title: str
    text: str
    findings: Sequence[Finding] = field(default=())
    rating: float = 0.0
    rating_explanation: str = ""


def community_text(title: str, text: str) -> str:
    """What is embedded of a community, and shown of it to whatever summarises the level above."""
    return f"{title}\n{text}"


def chosen(members: Sequence[Member], relations: Sequence[Relation], room: int, *, above: bool = False) -> ReportInput:
    """What a report is made of: about `room` tokens of members and relations.

    Members come in classes, those with the most relations or, above, the most members first: a class is a power of two,
    so that one relation more seldom changes it. Within a class they come by id, which is a hash. So what an edit or a
    deletion touches is mostly what it is about (ours; the published code takes them by exact degree). Members fill two
    thirds of the room, relations between these what is left of it, by the class of their lesser end; then come more
    members. What does not fit is passed over.
    """
    degree = Counter(end for one in relations for end in (one.source, one.target))
    rank = {one.id: -((one.size if above else degree[one.id]) + 1).bit_length() for one in members}
    ordered = sorted(members, key=lambda one: (rank[one.id], one.id))
    there = {one.id: place for place, one in enumerate(ordered)}
    between = [one for one in relations if one.source in there and one.target in there]
    cost = {one.id: estimate_tokens(len(one.text.encode())) for one in ordered}
    first, left = _fitting(ordered, [cost[one.id] for one in ordered], int(room * _MEMBERS_SHARE) if between else room)
    if not first:  # one member has a long text, which is cut when it is told
        first, left = ordered[:1], ordered[1:]
    held = {one.id for one in first}
    room -= sum(cost[one.id] for one in first)
    told = sorted(
        (one for one in between if one.source in held and one.target in held),
        key=lambda one: (max(rank[one.source], rank[one.target]), one.source, one.target),
    )
    names = {one.id: one.name for one in ordered}
    costs = [estimate_tokens(len(_told(one, names).encode())) for one in told]
    taken, _ = _fitting(told, costs, room)
    room -= sum(estimate_tokens(len(_told(one, names).encode())) for one in taken)
    more, _ = _fitting(left, [cost[one.id] for one in left], room)
    both = sorted([*first, *more], key=lambda one: there[one.id])
    return ReportInput(both, taken, above, alone=len(members) == 1)


def _told(one: Relation, names: Mapping[str, str]) -> str:
    return f"{names[one.source]} -> {names[one.target]}: {one.description}"


_T = TypeVar("_T")


def _fitting(items: Sequence[_T], costs: Sequence[int], room: int) -> tuple[list[_T], list[_T]]:
    """Those of the items, in turn, that fit into what is left of the room, and the others."""
    taken: list[_T] = []
    left: list[_T] = []
    for one, cost in zip(items, costs, strict=True):
        fits = cost <= room
        (taken if fits else left).append(one)
        room -= cost if fits else 0
    return taken, left


def alone(member: Member) -> Report:
    """The report on a community of one member: what the member says of itself, a function of that alone."""
    return Report(member.name, member.body or member.name)


# --- without a model -------------------------------------------------------------------------------------------------


def extractive(made: ReportInput, writer: Extractive) -> Report:
    """A report of the texts' own words.

    The title names the first members; the summary is sentences of the members' texts, or of what is said of their
    relations, too; a finding is a relation or, above, a member. With n relations, or members of members above, and c
    members the rating is 10 n / (n + c).
    """
    names = list(dict.fromkeys(one.name.partition(", ")[0] if made.above else one.name for one in made.members))
    texts = [one.body if made.above else one.text for one in made.members]
    if made.above:
        held = sum(one.size for one in made.members)
        findings = [Finding(one.name, plain(one.body, _FINDING_TOKENS)) for one in made.members]
        reason = f"{len(made.members)} communities of {held} members"
    else:
        held = len(made.relations)
        by_id = {one.id: one.name for one in made.members}
        findings = [
            Finding(f"{by_id[one.source]} and {by_id[one.target]}", plain(one.description, _FINDING_TOKENS))
            for one in made.relations
        ]
        texts += list(dict.fromkeys(one.description for one in made.relations if one.description))
        reason = f"{held} relations between {len(made.members)} entities"
    return Report(
        title=plain(", ".join(names[:_NAMED]), _TITLE_TOKENS),
        text=writer.summary(texts),
        findings=findings[:_MOST_FINDINGS],
        rating=round(10 * held / (held + len(made.members)), 1),
        rating_explanation=reason,
    )


# --- with a model ----------------------------------------------------------------------------------------------------


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.community_tree
    shaping = fingerprint(configuration.llm, asked, settings.report_tokens, configuration.split.language)
    return {**shaping, "input_tokens": settings.input_tokens, "report": _VERSION}


WRITER = Writer(
    "community_report", "reports", _fingerprint, lambda configuration: configuration.families.community_tree.enabled
)


def most_output(tokens: int) -> int:
    """The tokens of an answer at most: a summary, as many findings as are asked for, and JSON around it."""
    return summarise.most_output(tokens) + 4 * _MOST_FINDINGS * _FINDING_TOKENS + 200


def request(made: ReportInput, tokens: int, room: int, asked: Prompt, *, about: Sequence[str], makes: str) -> Request:
    """The question for a report with a summary of about so many tokens; room: the tokens that are told, about.

    about: the ids that the texts come from; makes: what the report is made of.
    """
    return text_request(
        WRITER.task,
        asked,
        _content(made, room),
        _SCHEMA,
        tokens=tokens,
        about=about,
        makes=makes,
        output=most_output(tokens),
        findings=_MOST_FINDINGS,
    )


def _content(made: ReportInput, room: int) -> list[str]:
    """The texts of a prompt: each report of a member or, on the first level, all entities and then all relations."""
    texts = [one.text for one in made.members]
    if len(texts) == 1 and len(texts[0].encode()) > 4 * room:
        texts = [texts[0].encode()[: 4 * room].decode("utf-8", "ignore")]
    if made.above:
        return texts
    names = {one.id: one.name for one in made.members}
    told = [_told(one, names) for one in made.relations]
    return ["\n\n".join(texts), *(["\n".join(told)] if told else [])]


def parse(answer: Mapping[str, Any], tokens: int) -> Report | None:
    """The report in a valid answer, as plain text in single lines; None where title or summary say nothing."""
    title, text = plain(str(answer["title"]), _TITLE_TOKENS), plain(str(answer["summary"]), 4 * tokens)
    if not title or not text:
        return None
    findings = [
        Finding(plain(str(one["summary"]), _FINDING_TOKENS), plain(str(one["explanation"]), 2 * _FINDING_TOKENS))
        for one in answer["findings"]
    ]
    return Report(
        title=title,
        text=text,
        findings=[one for one in findings if one.summary][: 2 * _MOST_FINDINGS],
        rating=round(float(min(max(answer["rating"], 0), 10)), 1),
        rating_explanation=plain(str(answer["rating_explanation"]), _FINDING_TOKENS),
    )
