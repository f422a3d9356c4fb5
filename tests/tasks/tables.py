"""Tables of documents, passages and sentences as stages read them, small enough to be worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from schemas.tables import DOCUMENTS, PASSAGES, SENTENCES
from tasks.text.sentences import sentence_spans


def documents(*rows: tuple[str, str, str]) -> pa.Table:
    """The documents of some ids, titles and texts."""
    rest = {"metadata": "{}", "content_hash": "0" * 64}
    named = [dict(zip(("document_id", "title", "text"), row, strict=True)) for row in rows]
    return pa.Table.from_pylist([row | rest for row in named], DOCUMENTS)


def passages_and_sentences(documents: pa.Table, *cuts: int) -> tuple[pa.Table, pa.Table]:
    """The passages p0, p1 and so on of some documents, whose texts are cut at some offsets, and their sentences."""
    passages = [
        {
            "document_id": row["document_id"],
            "ordinal": ordinal,
            "start": start,
            "end": end,
            "tokens": 1,
            "section": "",
            "language": "en",
        }
        | {"text": row["text"][start:end]}
        for row in documents.to_pylist()
        for ordinal, (start, end) in enumerate(pairwise([0, *cuts, len(row["text"])]))
    ]
    for number, passage in enumerate(passages):
        passage["passage_id"] = f"p{number}"
    sentences = [
        {"passage_id": passage["passage_id"], "ordinal": ordinal, "start": start, "end": end}
        for passage in passages
        for ordinal, (start, end) in enumerate(sentence_spans(passage["text"]))
    ]
    return pa.Table.from_pylist(passages, PASSAGES), pa.Table.from_pylist(sentences, SENTENCES)
