"""Stage `recognise`: the mentions of a shard's documents, placed in passages and sentences (LinearRAG, section 3.1).

A recogniser reads a whole document, so that what it finds does not depend on where passages are cut; each mention is
then placed in the sentence in which it starts. Of a document in Markdown or HTML it reads what a reader sees; the
surfaces are as they are read, the offsets those of the passage as it is. A mention in the title belongs to every
passage of the document. What the text is about (kind `subject`, an empty span) is placed in the sentence from which on
it is, and again in the first sentence of every further passage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.models.recogniser import Mention, Recogniser, open_recogniser
from indexmill.models.subjects import Subject, subjects_of
from indexmill.text.names import canonical_name, entity_id
from schemas.tables import MENTIONS, TITLE_SENTENCE, conform
from tasks.core.stage import Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.core.unchanged import in_order, unchanged
from tasks.stages.split.plain import TEXTS, Plain

__all__ = ["STAGE", "RecogniseSettings", "mentions_of", "place_mentions", "recognise", "recogniser_of"]

_FAR = 1 << 32  # further than any offset in a document: separates documents in one sorted key


def recognise(documents: pa.Table, passages: pa.Table, sentences: pa.Table, recogniser: Recogniser) -> pa.Table:
    """The mentions table (`schemas.tables.MENTIONS`) of some documents, ordered as their passages and sentences are."""
    titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
    found = [recogniser.recognise(title, text) for title, text in zip(titles, texts, strict=True)]
    return place_mentions(documents, passages, sentences, found)


def place_mentions(
    documents: pa.Table, passages: pa.Table, sentences: pa.Table, found: Sequence[Sequence[Mention]]
) -> pa.Table:
    """Put document-level mentions into sentences: `found[i]` are the mentions of document i.

    A mention that a passage's end cuts is dropped there; with overlapping passages it may stand in two. Subjects are
    added; a title that says nothing of what its text is about is a name like any other (kind `part`).
    """
    titles, texts = documents["title"].to_pylist(), documents["text"].to_pylist()
    about = [subjects_of(*one) for one in zip(titles, texts, found, strict=True)]
    rows = [
        (
            document,
            mention.start,
            mention.end,
            text[mention.start : mention.end],
            "part" if mention.kind == "title" and not told.titled else mention.kind,
            mention.field == "title",
            mention.name,
        )
        for document, (title_text, body, mentions, told) in enumerate(zip(titles, texts, found, about, strict=True))
        for mention in mentions
        for text in (title_text if mention.field == "title" else body,)
    ]
    document, start, end, surface, kind, in_title, given = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 7
    )
    names = [name or own for name, own in zip(given, _names(surface), strict=True)]
    keep = np.array([bool(name) for name in names], dtype=bool)
    doc_of = np.array(document, dtype=np.int64)
    starts, ends = np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)
    titled = np.array(in_title, dtype=bool)

    row_of_document = pc.index_in(passages["document_id"], documents["document_id"].combine_chunks())
    passage_document = row_of_document.to_numpy(zero_copy_only=False).astype(np.int64)
    passage_start = passages["start"].to_numpy().astype(np.int64)
    passage_end = passages["end"].to_numpy().astype(np.int64)

    # Text mentions: those that start in [sentence start, sentence end) of the same document, for every sentence.
    in_text = np.flatnonzero(keep & ~titled)
    in_text = in_text[np.lexsort((ends[in_text], starts[in_text], doc_of[in_text]))]
    key = doc_of[in_text] * _FAR + starts[in_text]
    sentence_passage = pc.index_in(sentences["passage_id"], passages["passage_id"].combine_chunks())
    sentence_passage = sentence_passage.to_numpy(zero_copy_only=False).astype(np.int64)
    base = passage_document[sentence_passage] * _FAR + passage_start[sentence_passage]
    first = np.searchsorted(key, base + sentences["start"].to_numpy())
    last = np.searchsorted(key, base + sentences["end"].to_numpy())
    sentence_row, position = _ranges(first, last)
    mention = in_text[position]
    passage = sentence_passage[sentence_row]
    whole = ends[mention] <= passage_end[passage]
    sentence_row, mention, passage = sentence_row[whole], mention[whole], passage[whole]
    ordinal = sentences["ordinal"].to_numpy()[sentence_row].astype(np.int64)
    offset = passage_start[passage]

    # Title mentions: once for every passage of the document.
    in_title_rows = np.flatnonzero(keep & titled)
    in_title_rows = in_title_rows[np.lexsort((ends[in_title_rows], starts[in_title_rows], doc_of[in_title_rows]))]
    first = np.searchsorted(doc_of[in_title_rows], passage_document, side="left")
    last = np.searchsorted(doc_of[in_title_rows], passage_document, side="right")
    title_passage, position = _ranges(first, last)
    title_mention = in_title_rows[position]

    # Subjects: from the first sentence in each passage that is about them.
    subjects = [(d, subject) for d, told in enumerate(about) for subject in told.subjects]
    subject_sentence, position = _in_force(
        np.array([d * _FAR + subject.start for d, subject in subjects], dtype=np.int64),
        base + sentences["start"].to_numpy(),
        base + sentences["end"].to_numpy(),
        sentence_passage,
    )
    owner, given_names = _of_each([subject for _, subject in subjects])
    entry, which = _ranges(np.searchsorted(owner, position), np.searchsorted(owner, position, side="right"))
    subject_sentence = subject_sentence[entry]
    subject_mention = len(names) + which
    begins = sentences["start"].to_numpy().astype(np.int64)[subject_sentence]
    surface += [said for said, _ in given_names]
    names += [name for _, name in given_names]
    kind += ["subject"] * len(given_names)

    all_mentions = np.concatenate([title_mention, mention, subject_mention])
    all_passages = np.concatenate([title_passage, passage, sentence_passage[subject_sentence]])
    all_ordinals = np.concatenate(
        [
            np.full(len(title_mention), TITLE_SENTENCE),
            ordinal,
            sentences["ordinal"].to_numpy()[subject_sentence].astype(np.int64),
        ]
    )
    all_starts = np.concatenate([starts[title_mention], starts[mention] - offset, begins])
    all_ends = np.concatenate([ends[title_mention], ends[mention] - offset, begins])
    order = np.lexsort((all_ends, all_starts, all_ordinals, all_passages))
    all_mentions, all_passages = all_mentions[order], all_passages[order]
    name = pa.array(names, pa.string()).take(pa.array(all_mentions))
    unique = name.dictionary_encode()
    ids = pa.array([entity_id(text) for text in unique.dictionary.to_pylist()], pa.string()).take(unique.indices)
    return conform(
        pa.table(
            {
                "passage_id": passages["passage_id"].combine_chunks().take(pa.array(all_passages)),
                "sentence": all_ordinals[order],
                "start": all_starts[order],
                "end": all_ends[order],
                "surface": pa.array(surface, pa.string()).take(pa.array(all_mentions)),
                "name": name,
                "entity_id": ids,
                "kind": pa.array(kind, pa.string()).take(pa.array(all_mentions)),
            }
        ),
        MENTIONS,
    )


def _in_force(
    subjects: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64], passages: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sentences in which a subject begins to hold, or holds at the start of a passage, and the subject of each.

    subjects: where each is first said, ascending. starts, ends, passages: of sentences. Both with the document before
    the offset in it.
    """
    held = np.searchsorted(subjects, ends) - 1  # one that is said within the sentence is its own
    its = held >= 0
    its[its] = subjects[held[its]] // _FAR == starts[its] // _FAR
    held[~its] = -1
    new = np.ones(len(held), dtype=bool)
    new[1:] = (held[1:] != held[:-1]) | (passages[1:] != passages[:-1])
    (rows,) = (its & new).nonzero()
    return rows, held[rows]


def _of_each(subjects: Sequence[Subject]) -> tuple[NDArray[np.int64], list[tuple[str, str]]]:
    """The names of some subjects, as they are written and canonical, and whose each is."""
    owners = np.arange(len(subjects)).repeat([len(subject.names) for subject in subjects])
    return owners, [name for subject in subjects for name in subject.names]


def _names(surfaces: Sequence[str]) -> list[str]:
    """Canonical names, each distinct surface once."""
    known = {surface: canonical_name(surface) for surface in dict.fromkeys(surfaces)}
    return [known[surface] for surface in surfaces]


def _ranges(first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For ranges [first_i, last_i): the i of every element, and the elements themselves."""
    lengths = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(first)), lengths)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owner, first[owner] + within


@cache
def recogniser_of(name: str) -> Recogniser:
    """The recogniser of this name, loaded once per process."""
    return open_recogniser(name)


def mentions_of(
    inputs: Part[Any], find: Callable[[pa.Table, pa.Table, pa.Table], pa.Table], *, again: str | None = None
) -> tuple[pa.Table, int]:
    """The mentions of a shard's documents, and of how many of them they were found: those that the parent lacks.

    find: makes them of the tables of some documents, their passages and their sentences. again: see `unchanged`.
    """
    documents, passages, sentences = (inputs.table(name) for name in ("documents", "passages", "sentences"))
    same, held = unchanged(inputs, documents, again=again)
    new = documents.filter(pa.array(~held))
    of_new = passages.filter(pc.is_in(passages["document_id"], new["document_id"].combine_chunks()))
    in_new = sentences.filter(pc.is_in(sentences["passage_id"], of_new["passage_id"].combine_chunks()))
    plain = Plain.of(inputs, of_new)
    made = find(plain.documents(new), plain.passages, plain.sentences(in_new))
    found = [conform(plain.original(made), MENTIONS)]
    for part in same:
        kept = passages.filter(pc.is_in(passages["document_id"], part.ids))
        found.append(part.of_passages("mentions", kept["passage_id"]))
    return in_order(found, "passage_id", passages["passage_id"]), len(new)


@dataclass(frozen=True, kw_only=True)
class RecogniseSettings(Settings):
    """What determines the mentions, and the recogniser's name or path, or, where a model is asked, itself."""

    fingerprint: str
    recogniser: Any = worker_arg()


def _compute(part: Part[RecogniseSettings]) -> Outputs:
    recogniser = recogniser_of(part.settings.recogniser)
    mentions, made = mentions_of(part, lambda new, passages, sentences: recognise(new, passages, sentences, recogniser))
    return Outputs(tables={"mentions": mentions}, counts={"documents_made": made})


STAGE = Stage(
    "recognise",
    version=3,
    compute=_compute,
    settings=RecogniseSettings,
    inputs=TEXTS,
    outputs=(Output("mentions", MENTIONS, artifact="mentions/{label}"),),
    per_document=True,
    priority=10,
)
