"""Link questions to the entities that they name (LinearRAG, eq. 3), by their words or by the nearest name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from indexmill.models.recogniser import question_names, question_runs
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.retrieval_method import Allowed, Encode, QueryBatch, Vectors
from indexmill.telemetry import stage
from indexmill.text.canonical_names import NameIndex

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Link:
    """An entity that the question names [E_q]: its row, the matched canonical name, and the similarity of eq. 3."""

    entity: int
    name: str
    score: float


Links = tuple[Link, ...]
"""The entities that one question names, ascending by row."""


def link_columns(linked: Sequence[Links]) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Convert the links of several questions to columns: questions, entities and scores."""
    every = [link for links in linked for link in links]
    questions = np.arange(len(linked)).repeat([len(links) for links in linked])
    return (
        questions,
        np.array([link.entity for link in every], np.int64),
        np.array([link.score for link in every], float),
    )


def links_of(
    batch: QueryBatch,
    names: NameIndex,
    contained_in: Sparse,
    within: Allowed | None,
    vectors: Sequence[Vectors],
    rows: npt.NDArray[np.integer] | None,
    least: float,
) -> list[Links]:
    """Link each question to the entities that it names, by its words or the nearest name; cached for all methods.

    contained_in: entities x passages, or x documents; an entity in none of them, such as a date, is not linked. within:
    a mask of these passages or documents; None for all. See ``link_known``, ``link_named`` and ``link_nearest``. The
    cache key is only ``least``, since all methods of a snapshot share names and entities.
    """
    key = f"links at {least}"
    if key not in batch.shared:
        named = None if within is None else contained_in.counts_of(within) > 0

        def counts(rows: Rows) -> npt.NDArray[np.bool_]:
            return contained_in.degrees(rows) > 0 if named is None else named[rows]

        with stage("link"):
            linked = link_known(batch.questions, names, counts)
            if batch.names:
                linked = link_named(batch.names, linked, names, counts)
            if batch.encode is not None and vectors:
                linked = link_nearest(
                    batch.questions,
                    linked,
                    batch.encode,
                    vectors,
                    rows,
                    least,
                    batch.names,
                    counts=None if batch.allowed is None else counts,
                )
            batch.shared[key] = linked
    links: list[Links] = batch.shared[key]
    return links


def link_known(
    questions: Sequence[str], names: NameIndex, counts: Callable[[Rows], npt.NDArray[np.bool_]]
) -> list[Links]:
    """Link each question to the entities whose canonical names occur in it, the longest names first.

    counts: returns True for the rows of ``names`` that are entities of the graph. All names of a batch are looked up
    together. A single word without ``capital`` (see ``question_runs``) is not a name, even if it is the title of some
    work.
    """
    runs = [[run for run in question_runs(question) if run[3] or run[2] - run[1] > 1] for question in questions]
    rows = names.find([run[0] for of_question in runs for run in of_question])
    (matches,) = (rows >= 0).nonzero()
    matches = matches[counts(rows[matches])]
    row_of = dict(zip(matches.tolist(), rows[matches].tolist(), strict=True))
    linked = []
    first = 0
    cuts = matches.searchsorted(list(accumulate(map(len, runs), initial=0))).tolist()
    places = list(row_of)
    for of_question, begin, upto in zip(runs, cuts[:-1], cuts[1:], strict=True):
        covered: set[int] = set()
        links: dict[int, Link] = {}
        for place in places[begin:upto]:
            name, start, end, _ = of_question[place - first]
            if covered.isdisjoint(range(start, end)):
                covered.update(range(start, end))
                links[row_of[place]] = Link(row_of[place], name, 1.0)
        linked.append(tuple(links[row] for row in sorted(links)))
        first += len(of_question)
    return linked


def mentioned(
    batch: QueryBatch, names: NameIndex, counts: Callable[[Rows], npt.NDArray[np.bool_]] | None = None
) -> list[list[str]]:
    """Return the canonical names that each question mentions, whether or not they belong to entities.

    These are the names of entities in the question, names that the rules recognise, and the names passed with it.
    counts: returns True for the rows of ``names`` that questions may be linked to; None for all.
    """
    linked = link_known(batch.questions, names, counts or (lambda rows: np.ones(len(rows), dtype=np.bool_)))
    return [
        list(dict.fromkeys([*(link.name for link in links), *question_names(question), *named]))
        for question, links, named in zip(
            batch.questions, linked, batch.names or [()] * len(batch.questions), strict=True
        )
    ]


def link_named(
    named: Sequence[Sequence[str]],
    linked: Sequence[Links],
    names: NameIndex,
    counts: Callable[[Rows], npt.NDArray[np.bool_]],
) -> list[Links]:
    """Add to the links of each question the entities of the canonical names passed with it."""
    extended = []
    for of_question, links in zip(named, linked, strict=True):
        rows = names.find(of_question)
        (matches,) = (rows >= 0).nonzero()
        matches = matches[counts(rows[matches])]
        by_entity = {link.entity: link for link in links}
        for place, row in zip(matches.tolist(), rows[matches].tolist(), strict=True):
            by_entity.setdefault(row, Link(row, of_question[place], 1.0))
        extended.append(tuple(by_entity[row] for row in sorted(by_entity)))
    return extended


def link_nearest(
    questions: Sequence[str],
    linked: Sequence[Links],
    encode: Encode,
    vectors: Sequence[Vectors],
    rows: npt.NDArray[np.integer] | None,
    least: float,
    named: Sequence[Sequence[str]] = (),
    counts: Callable[[Rows], npt.NDArray[np.bool_]] | None = None,
) -> list[Links]:
    """Add to the links of each question the entities whose name vectors are nearest to its unknown names.

    vectors: ``(n, d) float32`` arrays with the vectors of entity names. rows: the entity of each vector; None if the
    vectors cover all entities in order. least: the minimum similarity of a nearest name. named: canonical names of each
    question, besides those that the rules recognise. counts: tells which rows may be linked; None for all.
    """
    unknown = []
    for question, links, given_names in zip(questions, linked, named or [()] * len(questions), strict=True):
        linked_words = {word for link in links for word in link.name.split()}
        split = [(name, name.split()) for name in dict.fromkeys([*question_names(question), *given_names])]
        unknown.append([name for name, words in split if 2 * sum(word in linked_words for word in words) <= len(words)])
    distinct = sorted({name for names in unknown for name in names})
    if not distinct:
        return list(linked)
    allowed = None
    if counts is not None:
        allowed = counts(np.arange(sum(map(len, vectors))) if rows is None else rows.astype(np.int64))
    entity: dict[str, Link] = {}
    for name, (neighbours, similarities) in zip(distinct, nearest(vectors, encode(distinct), 1, allowed), strict=True):
        if len(neighbours) and similarities[0] >= least:
            row = int(neighbours[0] if rows is None else rows[neighbours[0]])
            entity[name] = Link(row, name, min(float(similarities[0]), 1.0))
    extended = []
    for links, names in zip(linked, unknown, strict=True):
        more = sorted((entity[name] for name in names if name in entity), key=lambda link: (-link.score, link.name))
        first = {link.entity: link for link in [*more[::-1], *links]}  # per entity the exact link, else the best
        extended.append(tuple(first[row] for row in sorted(first)))
    return extended
