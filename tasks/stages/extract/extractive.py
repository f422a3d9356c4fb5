"""Stage `extract` without a model: sentences become units, and the words between two names become relations.

The extraction is a pure function of a passage, its document's title and the mentions in both. As in the graphs, dates
and numbers are not entities: they would link passages that have nothing else in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from indexmill.text.canonical_names import canonical_words
from indexmill.text.terms import COMMON
from schemas.tables import MENTIONS
from tasks.core.stage import Input, Outputs, Part, Stage, StageSettings
from tasks.stages.extract.extraction_tables import (
    EXTRACTION_OUTPUTS,
    Entity,
    Extraction,
    MentionTexts,
    Relation,
    Unit,
    extracted_of,
)
from tasks.stages.resolve.name_counts import UNLINKED_KINDS
from tasks.stages.split.plain import TEXTS

FINGERPRINT: Mapping[str, Any] = {"backend": "extractive", "version": 1}
"""The key of the extraction, besides its inputs. Raise the version whenever the extraction changes."""

_TYPES = ("work", "code", "name", "title", "part", "alias", "term")
"""Kinds of mentions, the most informative first. An entity's type is the first of these kinds among its mentions."""

_WORDS, _LONGEST_WORDING = 8, 80  # the maximum words and characters of a relation
_DESCRIPTION = 320  # the maximum characters of a description, unless one sentence is longer
_LONGEST_TEXT = 2_000  # the maximum characters of a unit or a description

_SPACE = re.compile(r"\s+")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"\w+")
_QUOTES = " \t\"'’“”„«»*_`"
_POSSESSIVE = re.compile(r"['’]s\b")
_CLAUSE = re.compile(r"[,;:!?…()\[\]{}<>|=\"“”„«»–—。、，；：！？（）「」『』]|\s-\s|\.(?!\w)")
"""The separators of clauses, appositions and table cells: no relation crosses one."""
_JOINING = frozenset({"and", "or", "nor", "but", "&"})
_SUBORDINATE = frozenset(
    "although because if since than though unless until when whenever whereas while".split()  # noqa: SIM905
)
_FIRST = 6  # bonus, in words, for a sentence whose first mention is the entity
_MOST_SAID = 24  # further words do not raise a sentence's score


class PassageMention(NamedTuple):
    """A mention (schema MENTIONS) in a passage. start, end: offsets in the passage's text, or in the title."""

    sentence: int
    start: int
    end: int
    surface: str
    name: str
    kind: str


class _Sentence(NamedTuple):
    text: str  # on one line
    words: int  # number of distinct words, without the most common
    names: tuple[str, ...]  # in the order in which they are mentioned
    subjects: tuple[str, ...]  # the current subjects, used if the sentence has no names


def one_line(text: str) -> str:
    """Put a text on one line, without repeated spaces."""
    return _SPACE.sub(" ", text).strip()


def shortened(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Cut a text to `longest` characters, between words if possible."""
    if len(text) <= longest:
        return text
    return text[:longest].rpartition(" ")[0].rstrip() or text[:longest]


def extract(text: str, sentences: Sequence[tuple[int, int, int]], mentions: Sequence[PassageMention]) -> Extraction:
    """Extract entities and units from a passage. sentences: ordinal, start and end; mentions: in text order.

    A unit is a sentence with its entities. A sentence that names no entity gets the title's subjects or, if there are
    none, the last subject above it. The words between two consecutive names are a relation from the first to the second
    if they are few, are within one clause, and do not merely join the names. An entity is described by the sentence
    with the highest score, and by a second sentence if both are short. Sentences that begin with the entity, or have
    many words, score high.
    """
    linked = [mention for mention in mentions if mention.kind not in UNLINKED_KINDS]
    titles = tuple(dict.fromkeys(mention.name for mention in linked if mention.kind == "title"))
    about: dict[int, PassageMention] = {}
    for mention in linked:
        if mention.kind == "subject" and not titles:
            about.setdefault(mention.sentence, mention)  # the first subject counts
    linked = [mention for mention in linked if mention.kind != "subject"]
    subjects = titles
    inside: dict[int, list[PassageMention]] = {}
    for mention in linked:
        inside.setdefault(mention.sentence, []).append(mention)
    units: dict[str, Unit] = {}
    statements: list[_Sentence] = []
    for ordinal, start, end in sentences:
        if ordinal in about:
            subjects = (about[ordinal].name,)
        here = sorted(
            inside.get(ordinal, ()),
            key=lambda mention: (mention.start, -mention.end, mention.kind == "alias", mention.name),
        )
        line = shortened(one_line(text[start:end]))
        names = tuple(dict.fromkeys(mention.name for mention in here))
        if not (names or subjects) or not _LETTER.search(line):
            continue
        statements.append(_Sentence(line, len(set(_WORD.findall(line.lower())) - COMMON), names, subjects))
        if line not in units:
            units[line] = Unit(line, names or subjects, tuple(_relations(text, here, line)))
    return Extraction(tuple(_entities([*linked, *about.values()], statements)), tuple(units.values()))


def _relations(text: str, mentions: Sequence[PassageMention], line: str) -> Iterator[Relation]:
    """Yield the relations between consecutive names in a sentence; only the outermost of nested names count."""
    last: PassageMention | None = None
    for mention in mentions:
        if last is not None and mention.start < last.end:
            continue
        wording = "" if last is None or last.name == mention.name else _wording(text[last.end : mention.start])
        if wording and last is not None:
            yield Relation(last.name, mention.name, " ".join(canonical_words(wording)), wording, line)
        last = mention


def _wording(between: str) -> str:
    """Return the words between two names if they state a relation, otherwise an empty string."""
    if len(between) > _LONGEST_WORDING:
        return ""
    wording = one_line(between)
    if not _POSSESSIVE.match(wording):
        wording = wording.strip(_QUOTES)
    words = [word.lower() for word in wording.split()]
    if not 0 < len(words) <= _WORDS or _CLAUSE.search(wording) or not _LETTER.search(wording):
        return ""
    if words[0] in _JOINING or words[-1] in _JOINING or not _SUBORDINATE.isdisjoint(words):
        return ""
    return wording


def _entities(mentions: Sequence[PassageMention], statements: Sequence[_Sentence]) -> Iterator[Entity]:
    surfaces: dict[str, str] = {}
    kinds: dict[str, set[str]] = {}
    for mention in mentions:
        surfaces.setdefault(mention.name, mention.surface)
        kinds.setdefault(mention.name, set()).add(mention.kind)
    about: dict[str, list[tuple[int, int]]] = {}
    for place, sentence in enumerate(statements):
        for rank, name in enumerate(sentence.names or sentence.subjects):
            score = min(sentence.words, _MOST_SAID) + (_FIRST if sentence.names and not rank else 0)
            about.setdefault(name, []).append((-score, place))
    for name, surface in surfaces.items():
        kind = next((kind for kind in _TYPES if kind in kinds[name]), "")
        yield Entity(name, surface, kind, _description(sorted(about.get(name, ()))[:2], statements))


def _description(best: Sequence[tuple[int, int]], statements: Sequence[_Sentence]) -> str:
    both = " ".join(dict.fromkeys(statements[place].text for _, place in best))
    return both if len(both) <= _DESCRIPTION or len(best) < 2 else statements[best[0][1]].text


def extract_all(texts: MentionTexts) -> list[Extraction]:
    """Return the extraction of each passage of some documents."""
    ids = texts.passages["passage_id"].to_pylist()
    sentences = _by_passage(texts.sentences, ids, "ordinal", "start", "end")
    mentions = _by_passage(texts.mentions, ids, *PassageMention._fields)
    rows = zip(texts.passages["text"].to_pylist(), sentences, mentions, strict=True)
    return [extract(text, spans, [PassageMention(*mention) for mention in of_text]) for text, spans, of_text in rows]


def _by_passage(table: pa.Table, ids: Sequence[str], *columns: str) -> list[list[tuple[Any, ...]]]:
    """Return the columns of each passage's rows, in the order of `ids`."""
    rows: dict[str, list[tuple[Any, ...]]] = {passage: [] for passage in ids}
    for passage, *row in zip(*(table[name].to_pylist() for name in ("passage_id", *columns)), strict=True):
        rows[passage].append(tuple(row))
    return list(rows.values())


@dataclass(frozen=True, kw_only=True)
class ExtractorSettings(StageSettings):
    """The settings that determine the extraction."""

    extractor: Mapping[str, Any]


def _compute(part: Part[ExtractorSettings]) -> Outputs:
    tables, changed = extracted_of(part, extract_all)
    return Outputs(tables=tables, counts={"documents_made": changed})


STAGE = Stage(
    "extract",
    version=4,
    compute=_compute,
    inputs=(*TEXTS, Input("mentions", MENTIONS)),
    outputs=EXTRACTION_OUTPUTS,
    per_document=True,
    priority=8,
)
