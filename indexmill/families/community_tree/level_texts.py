"""The hits of the community tree, level by level, as texts that fit into a prompt.

Level 0, ``R_0`` of ArchRAG's section 3.2.1, shows the retrieved entities and the relations between them, one per line
each. Ours: the retrieved passages follow. Each higher level shows the reports of its communities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from indexmill.answer.answer_types import text_tokens
from indexmill.answer.one_prompt import shown
from indexmill.hits import Hit
from indexmill.retrieve.budget import fitting

DELIMITER_TOKENS = 16
"""Tokens of the two delimiters around a text."""

_DESCRIPTION = 28  # tokens of the sentence that describes the texts of a section

_SINGULAR = {
    "things": "says what is known of single things, one a line",
    "relations": "says how things are related, one relation a line",
    "passages": "is a passage of the collection",
    "reports": "is a report on a group of things that belong together",
}
_PLURAL = {
    "passages": "are passages of the collection",
    "reports": "are reports, each on a group of things that belong together",
}


class LevelTexts(NamedTuple):
    """The hits of one level, best first. number: 0 for entities and passages, else the level of the communities."""

    number: int
    hits: tuple[Hit, ...]

    @property
    def name(self) -> str:
        """The name of the level."""
        if self.number:
            return f"communities of level {self.number}"
        kinds = {hit.kind for hit in self.hits}
        return " and ".join(name for kind, name in (("entity", "entities"), ("passage", "passages")) if kind in kinds)


class Section(NamedTuple):
    """Texts of one kind: ``things``, ``relations``, ``passages`` or ``reports``."""

    kind: str
    texts: tuple[str, ...]


class Content(NamedTuple):
    """The texts of a prompt, at least one. hits: the hits in the texts. tokens: an upper bound of the token count."""

    sections: tuple[Section, ...]
    hits: tuple[Hit, ...]
    tokens: int

    @property
    def texts(self) -> list[str]:
        """All texts, in the order of the sections."""
        return [text for section in self.sections for text in section.texts]

    @property
    def description(self) -> str:
        """A description for the prompt of what each numbered text is."""
        sentences, first = [], 1
        for kind, texts in self.sections:
            last = first + len(texts) - 1
            sentences.append(
                f"Text {first} {_SINGULAR[kind]}." if last == first else f"Texts {first} to {last} {_PLURAL[kind]}."
            )
            first = last + 1
        return " ".join(sentences)


def levels_of(hits: Sequence[Hit]) -> list[LevelTexts]:
    """Group hits by level, from the lowest; within a level they keep their order."""
    by_level: dict[int, list[Hit]] = {}
    for hit in hits:
        number = int((hit.explanation or {}).get("level", 1)) if hit.kind == "community" else 0
        by_level.setdefault(number, []).append(hit)
    return [LevelTexts(number, tuple(by_level[number])) for number in sorted(by_level)]


def content_of(level: LevelTexts, room: int) -> Content:
    """Choose the hits of a level that fit into ``room`` tokens, best first; a hit that does not fit is skipped.

    On level 0 entities come first, then relations between the entities shown, then passages. If nothing fits, the first
    text is cut. room: at least 100.
    """
    if level.number:
        return _whole("reports", level.hits, room)
    entities = tuple(hit for hit in level.hits if hit.kind == "entity")
    passages = tuple(hit for hit in level.hits if hit.kind != "entity")
    if not entities:
        return _whole("passages", passages, room)
    content = _entities(entities, room)
    related = _relations(content.hits)
    remaining = room - content.tokens - DELIMITER_TOKENS - _DESCRIPTION
    chosen = fitting([text_tokens(line) + 1 for line in related], remaining)
    if chosen:
        lines = lines_of(related[place] for place in chosen)
        tokens = DELIMITER_TOKENS + _DESCRIPTION + sum(text_tokens(related[place]) + 1 for place in chosen)
        content = joined([content, Content((Section("relations", (lines,)),), (), tokens)])
    remaining = room - content.tokens
    if passages and min(_costs(passages)) + _DESCRIPTION <= remaining:
        content = joined([content, _whole("passages", passages, remaining)])
    return content


def joined(contents: Sequence[Content]) -> Content:
    """Concatenate contents; neighbouring sections of passages or of reports are merged."""
    sections: list[Section] = []
    for section in (section for content in contents for section in content.sections):
        if sections and sections[-1].kind == section.kind in _PLURAL:
            sections[-1] = Section(section.kind, sections[-1].texts + section.texts)
        else:
            sections.append(section)
    hits = tuple(hit for content in contents for hit in content.hits)
    return Content(tuple(sections), hits, sum(content.tokens for content in contents))


def within(texts: Sequence[str], tokens: Sequence[int], room: int) -> list[tuple[int, str]]:
    """Choose the texts that fit into ``room`` tokens, in order, with their positions; if none fits, cut the first."""
    places = fitting(tokens, room)
    if places or not texts:
        return [(place, texts[place]) for place in places]
    return [(0, _cut(texts[0], max(room - DELIMITER_TOKENS, 1) / tokens[0]))]


def lines_of(texts: Iterable[str]) -> str:
    """Join texts as the lines of one text."""
    return "\n".join(f"- {text}" for text in texts)


def _whole(kind: str, hits: tuple[Hit, ...], room: int) -> Content:
    """Show each hit as a separate text."""
    costs = _costs(hits)
    chosen = within([shown(hit) for hit in hits], costs, room - _DESCRIPTION)
    tokens = min(room, _DESCRIPTION + sum(costs[place] for place, _ in chosen))
    section = Section(kind, tuple(text for _, text in chosen))
    return Content((section,), tuple(hits[place] for place, _ in chosen), tokens)


def _entities(hits: tuple[Hit, ...], room: int) -> Content:
    """Show entities as the lines of one text."""
    lines = [_entity(hit) for hit in hits]
    costs = [max(hit.tokens or 0, text_tokens(line)) + 1 for hit, line in zip(hits, lines, strict=True)]
    chosen = within(lines, costs, room - DELIMITER_TOKENS - _DESCRIPTION)
    tokens = min(room, DELIMITER_TOKENS + _DESCRIPTION + sum(costs[place] for place, _ in chosen))
    section = Section("things", (lines_of(text for _, text in chosen),))
    return Content((section,), tuple(hits[place] for place, _ in chosen), tokens)


def _relations(hits: Sequence[Hit]) -> list[str]:
    """List the distinct relations between these entities, one line each, in the order of the hits."""
    ids = {hit.id for hit in hits}
    lines = [
        _line(f"{relation['source']} -> {relation['target']}{_kind(relation['kind'])}: {relation['description']}")
        for hit in hits
        for relation in (hit.explanation or {}).get("relations", ())
        if relation["entity_id"] in ids
    ]
    return list(dict.fromkeys(lines))


def _costs(hits: Sequence[Hit]) -> list[int]:
    """Count the tokens of each hit with its delimiters: the larger of the snapshot's count and the estimate."""
    return [max(hit.tokens or 0, text_tokens(shown(hit))) + DELIMITER_TOKENS for hit in hits]


def _entity(hit: Hit) -> str:
    """Write an entity on one line: its name, and its type and description if it has them."""
    name = f"{hit.title}{_kind((hit.explanation or {}).get('type', ''))}"
    return _line(name if hit.text == hit.title else f"{name}: {hit.text}")


def _kind(kind: str) -> str:
    return f" ({kind})" if kind else ""


def _line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, part: float) -> str:
    """Cut a text to about this fraction, at the end of a word if one is near."""
    data = text.encode("utf-8", "replace")
    start = data[: int(part * len(data))].decode("utf-8", "ignore")
    head = start.rpartition(" ")[0]
    return (head if len(head) > len(start) * 0.8 else start) + " …"
