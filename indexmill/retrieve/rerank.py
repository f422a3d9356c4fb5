"""Rerank the first hits of each question (``indexmill.models.reranker``).

Only passages are reranked. A hit of another kind, such as a summary, keeps its position: the method decides how many
hits of each kind a question gets, and a reranker has learned to compare passages. So the passages among the first
``depth`` hits are permuted over the positions that passages had. Later hits stay unchanged.

A reranked passage has the reranker's score, and its explanation has the previous rank and score under ``rerank``.
Scores of reranked passages are comparable only with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.reranker import Reranker


def reranked(
    reranker: Reranker, questions: Sequence[str], hit_lists: Sequence[Sequence[Hit]], depth: int, explain: bool = True
) -> list[list[Hit]]:
    """Reorder each question's passages among its first ``depth`` hits by the reranker's scores; ties keep their order.

    Raises BadInput if the reranker does not return one finite score per text; its own errors pass through.
    """
    return [
        _reranked(reranker, question, hits, depth, explain) for question, hits in zip(questions, hit_lists, strict=True)
    ]


def _reranked(reranker: Reranker, question: str, hits: Sequence[Hit], depth: int, explain: bool) -> list[Hit]:
    places = [place for place, hit in enumerate(hits[:depth]) if hit.kind == "passage"]
    if not places:
        return list(hits)
    scores = np.asarray(reranker.scores(question, [_text_of(hits[place]) for place in places]), dtype=np.float64)
    if scores.shape != (len(places),) or not np.isfinite(scores).all():
        raise BadInput(f"rerank= returned scores of the shape {scores.shape}; expected {len(places)} finite numbers")
    order = np.argsort(-scores, kind="stable").tolist()
    ordered = list(hits)
    for place, chosen in zip(places, order, strict=True):
        hit, score = hits[places[chosen]], float(scores[chosen])
        ordered[place] = replace(hit, score=score)
        if explain:
            before = {"rank": places[chosen] + 1, "score": hit.score}
            ordered[place] = replace(hit, score=score, explanation={**(hit.explanation or {}), "rerank": before})
    return ordered


def _text_of(hit: Hit) -> str:
    """Return the text that the reranker reads: the hit's title, if any, and its text."""
    title = hit.title.strip()
    return f"{title}\n{hit.text}" if title else hit.text
