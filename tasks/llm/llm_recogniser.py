"""The recogniser that asks a language model, with the rules of ZoomRAG (figure 6): names in a standard form.

Each request covers one piece of a document, cut between paragraphs or sentences, so mentions do not depend on the cuts
of passages. An answer names each entity in its standard form and lists how the text writes it. Only texts that occur in
the document as whole words become mentions: names that a model invents, or that a text talks it into, stay out of the
index.

``LlmRecogniser`` builds the requests and reads the answers; it sends only requests about questions.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from indexmill.models.llm import LLM, Completion, Request, data_block, object_schema
from indexmill.models.llm_errors import LlmError, LlmForbidden
from indexmill.models.recogniser import Field, Kind, Mention, RulesRecogniser, names_nothing, title_mentions
from indexmill.store.canonical import canonical_json, digest_of, strict_json
from indexmill.text.canonical_names import canonical_name
from tasks.llm.answer_parsing import list_schema, string

TASK = "entities"

_NAME = string(200)
SCHEMA = object_schema(entities=list_schema(128, object_schema(entity=_NAME, texts=list_schema(16, _NAME))))

PIECE_BYTES = 3_584
"""The maximum size of a piece in UTF-8 bytes: about 900 tokens of English, whose names fit an answer of 4,096."""

_TITLE = 200  # characters of a title that are sent
_LEAST_OUTPUT, _MOST_OUTPUT = 256, 4_096  # tokens
_MOST_TEXTS = 1_000  # checked in one answer: more than the capitalised words of a piece
_AT_ONCE = 16  # concurrent questions
_AHEAD = 48  # characters after a cut, whose hash ranks equally good cuts
_VERSION = 1  # the version of the conversion of answers to mentions


class DocumentRange(NamedTuple):
    """A range of a document's characters that one request covers."""

    start: int
    end: int


@dataclass(frozen=True)
class LlmRecogniser:
    """Requests about documents, and mentions from their answers; picklable.

    instructions: the prompt. prompt_version: identifies the prompt's text. llm: everything else that shapes the
    answers, such as the model's name and parameters, JSON-ready.
    """

    instructions: str
    prompt_version: str
    llm: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The key of all inputs that determine the mentions, apart from the model's randomness."""
        shaping = {
            "version": _VERSION,
            "llm": dict(self.llm),
            "prompt": self.prompt_version,
            "schema": SCHEMA,
            "piece": PIECE_BYTES,
            "fallback": RulesRecogniser.fingerprint,
        }
        return f"llm/{self.llm.get('model')}/{digest_of(canonical_json(shaping))[:32]}"

    def requests(self, title: str, text: str) -> list[tuple[DocumentRange, Request]]:
        """Return the requests about a document; none if the text is blank."""
        shown = title.strip()[:_TITLE]
        return [(piece, self._request(shown, text[piece.start : piece.end])) for piece in pieces(text)]

    def mentions(
        self, title: str, text: str, answers: Iterable[tuple[DocumentRange, Mapping[str, Any]]]
    ) -> tuple[list[Mention], Counter[str]]:
        """Return the mentions of a document from the answers about its pieces, sorted as by any recogniser, and counts.

        answers: values that fit SCHEMA. The whole title is a mention. A mention has the entity's standard name. If the
        text writes the name differently, a second mention of the kind ``alias`` has the name as written, to match
        documents and questions that use only that form; texts in lower case get no alias. Counts: ``names_grounded``
        and ``names_dropped``, the entities with and without a text in the document; ``texts_dropped``, the texts in
        answers that the document lacks.
        """
        counts: Counter[str] = Counter(names_grounded=0, names_dropped=0, texts_dropped=0)
        mentions: dict[tuple[Field, int, int, str], Kind] = {}
        for mention in title_mentions(title):
            mentions["title", mention.start, mention.end, ""] = "title"
        of_title: dict[str, str] = {}
        for piece, answer in answers:
            named = _named(answer, title, text[piece.start : piece.end], counts)
            for text_of, name in named.items():
                of_title.setdefault(text_of, name)
            _place(mentions, "text", text[piece.start : piece.end], named, piece.start)
        _place(mentions, "title", title, of_title, 0)
        ordered = sorted(mentions.items())
        return [Mention(field, start, end, kind, name or None) for (field, start, end, name), kind in ordered], counts

    def question_names(self, questions: Sequence[str], llm: LLM) -> list[list[str]]:
        """Return the names that a model finds in each question, for ``Snapshot.retrieve_batch(names=...)``.

        Sends one request per question, many concurrently; answers are not cached, and the caller enforces its budget. A
        question without a usable answer has no names: retrieval still matches names written in it. Raises LlmForbidden
        if the endpoint refuses all requests.
        """
        turns = asyncio.Semaphore(_AT_ONCE)

        async def names_of(question: str) -> list[str]:
            try:
                async with turns:
                    completion = await llm.complete(self._request("", question))
            except LlmError as error:
                if isinstance(error, LlmForbidden):
                    raise
                return []
            answer = _read(completion) or {"entities": []}
            named = _named(answer, "", question, Counter())
            return list(dict.fromkeys(name for form, full in named.items() for name in (full, canonical_name(form))))

        async def all_of_them() -> list[list[str]]:
            return await asyncio.gather(*(names_of(question) for question in questions))

        return asyncio.run(all_of_them())

    def _request(self, title: str, piece: str) -> Request:
        texts = [title, piece] if title else [piece]
        output = _LEAST_OUTPUT + sum(len(text.encode()) for text in texts)
        return Request(
            task=TASK,
            instructions=self.instructions,
            prompt_version=self.prompt_version,
            content=data_block(texts),
            schema=SCHEMA,
            max_output_tokens=min(output, _MOST_OUTPUT),
        )


# --- pieces ----------------------------------------------------------------------------------------------------------

_BREAKS = (
    re.compile(r"\n[^\S\n]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]"),
    re.compile(r"\s+"),
)
"""The positions where a piece may end, best first: after a paragraph, a line, a sentence, a word."""


def pieces(text: str) -> list[DocumentRange]:
    """Cut a text into pieces of at most ``PIECE_BYTES``; blank pieces are omitted.

    Every piece but the last ends in the second half of the bytes that fit, after a paragraph if possible. The choice
    among several such ends depends on the text that follows, not on the start of the piece: after an inserted passage,
    the cuts soon coincide with the previous ones, and the answers about the rest can be reused.
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes = 1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF)
    upto = np.concatenate([[0], np.cumsum(sizes)])  # bytes before each character
    cut: list[DocumentRange] = []
    start = 0
    while start < len(text):
        end = len(text)
        if upto[end] - upto[start] > PIECE_BYTES:
            last = int(upto.searchsorted(upto[start] + PIECE_BYTES, side="right")) - 1
            first = int(upto.searchsorted(upto[start] + PIECE_BYTES // 2))
            end = _cut(text, first, last)
        if text[start:end].strip():
            cut.append(DocumentRange(start, end))
        start = end
    return cut


def _cut(text: str, first: int, last: int) -> int:
    """Return the best position in (first, last] to end a piece."""
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, first, last) if match.end() < last]
        if ends:
            return min(ends, key=lambda end: (hashlib.sha256(text[end : end + _AHEAD].encode()).digest(), end))
    return last


# --- answers ---------------------------------------------------------------------------------------------------------

_QUALIFIED = re.compile(r"(.*\S)\s*\(([^()]+)\)")

# Characters that may differ between a text and its copy without a change of meaning, mapped one to one.
_ALIKE = str.maketrans(
    dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", " ")
    | {chr(code): " " for code in range(0x2000, 0x200B)}
    | dict.fromkeys("‘’‛ʼ`´′", "'")
    | dict.fromkeys("“”„‟″", '"')
    | dict.fromkeys("‐‑–", "-")
)

# Scripts without spaces between words: there, a name may begin anywhere.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)


def _read(completion: Completion) -> Mapping[str, Any] | None:
    try:
        answer = strict_json(completion.text)
    except ValueError:
        return None
    entities = answer.get("entities") if isinstance(answer, dict) else None
    well = isinstance(entities, list) and all(
        isinstance(entity, dict)
        and isinstance(entity.get("entity"), str)
        and isinstance(entity.get("texts"), list)
        and all(isinstance(text, str) for text in entity["texts"])
        for entity in entities
    )
    return answer if well and completion.finish_reason == "stop" else None


def standard_name(entity: str) -> str:
    """Return the canonical name of a standard form; empty if no name is left.

    An abbreviation in parentheses is left out, so that ``United Nations (UN)`` matches documents that never abbreviate
    it; any other qualifier is part of the name.
    """
    match = _QUALIFIED.fullmatch(entity.strip()) if len(entity) <= 1_000 else None
    return canonical_name(match[1] if match and _abbreviates(match[2], match[1]) else entity)


def _abbreviates(short: str, name: str) -> bool:
    """Return True if `short`, mostly capitals, starts like `name` and uses its letters in order; ignores "the"."""
    letters = [c for c in short if c.isalnum()]
    if len(letters) < 2 or " " in short.strip() or sum(c.isupper() for c in letters) * 2 < len(letters):
        return False
    rest = iter([c for c in name.casefold().removeprefix("the ") if c.isalnum()])
    first = next(rest, "")
    return first == letters[0].casefold() and all(c.casefold() in rest for c in letters[1:])


def _named(answer: Mapping[str, Any], title: str, text: str, counts: Counter[str]) -> dict[str, str]:
    """Return the standard name for each form that occurs in the title or text; the first entity with a form wins."""
    where = (text.translate(_ALIKE), title.translate(_ALIKE))
    tried: dict[str, bool] = {}

    def stands(form: str) -> bool:
        if form not in tried and len(tried) < _MOST_TEXTS:
            tried[form] = not names_nothing(form) and any(next(_occurrences(form, field), None) for field in where)
        return tried.get(form, False)

    named: dict[str, str] = {}
    for entity in answer["entities"]:
        name = standard_name(entity["entity"])
        texts = [_plain(form) for form in entity["texts"]]
        grounded = [form for form in texts if name and stands(form)]
        counts["texts_dropped"] += len(texts) - len(grounded)
        entity_text = _plain(entity["entity"])
        if name and entity_text not in grounded and stands(entity_text):
            grounded.append(entity_text)
        counts["names_grounded" if grounded else "names_dropped"] += 1
        for form in grounded:
            named.setdefault(form, name)
    return named


def place_of(form: str, text: str) -> tuple[int, int] | None:
    """Return the first occurrence of a form as whole words of a text; similar quotes, hyphens and spaces are equal."""
    plain = _plain(form)
    return next(_occurrences(plain, text.translate(_ALIKE)), None) if plain else None


def _plain(form: str) -> str:
    return " ".join(form.translate(_ALIKE).split())


def _occurrences(form: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(form)
    while start >= 0:
        end = start + len(form)
        if _parted(text, start) and _parted(text, end):
            yield start, end
        start = text.find(form, start + 1)


def _parted(text: str, at: int) -> bool:
    """Return True if a word may begin or end at the position `at` of a text."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if _is_mark(after):
        return False
    if not (_is_letter(before) and _is_letter(after)):
        return True
    return bool(_UNSPACED.match(before) or _UNSPACED.match(after))


def _is_mark(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char)[0] == "M"


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_" or _is_mark(char)


def _place(
    kinds: dict[tuple[Field, int, int, str], Kind], field: Field, text: str, named: Mapping[str, str], offset: int
) -> None:
    """Add the mentions of some names in a text. If forms overlap, the leftmost counts, then the longest."""
    plain = text.translate(_ALIKE)
    spans = sorted(
        ((start, end, form) for form in named for start, end in _occurrences(form, plain)),
        key=lambda span: (span[0], -span[1]),
    )
    reach = 0
    for start, end, form in spans:
        if start < reach:
            continue
        reach = end
        written = (field, start + offset, end + offset, "")
        name = named[form]
        if written in kinds:  # the whole title: it names the entity under both names
            if canonical_name(text[start:end]) != name:
                kinds[(*written[:3], name)] = "title"
        elif canonical_name(text[start:end]) == name:
            kinds[written] = "name"
        else:
            kinds[(*written[:3], name)] = "name"
            if _looks_like_a_name(text[start:end]):
                kinds[written] = "alias"


def _looks_like_a_name(surface: str) -> bool:
    """Return True if a text may name its entity elsewhere: a description ("the company") is in lower case."""
    return surface != surface.lower() or surface == surface.upper()
