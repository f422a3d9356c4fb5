"""The first hits of each question in the order of a reranker (``indexmill.models.reranker``).

Only passages are reranked. A hit of another kind, such as a summary, keeps its place: how many of each kind a
question is given is the method's to say, and a reranker has learned to compare passages. So the passages among the
first ``depth`` hits are dealt out anew to the places that passages had. What stands behind them stays as it is.

A passage's score is then the reranker's, and its explanation says under ``rerank`` which place and score it had. Scores
of passages that were reranked compare with each other alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.reranker import Reranker

__all__ = ["reranked"]


def reranked(
    reranker: Reranker, questions: Sequence[str], found: Sequence[Sequence[Hit]], depth: int, explain: bool = True
) -> list[list[Hit]]:
    """The hits of each question, the passages of the first ``depth`` in the reranker's order, ties as they stood.

    Raises BadInput where the reranker does not give one finite score for each text, and what it raises itself.
    """
    return [
        _reranked(reranker, question, hits, depth, explain) for question, hits in zip(questions, found, strict=True)
    ]


def _reranked(reranker: Reranker, question: str, hits: Sequence[Hit], depth: int, explain: bool) -> list[Hit]:
    places = [place for place, hit in enumerate(hits[:depth]) if hit.kind == "passage"]
    if not places:
        return list(hits)
    scores = np.asarray(reranker.scores(question, [_text_of(hits[place]) for place in places]), dtype=np.float64)
    if scores.shape != (len(places),) or not np.isfinite(scores).all():
        raise BadInput(f"rerank= gave scores of the shape {scores.shape}; expected {len(places)} finite numbers")
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
    """What the reranker reads of a hit: its title, if it has one, and its text."""
    title = hit.title.strip()
    return f"{title}\n{hit.text}" if title else hit.text
