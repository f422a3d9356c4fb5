"""How much of a question the entities that it names explain.

A graph of entities knows what a question is about as far as the question's words are names in it, and as far as these
names single something out: "Who funded the Marrow Bridge?" is known where few documents mention the bridge, "Which
message is sent when a window is resized?" hardly, though half of the corpus mentions windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from indexmill.retrieve.bm25 import question_terms
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.question_links import Links
from indexmill.terms import Analyser

__all__ = ["coverage"]


def coverage(questions: Sequence[str], linked: Sequence[Links], rarity: Callable[[Rows], Scores]) -> Scores:
    """The share ``(n_questions,)`` of each question's terms that stand in names of linked entities, from 0 to 1.

    linked: the entities of each question (LinearRAG, eq. 3). rarity: how much some entities tell, 1 for one that a
    single document mentions. A term counts by the rarity and the similarity of the entity that tells most of those
    whose name holds it; common words do not count.
    """
    found = np.zeros(len(questions))
    owners = [i for i, links in enumerate(linked) for _ in links]
    if not owners:
        return found
    told = rarity(np.array([link.entity for links in linked for link in links], dtype=np.int64)).tolist()
    names = Analyser()
    wanted = [set(terms) for terms in question_terms(questions)]
    weighed: list[dict[str, float]] = [{} for _ in questions]
    links = (link for links in linked for link in links)
    for i, link, tells in zip(owners, links, told, strict=True):
        of_question = weighed[i]
        for term in wanted[i].intersection(names.terms(link.name)):
            of_question[term] = max(of_question.get(term, 0.0), tells * link.score)
    for i, of_question in enumerate(weighed):
        if of_question:
            found[i] = sum(of_question[term] for term in sorted(of_question)) / len(wanted[i])
    return found
