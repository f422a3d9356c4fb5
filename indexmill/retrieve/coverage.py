"""The share of a question that the entities it names explain.

A graph of entities covers a question to the extent that the question's words are names in it, and that these names are
rare: "Who funded the Marrow Bridge?" is well covered if few documents mention the bridge; "Which message is sent when a
window is resized?" is hardly covered if half of the corpus mentions windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from indexmill.retrieve.linking import Links
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.term_index import question_terms
from indexmill.text.terms import Analyser


def coverage(questions: Sequence[str], linked: Sequence[Links], rarity: Callable[[Rows], Scores]) -> Scores:
    """Return the share ``(n_questions,)``, 0 to 1, of each question's terms that occur in names of linked entities.

    linked: the entities of each question (LinearRAG, eq. 3). rarity: the weight of entities, 1 for an entity that a
    single document mentions. A term's weight is the rarity times the similarity of the best linked entity whose name
    contains it; common words do not count. If no linked name shares a term with the question, which then refers to the
    entity in other words, the best entity counts as one term.
    """
    shares = np.zeros(len(questions))
    owners = [i for i, links in enumerate(linked) for _ in links]
    if not owners:
        return shares
    weights = rarity(np.array([link.entity for links in linked for link in links], dtype=np.int64)).tolist()
    names = Analyser()
    terms_of = [set(terms) for terms in question_terms(questions)]
    weighed: list[dict[str, float]] = [{} for _ in questions]
    beside = [0.0] * len(questions)
    links = (link for links in linked for link in links)
    for i, link, weight in zip(owners, links, weights, strict=True):
        of_question = weighed[i]
        beside[i] = max(beside[i], weight * link.score)
        for term in terms_of[i].intersection(names.terms(link.name)):
            of_question[term] = max(of_question.get(term, 0.0), weight * link.score)
    for i, of_question in enumerate(weighed):
        inside = sum(of_question[term] for term in sorted(of_question))
        shares[i] = min((inside or beside[i]) / max(len(terms_of[i]), 1), 1.0)
    return shares
