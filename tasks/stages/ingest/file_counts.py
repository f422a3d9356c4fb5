"""What a scan counts of each file: the words in it, those in its document, and those left out, with the reasons.

The words of a file are counted along another path than its text: PDFium's letters, the visible text of an HTML page,
the text nodes of Office files. (A file of text or Markdown is its own text, less its front matter.) So

    words + added = text_words + the sum of left_out

where `added` are words that the text has more often, such as alternative texts of pictures. Words that are missing for
no known reason are left out as `unexplained`: many of these show a fault of the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.word_count import count_words, without_targets, words_of

LEFT_OUT: dict[str, str] = {
    "beside-article": "text around an article, such as teasers and comments",
    "comment": "remarks of reviewers",
    "components": "imports, exports and tags of components in MDX",
    "contents": "tables of contents, which repeat the headings",
    "deleted": "text deleted or moved away in tracked changes",
    "front-matter": "metadata at the beginning of the file",
    "header-footer": "headers and footers of pages",
    "hidden": "text that no reader of the page sees, and hidden sheets and slides",
    "navigation": "menus, search boxes, headers and footers of a web page",
    "output": "outputs of a notebook that are not text, or too long",
    "repeated-header": "the header of a table, repeated on each page",
    "running-head": "lines that repeat at the top or bottom of pages",
    "unexplained": "missing for no known reason: compare the document with its file",
    "unreadable-letters": "pages whose fonts do not say which letters they show; see corpus.extract.ocr",
}
"""The reasons why words of a file are not in its document."""

_FIELDS: list[pa.Field[Any]] = [
    pa.field("words", pa.int64()),
    pa.field("text_words", pa.int64()),
    pa.field("added", pa.int64(), nullable=False),
    pa.field(
        "left_out",
        pa.list_(
            pa.struct([pa.field("reason", pa.string(), nullable=False), pa.field("words", pa.int64(), nullable=False)])
        ),
        nullable=False,
    ),
    pa.field(
        "pages",
        pa.list_(pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("page", "words", "text_words")])),
        nullable=False,
    ),
    pa.field("metadata_left_out", pa.int64(), nullable=False),
]
COUNTS = pa.schema(_FIELDS)
"""The columns of a file's counts."""
FILE_COUNTS = pa.schema([pa.field("file", pa.string(), nullable=False), *_FIELDS])
"""The counts of files by name."""


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The counts of a file: a function of its bytes and the settings.

    words: in the file; None if they cannot be counted apart from its text. text_words: in the document; None for a
    file of records. added: words of the document that the file does not have. left_out: words by reason, a key of
    LEFT_OUT. pages: (page, words, text_words) of each page that lost words or has no text. metadata_left_out: the
    number of documents some of whose metadata were left out.
    """

    words: int | None = None
    text_words: int | None = None
    added: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    pages: tuple[tuple[int, int, int], ...] = ()
    metadata_left_out: int = 0

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> FileCounts:
        """Return the counts in a row of the schema COUNTS, which may have other columns."""
        return cls(
            row["words"],
            row["text_words"],
            row["added"],
            {entry["reason"]: entry["words"] for entry in row["left_out"]},
            tuple((entry["page"], entry["words"], entry["text_words"]) for entry in row["pages"]),
            row["metadata_left_out"],
        )


def counts_of(words: WordCounts, text: str, metadata_left_out: int = 0) -> FileCounts:
    """Return the counts of a file that became a document; words that are missing for no reason are `unexplained`."""
    left_out = {reason: number for reason, number in words.left_out.items() if number > 0}
    explained = sum(left_out.values())
    if isinstance(words.in_file, int):
        in_document = words.in_file - explained
        return FileCounts(words.in_file, in_document, 0, left_out, words.pages, metadata_left_out)
    visible = without_targets(text)
    if words.in_file is None:
        return FileCounts(None, count_words(visible), 0, left_out, words.pages, metadata_left_out)
    in_text = words_of(visible)
    in_file, in_document = words.in_file.total(), in_text.total()
    missing = (words.in_file - in_text).total()
    if missing > explained:
        left_out["unexplained"] = missing - explained
    added = in_document + max(missing, explained) - in_file
    return FileCounts(in_file, in_document, added, left_out, words.pages, metadata_left_out)


def columns_of(counts: Sequence[FileCounts]) -> dict[str, list[Any]]:
    """Return the columns of the schema COUNTS, with the counts in their order."""
    return {
        "words": [of_file.words for of_file in counts],
        "text_words": [of_file.text_words for of_file in counts],
        "added": [of_file.added for of_file in counts],
        "left_out": [
            [{"reason": reason, "words": words} for reason, words in sorted(of_file.left_out.items())]
            for of_file in counts
        ],
        "pages": [
            [{"page": page, "words": words, "text_words": in_text} for page, words, in_text in of_file.pages]
            for of_file in counts
        ],
        "metadata_left_out": [of_file.metadata_left_out for of_file in counts],
    }


def table_of(counts: Mapping[str, FileCounts]) -> pa.Table:
    """Return a table of the schema FILE_COUNTS, sorted by file."""
    names = sorted(counts)
    return pa.table({"file": names, **columns_of([counts[name] for name in names])}, FILE_COUNTS)


def of_table(rows: Iterable[Mapping[str, Any]]) -> dict[str, FileCounts]:
    """Return the counts in the rows of a table of the schema FILE_COUNTS."""
    return {row["file"]: FileCounts.of_row(row) for row in rows}
