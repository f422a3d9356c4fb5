"""Stage `split`: a shard's documents become passages, the pieces that are embedded and retrieved, and sentences.

A document that fits stays whole. A longer document is cut greedily up to the size, at the strongest break in the second
half of the text that fits: before a heading, otherwise between paragraphs, otherwise between sentences. A sentence
longer than the size is cut between tokens. Sizes are in the embedder's tokens, including the title and special tokens,
so that the embedder never truncates a passage.

For a document in Markdown or HTML, the visible words are cut, counted and embedded (tasks.text.markup), with the
headings above them; offsets of passages and sentences refer to the original document. A passage that begins within a
table or a list is also embedded with the table's header or the line before the list. Code is cut before definitions or
at blank lines; a heading, or a line that ends with a colon, stays with the text that it introduces.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.errors import ConfigurationError
from indexmill.models.embedder import HashEmbedder, Tokeniser
from indexmill.store.canonical import content_id
from schemas.config import SplitSettings
from schemas.tables import DOCUMENTS, LANGUAGES, PASSAGES, PLAIN, SENTENCES, conform
from tasks.core.encoder import tokeniser_of
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.core.unchanged import in_order, unchanged
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.split.language_counts import language_counts
from tasks.stages.split.sections import outline, sections
from tasks.text.language import language_of, languages_of
from tasks.text.markup import Markup, Visible, link_words, markup_of, visible
from tasks.text.sentences import INTRODUCED, Segment, segments, trimmed

Tokens: TypeAlias = HashEmbedder | Tokeniser

TITLE_BYTES = 120
"""The maximum length of an embedded title, in UTF-8 bytes; no tokenizer makes more tokens than bytes."""
HEADING_TOKENS = 24
HEADING_BYTES = 96
"""The maximum length of the embedded headings above a passage, in UTF-8 bytes."""
_HEADER_TOKENS, _HEADER_BYTES = 16, 64
"""The maximum length of a table header above a passage; it leaves room for a heading."""
_BETWEEN = {True: re.compile(r" \| "), False: re.compile(r"\s+")}
_LEAST_TOKENS = TITLE_BYTES + 8
_LEAST_TEXT = 32
"""The minimum tokens of a passage's text after a long title, even if the passage exceeds the configured size."""
_LONG = 100
_PER_TOKEN = 4
"""Runs of more than _LONG characters without a token's start count as one token per _PER_TOKEN characters, so that a
megabyte of base64, which is one unknown word to many tokenizers, is not one passage."""


def title_prefix(title: str) -> str:
    """Return the text embedded before a passage's text; offsets in the passage shift by its length.

    It is the title and a line break, or empty for an empty title. A title beyond `TITLE_BYTES` is cut between words.
    """
    title = title.strip()
    data = title.encode("utf-8", "replace")
    if len(data) > TITLE_BYTES:
        cut = data[:TITLE_BYTES].decode("utf-8", "ignore")
        title = (cut.rpartition(" ")[0] or cut).rstrip()
    return f"{title}\n" if title else ""


def embedded_text(title: str, passage_text: str, headings: str = "") -> str:
    """Return a passage's embedded text. title: empty if not embedded. headings: see `schemas.tables.PLAIN`."""
    return title_prefix(title) + (f"{headings}\n" if headings else "") + passage_text


@dataclasses.dataclass(frozen=True)
class _Document:
    """A document being split. Offsets refer to `text`, the visible text."""

    identity: str
    title: str
    original: str
    language: str  # two letters, or empty if unknown
    prefix: str  # the title as it is embedded
    visible: Visible | None  # None if the whole original is visible
    headings: tuple[_Above, ...] = ()
    leads: tuple[_Lead, ...] = ()

    @property
    def text(self) -> str:
        return self.original if self.visible is None else self.visible.text

    def above(self, start: int) -> str:
        """Return the lines embedded above an offset: headings, and the leads of the tables and lists around it."""
        room, bytes_left = HEADING_TOKENS, HEADING_BYTES
        lines: list[str] = []
        inside = bisect.bisect_left(self.leads, start, key=lambda lead: lead.start) - 1
        while inside >= 0:
            lead = self.leads[inside]
            if lead.end <= start < lead.stop and lead.tokens <= room and lead.bytes <= bytes_left:
                lines.append(lead.text)
                room, bytes_left = room - lead.tokens, bytes_left - lead.bytes
            inside = lead.above
        here = bisect.bisect_right(self.headings, start, key=lambda heading: heading.start) - 1
        if here >= 0 and self.headings[here].start == start:
            here = self.headings[here].above
        while here >= 0:
            heading = self.headings[here]
            if not heading.is_title and heading.tokens <= room and heading.bytes <= bytes_left:
                lines.append(heading.text)
                room, bytes_left = room - heading.tokens, bytes_left - heading.bytes
            here = heading.above
        return "\n".join(reversed(lines))

    def embedded(self, start: int, end: int) -> str:
        above = self.above(start) if self.headings or self.leads else ""
        return self.prefix + (f"{above}\n" if above else "") + self.text[start:end]


class _Above(NamedTuple):
    """A heading, as it is embedded with the text below it."""

    start: int
    above: int  # index of the parent heading; -1 without a parent
    text: str
    tokens: int
    bytes: int
    is_title: bool  # whether it repeats the title, which precedes every passage anyway


class _Lead(NamedTuple):
    """A table's header or the line before a list, as it is embedded with passages that begin before `stop`."""

    start: int
    end: int
    stop: int
    above: int  # index of the enclosing lead; -1 without an enclosing lead
    text: str
    tokens: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A future passage: consecutive segments of one document."""

    row: int  # the document's row
    segments: Sequence[Segment]
    tokens: int | None = None  # the tokens of the embedded text; None while unknown

    @property
    def start(self) -> int:
        return self.segments[0].start

    @property
    def end(self) -> int:
        return self.segments[-1].end


class Split(NamedTuple):
    """The result of splitting: tables with the schemas PASSAGES, SENTENCES, PLAIN and LANGUAGES."""

    passages: pa.Table
    sentences: pa.Table
    plain: pa.Table
    languages: pa.Table


def split(documents: pa.Table, tokens: Tokens, settings: SplitSettings, *, counts_tokens: bool = True) -> Split:
    """Split documents into passages and sentences, in the order of documents and positions, with their plain texts.

    `documents` has the schema DOCUMENTS. counts_tokens: True to count the tokens of words by language. A document that
    is blank or only markup has no passage. Raises ConfigurationError if the configured passages are longer than the
    embedder's input.
    """
    if settings.tokens > tokens.max_tokens:
        raise ConfigurationError(
            f"split.tokens is {settings.tokens}, but the embedder reads at most {tokens.max_tokens} tokens; "
            "set it to that number or less"
        )
    if tokens.max_tokens < _LEAST_TOKENS:
        raise ConfigurationError(f"the embedder reads {tokens.max_tokens} tokens; splitting needs {_LEAST_TOKENS}")
    columns = ["document_id", "title", "text", "source", "metadata"]
    rows = documents.select(columns).to_pydict()
    drafts = [_document(settings, *row) for row in zip(*(rows[name] for name in columns), strict=True)]
    offsets = tokens.token_offsets([draft.prefix + draft.text for draft in drafts])

    cuts: list[_Cut] = []
    limits: list[int] = []
    for row, (draft, of_tokens) in enumerate(zip(drafts, offsets, strict=True)):
        text = draft.text
        starts = of_tokens[:, 0].astype(np.int64) - len(draft.prefix)
        titled = int(np.searchsorted(starts, 0))  # tokens of the title
        fixed = titled + tokens.special_tokens
        limits.append(min(tokens.max_tokens, max(settings.tokens, fixed + _LEAST_TEXT)))
        language = draft.language or settings.language
        pieces = segments(text, language, None if draft.visible is None else draft.visible.blocks)
        weighed = _weighed(starts[titled:], len(text))
        capacity = limits[row] - fixed
        if draft.visible is not None and len(weighed) > capacity and tokens.max_tokens > _LEAST_TOKENS + HEADING_BYTES:
            of_text = starts[titled:]
            headings, leads = _headings(draft, of_text), _leads(draft, of_text)
            draft = drafts[row] = dataclasses.replace(draft, headings=headings, leads=leads)
            capacity = max(capacity - HEADING_TOKENS, _LEAST_TEXT) if draft.headings or draft.leads else capacity
        groups = list(_packed(pieces, weighed, text, capacity, settings))
        whole = len(groups) == 1 and (pieces[0].start, pieces[-1].end) == (0, len(text))
        cuts.extend(_Cut(row, group, fixed + len(starts) - titled if whole else None) for group in groups)
    cuts, counts = _fitted(cuts, limits, drafts, tokens)
    passages, sentences = _tables(cuts, counts, drafts)
    rows = zip(
        passages.column("document_id").to_pylist(),
        passages.column("language").to_pylist(),
        (drafts[cut.row].text[cut.start : cut.end] for cut in cuts),
        strict=True,
    )
    tokeniser = tokens if counts_tokens and isinstance(tokens, Tokeniser) else None
    return Split(passages, sentences, _plain(cuts, drafts), language_counts(rows, tokeniser))


def _document(
    settings: SplitSettings, identity: str, title: str, text: str, source: str | None, metadata: str
) -> _Document:
    seen = visible(text, _markup_of(settings, identity, source, metadata, text))
    language = language_of(text if seen is None else seen.text) or _stated_language(metadata)
    prefix = title_prefix(title) if settings.title_in_passage else ""
    return _Document(identity, title, text, language, prefix, seen)


def _stated_language(metadata: str) -> str:
    """Return the two letters of the language that the metadata state, such as `de-AT`; empty if there is none."""
    language = json.loads(metadata).get("language") if '"language"' in metadata else None
    match = re.match(r"([A-Za-z]{2})(?:[-_]|$)", language) if isinstance(language, str) else None
    return match[1].lower() if match else ""


def _markup_of(settings: SplitSettings, identity: str, source: str | None, metadata: str, text: str) -> Markup:
    """Return the markup of a document; for `auto`, Markdown if its metadata and name show that it was extracted.

    The source of a document that is a file is its id, whatever its suffix (`corpus.formats`).
    """
    if settings.markup == "auto" and '"format"' in metadata:
        named = json.loads(metadata).get("format")
        file_format = format_of(named) if isinstance(named, str) else None
        suffixes = () if file_format is None else file_format.suffixes
        if any((name or "").lower().endswith(suffixes) for name in (identity, source)):
            return "markdown"
        if identity == source and (file_format is not None or named == "markdown"):
            return "markdown"
    return markup_of(settings.markup, identity, source, text)


def _headings(document: _Document, starts: NDArray[np.int64]) -> tuple[_Above, ...]:
    """Return the headings of a document; none for plain text. starts: the offsets of its tokens."""
    headings: list[_Above] = []
    seen = document.visible
    title = " ".join(document.title.split()).casefold() if document.prefix else ""
    for (start, end, _), (text, above) in zip(seen.headings, outline(seen), strict=True) if seen else ():
        count = int(np.searchsorted(starts, end) - np.searchsorted(starts, start))
        is_title = bool(title) and text.casefold() == title
        headings.append(_Above(start, above, text, count, len(text.encode("utf-8", "replace")) + 1, is_title))
    return tuple(headings)


def _leads(document: _Document, starts: NDArray[np.int64]) -> tuple[_Lead, ...]:
    """Return the leads embedded with later passages of a document's tables and lists. starts: its token offsets.

    A long table header keeps its first columns; a long line before a list keeps its last words.
    """
    leads: list[_Lead] = []
    path: list[int] = []
    for start, end, stop, is_table in document.visible.leads if document.visible else ():
        while path and leads[path[-1]].stop <= start:
            path.pop()
        text = document.text[start:end]
        bounds = [0, *(match.end() for match in _BETWEEN[is_table].finditer(text)), len(text)]
        pieces = [(0, at) for at in reversed(bounds[1:])] if is_table else [(at, len(text)) for at in bounds[:-1]]
        tokens, most_bytes = (_HEADER_TOKENS, _HEADER_BYTES) if is_table else (HEADING_TOKENS, HEADING_BYTES)
        for low, high in pieces:
            if high - low > 2 * most_bytes:
                continue
            lead_text = " ".join(text[low:high].split()).removesuffix(" |")
            count = int(np.searchsorted(starts, start + high) - np.searchsorted(starts, start + low))
            size = len(lead_text.encode("utf-8", "replace")) + 1
            if lead_text and count <= tokens and size <= most_bytes:
                leads.append(_Lead(start, end, stop, path[-1] if path else -1, lead_text, count, size))
                path.append(len(leads) - 1)
                break
    return tuple(leads)


def _weighed(starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the offsets of a text's tokens; a long gap has additional offsets, so that it counts as several tokens."""
    bounds = np.concatenate(([0], starts, [length])) if len(starts) else np.array([0, length])
    gaps = np.diff(bounds)
    if gaps.max(initial=0) <= _LONG:
        return starts
    more = [np.arange(bounds[at], bounds[at + 1], _PER_TOKEN) for at in np.flatnonzero(gaps > _LONG)]
    return np.unique(np.concatenate([starts, *more]))


def _packed(
    pieces: list[Segment], starts: NDArray[np.int64], text: str, capacity: int, settings: SplitSettings
) -> Iterator[Sequence[Segment]]:
    """Yield groups of segments of at most `capacity` tokens each."""
    if not pieces:
        return
    if len(starts) <= capacity:
        yield pieces
        return
    bounds = np.searchsorted(starts, [(segment.start, segment.end) for segment in pieces])
    if (bounds[:, 1] - bounds[:, 0]).max() > capacity:
        within = zip(pieces, bounds.tolist(), strict=True)
        pieces = [
            piece for segment, (low, high) in within for piece in _pieces(segment, low, high, starts, text, capacity)
        ]
    # before[i]: tokens that begin before segment i; the last entry is the total.
    before = np.searchsorted(starts, [segment.start for segment in pieces])
    before = np.append(before, np.searchsorted(starts, pieces[-1].end))
    strengths = np.array([segment.strength for segment in pieces] + [0])
    at = fresh = 0  # the passage's first segment, and its first new one
    while True:
        rest = int(before[-1] - before[at])
        if rest <= capacity:
            yield pieces[at:]
            return
        # The last passage keeps a quarter of the size, so that it is never tiny.
        most = min(capacity, max(rest - capacity // 4, capacity // 2))
        latest = max(fresh + 1, int(np.searchsorted(before, before[at] + most, side="right")) - 1)
        earliest = max(fresh + 1, int(np.searchsorted(before, before[at] + capacity // 2)))
        end = latest
        if earliest < latest:
            choices = strengths[earliest : latest + 1]
            end = latest - int(np.argmax(choices[::-1]))
        while end > fresh + 1 and strengths[end] == INTRODUCED:
            end -= 1
        yield pieces[at:end]
        fresh = end
        at = _overlapping(before, at, end, capacity, settings.overlap)


def _overlapping(before: NDArray[np.int64], start: int, end: int, capacity: int, overlap: int) -> int:
    """Return the first segment of the next passage, which repeats up to `overlap` tokens if a new segment still fits.

    before: the number of tokens before each segment. start, end: the segments of the current passage.
    """
    if not overlap:
        return end
    room = min(overlap, capacity - int(before[end + 1] - before[end]))
    first = int(np.searchsorted(before, before[end] - room))
    return min(end, max(first, start + 1))


def _pieces(
    segment: Segment, low: int, high: int, starts: NDArray[np.int64], text: str, capacity: int
) -> Iterator[Segment]:
    """Cut a segment, with tokens `starts[low:high]`, into pieces of at most `capacity` tokens, preferably at words."""
    if high - low <= capacity:
        yield segment
        return
    begin, strength = segment.start, segment.strength
    while high - low > capacity:
        stop = low + capacity
        for candidate in range(stop, low + capacity // 2, -1):
            if text[int(starts[candidate]) - 1].isspace():
                stop = candidate
                break
        cut = int(starts[stop])
        yield from trimmed(text, begin, cut, strength)
        begin, low, strength = cut, stop, 0
    yield from trimmed(text, begin, segment.end, strength)


def _fitted(
    cuts: list[_Cut], limits: list[int], documents: Sequence[_Document], tokens: Tokens
) -> tuple[list[_Cut], list[int]]:
    """Return the cuts with the true lengths of their embedded texts; halve cuts that are too long until they fit.

    A tokenizer may produce more tokens for a piece than for the same characters within a whole word.
    """
    fitted = [(cut, cut.tokens) for cut in cuts if cut.tokens is not None]
    waiting = [cut for cut in cuts if cut.tokens is None]
    while waiting:
        counts = tokens.count_tokens([documents[cut.row].embedded(cut.start, cut.end) for cut in waiting])
        halves: list[_Cut] = []
        for cut, count in zip(waiting, counts.tolist(), strict=True):
            if count <= limits[cut.row]:
                fitted.append((cut, count))
            else:
                halves.extend(_halved(cut, documents[cut.row].text))
        waiting = halves
    fitted.sort(key=lambda pair: (pair[0].row, pair[0].start, pair[0].end))
    return [cut for cut, _ in fitted], [count for _, count in fitted]


def _halved(cut: _Cut, text: str) -> Iterator[_Cut]:
    if len(cut.segments) > 1:
        middle = len(cut.segments) // 2
        yield _Cut(cut.row, cut.segments[:middle])
        yield _Cut(cut.row, cut.segments[middle:])
        return
    (start, end, strength) = cut.segments[0]
    if end - start < 2:
        raise ConfigurationError(
            f"the character {text[start:end]!r} and a title have more tokens than the embedder reads"
        )
    middle = (start + end) // 2
    space = text.rfind(" ", start + 1, middle)
    middle = space if space > 0 else middle
    for low, high in ((start, middle), (middle, end)):
        for piece in trimmed(text, low, high, strength):
            yield _Cut(cut.row, [piece])


def _tables(cuts: list[_Cut], counts: list[int], documents: Sequence[_Document]) -> tuple[pa.Table, pa.Table]:
    passages: list[tuple[str, str, int, int, int, str, int, str, str]] = []  # the columns of PASSAGES
    of_passage: list[int] = []
    ordinals: list[int] = []
    bounds: list[tuple[int, int]] = []
    for row, pairs in groupby(zip(cuts, counts, strict=True), key=lambda pair: pair[0].row):
        document, repeats, of_document = documents[row], Counter[str](), list(pairs)
        seen = document.visible
        begins = [cut.start for cut, _ in of_document]
        within = [""] * len(begins) if seen is None else sections(seen, document.title, begins)
        texts = [document.text[cut.start : cut.end] for cut, _ in of_document]
        languages = languages_of(document.text, texts, document.language)
        columns_of = zip(of_document, within, languages, strict=True)
        for ordinal, ((cut, count), section, language) in enumerate(columns_of):
            of_passage.extend([len(passages)] * len(cut.segments))
            ordinals.extend(range(len(cut.segments)))
            start, end = (cut.start, cut.end) if seen is None else seen.bounds(cut.start, cut.end)
            text = document.original[start:end]
            passage_id = content_id("passage", document.identity, text, str(repeats[text]))
            passages.append((passage_id, document.identity, ordinal, start, end, text, count, section, language))
            repeats[text] += 1
            spans = [(segment.start, segment.end) for segment in cut.segments]
            spans = spans if seen is None else seen.originals(spans)
            bounds.extend((low - start, high - start) for low, high in spans)
    columns = list(zip(*passages, strict=True)) or [()] * len(PASSAGES)
    table = pa.table(list(map(pa.array, columns, PASSAGES.types)), schema=PASSAGES)
    offsets = np.array(bounds, np.int32).reshape(-1, 2)
    sentences = pa.table(
        {
            "passage_id": table.column("passage_id").combine_chunks().take(pa.array(of_passage, pa.int64())),
            "ordinal": pa.array(ordinals, pa.int32()),
            "start": offsets[:, 0],
            "end": offsets[:, 1],
        }
    )
    return conform(table, PASSAGES), conform(sentences, SENTENCES)


def _plain(cuts: Sequence[_Cut], documents: Sequence[_Document]) -> pa.Table:
    rows = []
    for row, of_document in groupby(cuts, key=lambda cut: cut.row):
        document, mine = documents[row], list(of_document)
        seen = document.visible
        if seen is None:
            continue
        linked: list[list[str]] = [[] for _ in mine]
        if seen.targets:
            begins = [cut.start for cut in mine]
            for place, target in seen.targets:
                linked[max(bisect.bisect_right(begins, place) - 1, 0)].append(target)
        rows.append(
            {
                "document_id": document.identity,
                "text": seen.text,
                "starts": seen.starts,
                "origins": seen.origins,
                "ends": seen.ends,
                "passage_starts": [cut.start for cut in mine],
                "passage_ends": [cut.end for cut in mine],
                "headings": [document.above(cut.start) for cut in mine],
                "targets": [" ".join(dict.fromkeys(map(link_words, targets))) for targets in linked],
            }
        )
    return conform(pa.Table.from_pylist(rows, PLAIN), PLAIN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitStageSettings(StageSettings):
    """The settings `split`, the tokenizer's fingerprint, and the arguments to open the tokenizer.

    is_of_model: True if the tokenizer is the encoder's own, so that its tokens show how well the encoder reads a text.
    """

    split: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    is_of_model: bool
    opening: Mapping[str, Any] = worker_arg()


def settings_of(run: Run) -> SplitStageSettings:
    """Return the settings of a run's parts."""
    choice = run.models.choice()
    return SplitStageSettings(
        split=run.configuration.split.model_dump(),
        tokenizer=choice.tokenizer,
        is_of_model=choice.has_own_tokenizer,
        opening=choice.tokenizer_opening(run.store),
    )


def _compute(inputs: Part[SplitStageSettings]) -> Outputs:
    settings = SplitSettings.model_validate(inputs.settings.split)
    documents = inputs.table("documents")
    same, is_unchanged = unchanged(inputs, documents)
    fresh = split(
        documents.filter(pa.array(~is_unchanged)),
        tokeniser_of(inputs),
        settings,
        counts_tokens=inputs.settings.is_of_model,
    )
    copied = [part.of_documents("passages") for part in same]
    ids = documents.column("document_id")
    passages = in_order([fresh.passages, *copied], "document_id", ids)
    sentences = [part.of_passages("sentences", of.column("passage_id")) for part, of in zip(same, copied, strict=True)]
    plain = [part.of_documents("plain") for part in same]
    languages = [part.of_documents("languages") for part in same]
    return Outputs(
        tables={
            "passages": passages,
            "sentences": in_order([fresh.sentences, *sentences], "passage_id", passages.column("passage_id")),
            "plain": in_order([fresh.plain, *plain], "document_id", ids),
            "languages": in_order([fresh.languages, *languages], "document_id", ids),
        },
        counts={"documents_made": int((~is_unchanged).sum())},
    )


STAGE = Stage(
    "split",
    version=7,
    compute=_compute,
    libraries=("markdown-it-py", "py3langid", "sentencex", "tokenizers"),
    inputs=(Input("documents", DOCUMENTS),),
    outputs=(
        Output("passages", PASSAGES, artifact="passages/{label}"),
        Output("sentences", SENTENCES, artifact="sentences/{label}"),
        Output("plain", PLAIN),
        Output("languages", LANGUAGES),
    ),
    per_document=True,
    priority=20,
)
