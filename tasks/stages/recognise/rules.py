"""Stage `recognise`: the mentions of a shard's documents, placed in passages and sentences (LinearRAG, section 3.1).

A recogniser reads a whole document, in the language of most of its passages, so that the mentions do not depend on
where passages are cut; each mention is then placed in the sentence in which it starts. The recogniser reads the plain
text of a document in Markdown or HTML: surfaces come from the plain text, offsets refer to the original passage. A
mention in the title belongs to every passage of the document. A subject of the text (kind `subject`, an empty span) is
placed in the first sentence about it, and again in the first sentence of every later passage that is still about it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.models.recogniser import Mention, Recogniser, open_recogniser
from indexmill.text.canonical_names import canonical_name, entity_id
from schemas.tables import MENTIONS, TITLE_SENTENCE, conform
from tasks.core.stage import Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.stages.recognise.names_by_language import RulesByLanguage
from tasks.stages.recognise.subjects import subjects_of
from tasks.stages.split.plain import TEXTS, Plain, Texts, tables_by_passage

_FAR = 1 << 32  # exceeds any offset in a document, and so separates documents in one sorted key


def recognise(documents: pa.Table, passages: pa.Table, sentences: pa.Table, recogniser: Recogniser) -> pa.Table:
    """Return the mentions in some documents (`schemas.tables.MENTIONS`), in the order of passages and sentences."""
    titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
    documents_read = zip(titles, texts, languages_of(documents, passages), strict=True)
    mentions = [recogniser.recognise(title, text, language) for title, text, language in documents_read]
    return place_mentions(documents, passages, sentences, mentions)


def languages_of(documents: pa.Table, passages: pa.Table) -> list[str]:
    """Return the language of most passages of each document; empty if unknown."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for document, language in zip(passages["document_id"].to_pylist(), passages["language"].to_pylist(), strict=True):
        counts[document][language] += 1 if language else 0
    most = {document: of_document.most_common(1)[0][0] for document, of_document in counts.items()}
    return [most.get(document, "") for document in documents["document_id"].to_pylist()]


def place_mentions(
    documents: pa.Table, passages: pa.Table, sentences: pa.Table, document_mentions: Sequence[Sequence[Mention]]
) -> pa.Table:
    """Place document-level mentions in sentences: `document_mentions[i]` are the mentions of document i.

    A mention cut by the end of a passage is dropped there; a mention may be in two passages if they overlap. Subjects
    are added; a title that does not name the subject of its text is an ordinary name (kind `part`).
    """
    titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
    about = [subjects_of(*document) for document in zip(titles, texts, document_mentions, strict=True)]
    mentions = _mentions(titles, texts, document_mentions, [of_text.titled for of_text in about])
    row = pc.index_in(passages["document_id"], documents["document_id"].combine_chunks())
    document = row.to_numpy(zero_copy_only=False).astype(np.int64)  # the document of each passage
    row = pc.index_in(sentences["passage_id"], passages["passage_id"].combine_chunks())
    passage = row.to_numpy(zero_copy_only=False).astype(np.int64)  # the passage of each sentence
    columns = {
        "passage": passage,
        "sentence": sentences["ordinal"].to_numpy(),
        "begin": sentences["start"].to_numpy(),
        "offset": passages["start"].to_numpy()[passage],
        "limit": passages["end"].to_numpy()[passage],
    }
    spans = pl.DataFrame({name: column.astype(np.int64) for name, column in columns.items()})
    base = document[passage] * _FAR + columns["offset"]
    starts, ends = (base + sentences[name].to_numpy() for name in ("start", "end"))

    # Mentions in titles: once in every passage of the document.
    titled = mentions.filter("in_title")
    of_passage, mention = _within(titled["document"].to_numpy(), document, document + 1)
    in_titles = titled[mention].with_columns(passage=pl.Series(of_passage), sentence=pl.lit(TITLE_SENTENCE, pl.Int64))
    # Mentions in texts: in every sentence in which the mention starts.
    others = mentions.filter(~pl.col("in_title")).sort("document", "start", maintain_order=True)
    keys = others.select(pl.col("document") * _FAR + pl.col("start")).to_series()
    sentence, mention = _within(keys.to_numpy(), starts, ends)
    in_texts = (
        pl.concat([others[mention], spans[sentence]], how="horizontal")
        .filter(pl.col("end") <= pl.col("limit"))
        .with_columns(pl.col("start", "end") - pl.col("offset"))
    )
    # Subjects: in the first sentence of each passage that is about the subject.
    subjects = [(document, subject) for document, of_text in enumerate(about) for subject in of_text.subjects]
    subject_starts = np.array([document * _FAR + subject.start for document, subject in subjects], dtype=np.int64)
    sentence, current = _in_force(subject_starts, starts, ends, passage)
    named = [(number, *name) for number, (_, subject) in enumerate(subjects) for name in subject.names]
    names = pl.DataFrame(named, {"subject": pl.Int64, "surface": pl.String, "name": pl.String}, orient="row")
    entry, which = _within(names["subject"].to_numpy(), current, current + 1)
    of_subjects = pl.concat([names[which], spans[sentence[entry]]], how="horizontal").with_columns(
        start=pl.col("begin"), end=pl.col("begin"), kind=pl.lit("subject")
    )

    selected = ["passage", "sentence", "start", "end", "surface", "name", "kind"]
    placed = pl.concat([part.select(selected) for part in (in_titles, in_texts, of_subjects)])
    placed = placed.sort("passage", "sentence", "start", "end", maintain_order=True)
    ids = {name: entity_id(name) for name in placed["name"].unique()}
    passage_ids = passages["passage_id"].combine_chunks().take(placed["passage"].to_arrow())
    table = placed.with_columns(entity_id=pl.Series([ids[name] for name in placed["name"]], dtype=pl.String)).to_arrow()
    return conform(table.append_column("passage_id", passage_ids), MENTIONS)


def _mentions(
    titles: Sequence[str], texts: Sequence[str], document_mentions: Sequence[Sequence[Mention]], titled: Sequence[bool]
) -> pl.DataFrame:
    """Return the mentions that have a canonical name, by document. titled: whether each title names the subject."""
    rows: list[tuple[Any, ...]] = []
    for document, (title, body, mentions) in enumerate(zip(titles, texts, document_mentions, strict=True)):
        for mention in mentions:
            in_title = mention.field == "title"
            kind = "part" if mention.kind == "title" and not titled[document] else mention.kind
            surface = (title if in_title else body)[mention.start : mention.end]
            rows.append((document, mention.start, mention.end, surface, kind, in_title, mention.name))
    canonical = {surface: canonical_name(surface) for surface in {row[3] for row in rows}}
    columns = ("document", "start", "end", "surface", "kind", "in_title", "name")
    types = (pl.Int64, pl.Int64, pl.Int64, pl.String, pl.String, pl.Boolean, pl.String)
    named = [(*row, name or canonical[row[3]]) for *row, name in rows]
    return pl.DataFrame(named, dict(zip(columns, types, strict=True)), orient="row").filter(pl.col("name") != "")


def _in_force(
    subjects: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64], passages: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sentences in which a subject begins or that open a passage in its range, and the subject of each.

    subjects: the key (document * _FAR + offset) of each subject's start, ascending. starts, ends: the keys of each
    sentence's bounds. passages: the passage of each sentence.
    """
    current = np.searchsorted(subjects, ends) - 1  # a subject named within the sentence applies to it
    applies = current >= 0
    applies[applies] = subjects[current[applies]] // _FAR == starts[applies] // _FAR
    current[~applies] = -1
    new = np.ones(len(current), dtype=bool)
    new[1:] = (current[1:] != current[:-1]) | (passages[1:] != passages[:-1])
    (rows,) = (applies & new).nonzero()
    return rows, current[rows]


def _within(
    keys: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs (i, row) with low[i] <= keys[row] < high[i], as two arrays. keys: ascending."""
    first = np.searchsorted(keys, low)
    lengths = np.searchsorted(keys, high) - first
    owner = np.repeat(np.arange(len(first)), lengths)
    return owner, first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


@cache
def recogniser_of(name: str) -> Recogniser:
    """Return the recogniser with a name; it is loaded once per process. ``rules`` are those of every language."""
    return RulesByLanguage() if name == "rules" else open_recogniser(name)


def mentions_of(
    part: Part[Any], find: Callable[[pa.Table, pa.Table, pa.Table], pa.Table], *, again: str | None = None
) -> tuple[pa.Table, int]:
    """Return the mentions of a shard's documents, and the number of new or changed documents.

    find: makes the table of mentions from tables of documents, passages and sentences. again: see `unchanged`.
    """

    def make(texts: Texts, plain: Plain) -> dict[str, pa.Table]:
        mentions = find(texts.documents, texts.passages, texts.sentences)
        return {"mentions": conform(plain.to_original(mentions), MENTIONS)}

    tables, changed = tables_by_passage(part, make, again=again)
    return tables["mentions"], changed


@dataclass(frozen=True, kw_only=True)
class RecogniserSettings(StageSettings):
    """The fingerprint of the mentions, and the recogniser: its name or path, or the object if it calls a model."""

    fingerprint: str
    recogniser: Any = worker_arg()


def _compute(part: Part[RecogniserSettings]) -> Outputs:
    recogniser = recogniser_of(part.settings.recogniser)
    mentions, changed = mentions_of(part, lambda new, passages, spans: recognise(new, passages, spans, recogniser))
    return Outputs(tables={"mentions": mentions}, counts={"documents_made": changed})


STAGE = Stage(
    "recognise",
    version=6,
    compute=_compute,
    inputs=TEXTS,
    libraries=("babel", "spacy"),
    outputs=(Output("mentions", MENTIONS, artifact="mentions/{label}"),),
    per_document=True,
    priority=10,
)
