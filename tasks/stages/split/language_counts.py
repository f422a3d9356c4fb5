"""Counts, by language, a document's passages, and how the encoder's tokenizer cuts their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from indexmill.models.embedder import Tokeniser
from indexmill.text.terms import is_unspaced, prose_words
from schemas.tables import LANGUAGES


class _Group(NamedTuple):
    """The passages of a document in one language, with their words."""

    document_id: str
    language: str
    passages: int
    words: Mapping[str, int]
    is_main: bool


def language_counts(passages: Iterable[tuple[str, str, str]], tokeniser: Tokeniser | None) -> pa.Table:
    """Return the table LANGUAGES of passages, ordered by document: its id, the passage's language and visible text.

    tokeniser: None to count no tokens, as with one that does not show what its model reads.
    """
    if tokeniser is not None and not tokeniser.shows_languages:
        tokeniser = None
    groups = list(_groups(passages, counts_words=tokeniser is not None))
    words = sorted({word for group in groups for word in group.words})
    row_of = {word: row for row, word in enumerate(words)}
    of_words = _counts_of(words, tokeniser) if tokeniser is not None else np.empty((0, 4), np.int64)
    rows = []
    for group in groups:
        places = [row_of[word] for word in group.words]
        sums = np.array(list(group.words.values()), np.int64) @ of_words[places] if places else [0] * 4
        rows.append((group.document_id, group.language, int(group.is_main), group.passages, *map(int, sums)))
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(LANGUAGES)
    return pa.table(list(map(pa.array, columns, LANGUAGES.types)), schema=LANGUAGES)


def _groups(passages: Iterable[tuple[str, str, str]], *, counts_words: bool) -> Iterator[_Group]:
    for document_id, of_document in groupby(passages, key=itemgetter(0)):
        texts: dict[str, list[str]] = {}
        for _, language, text in of_document:
            texts.setdefault(language, []).append(text)
        main = max(sorted(texts), key=lambda language: len(texts[language]))
        for language in sorted(texts):
            words = Counter(word for text in texts[language] if counts_words for word in prose_words(text))
            yield _Group(document_id, language, len(texts[language]), words, language == main)


def _counts_of(words: Sequence[str], tokeniser: Tokeniser) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each word's tokens, unknown tokens, joints and cuts, ``(n, 4)``.

    In a script without spaces, a token of one character is no cut: many tokenizers read every character as a word.
    """
    tokens, unknown = tokeniser.pieces(words).T
    joints = np.array([len(word) - 1 for word in words], np.int64)
    fewest = np.array([len(word) if is_unspaced(word) else 1 for word in words], np.int64)
    cuts = np.where(unknown > 0, joints, np.clip(tokens - fewest, 0, joints))
    return np.stack([tokens, unknown, joints, cuts], axis=1)
