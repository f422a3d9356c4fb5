"""Linking: the entities that a question names (LinearRAG, eq. 3), by its words or by the nearest name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from indexmill.models.recogniser import question_names, question_runs
from indexmill.retrieve.base import Encode, QueryBatch, Vectors
from indexmill.retrieve.dense import nearest
from indexmill.telemetry import stage
from indexmill.text.names import NameIndex

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
    """The links of several questions as columns: questions, entities and scores."""
    every = [link for links in linked for link in links]
    questions = np.arange(len(linked)).repeat([len(links) for links in linked])
    return questions, np.array([one.entity for one in every], np.int64), np.array([one.score for one in every], float)


def links_of(
    asked: QueryBatch,
    names: NameIndex,
    counts: Callable[[Rows], npt.NDArray[np.bool_]],
    vectors: Sequence[Vectors],
    rows: npt.NDArray[np.integer] | None,
    least: float,
) -> list[Links]:
    """The entities that each question names, by its words and by the nearest name, cached for all methods.

    counts: True for the rows of ``names`` that questions may be linked to. See ``link_known``, ``link_named`` and
    ``link_nearest``. Methods of one snapshot have the same names and entities.
    """
    key = f"links at {least}"
    if key not in asked.shared:
        with stage("link"):
            linked = link_known(asked.questions, names, counts)
            if asked.names:
                linked = link_named(asked.names, linked, names, counts)
            if asked.encode is not None and vectors:
                linked = link_nearest(
                    asked.questions,
                    linked,
                    asked.encode,
                    vectors,
                    rows,
                    least,
                    asked.names,
                    counts=None if asked.allowed is None else counts,
                )
            asked.shared[key] = linked
    found: list[Links] = asked.shared[key]
    return found


def link_known(
    questions: Sequence[str], names: NameIndex, counts: Callable[[Rows], npt.NDArray[np.bool_]]
) -> list[Links]:
    """The entities whose canonical names stand in each question, the longest names first.

    counts: True for the rows of ``names`` that are entities of the graph. All names of a batch are looked up at once. A
    single common word is not a name, even if some work has it as its title.
    """
    runs = [[run for run in question_runs(question) if run[3] or run[2] - run[1] > 1] for question in questions]
    rows = names.find([run[0] for of_one in runs for run in of_one])
    (known,) = (rows >= 0).nonzero()
    known = known[counts(rows[known])]
    row_of = dict(zip(known.tolist(), rows[known].tolist(), strict=True))
    linked = []
    first = 0
    cuts = known.searchsorted(list(accumulate(map(len, runs), initial=0))).tolist()
    places = list(row_of)
    for of_one, begin, upto in zip(runs, cuts[:-1], cuts[1:], strict=True):
        covered: set[int] = set()
        links: dict[int, Link] = {}
        for place in places[begin:upto]:
            name, start, end, _ = of_one[place - first]
            if covered.isdisjoint(range(start, end)):
                covered.update(range(start, end))
                links[row_of[place]] = Link(row_of[place], name, 1.0)
        linked.append(tuple(links[row] for row in sorted(links)))
        first += len(of_one)
    return linked


def mentioned(
    asked: QueryBatch, names: NameIndex, counts: Callable[[Rows], npt.NDArray[np.bool_]] | None = None
) -> list[list[str]]:
    """The canonical names that each question mentions, whether or not an entity has them.

    These are names of entities in its text, names that the rules recognise, and names that it is known to mention.
    counts: True for the rows of ``names`` that questions may be linked to; None for all.
    """
    linked = link_known(asked.questions, names, counts or (lambda rows: np.ones(len(rows), dtype=np.bool_)))
    return [
        list(dict.fromkeys([*(link.name for link in links), *question_names(question), *told]))
        for question, links, told in zip(
            asked.questions, linked, asked.names or [()] * len(asked.questions), strict=True
        )
    ]


def link_named(
    named: Sequence[Sequence[str]],
    linked: Sequence[Links],
    names: NameIndex,
    counts: Callable[[Rows], npt.NDArray[np.bool_]],
) -> list[Links]:
    """Add to the links of each question the entities of the canonical names that it is known to mention."""
    extended = []
    for of_one, links in zip(named, linked, strict=True):
        rows = names.find(of_one)
        (known,) = (rows >= 0).nonzero()
        known = known[counts(rows[known])]
        found = {link.entity: link for link in links}
        for place, row in zip(known.tolist(), rows[known].tolist(), strict=True):
            found.setdefault(row, Link(row, of_one[place], 1.0))
        extended.append(tuple(found[row] for row in sorted(found)))
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

    vectors: ``(n, d) float32`` arrays of the names of the entities ``rows`` (None: of all). least: the minimum
    similarity of a nearest name. named: canonical names of each question, beside those that the rules recognise.
    counts: True for the rows that may be linked; None for all.
    """
    unknown = []
    for question, links, told in zip(questions, linked, named or [()] * len(questions), strict=True):
        known = {word for link in links for word in link.name.split()}
        split = [(name, name.split()) for name in dict.fromkeys([*question_names(question), *told])]
        unknown.append([name for name, words in split if 2 * sum(word in known for word in words) <= len(words)])
    wanted = sorted({name for names in unknown for name in names})
    if not wanted:
        return list(linked)
    allowed = None
    if counts is not None:
        allowed = counts(np.arange(sum(map(len, vectors))) if rows is None else rows.astype(np.int64))
    entity: dict[str, Link] = {}
    for name, (found, similarities) in zip(wanted, nearest(vectors, encode(wanted), 1, allowed), strict=True):
        if len(found) and similarities[0] >= least:
            row = int(found[0] if rows is None else rows[found[0]])
            entity[name] = Link(row, name, min(float(similarities[0]), 1.0))
    extended = []
    for links, names in zip(linked, unknown, strict=True):
        more = sorted((entity[name] for name in names if name in entity), key=lambda link: (-link.score, link.name))
        first = {link.entity: link for link in [*more[::-1], *links]}  # per entity the exact link, else the best
        extended.append(tuple(first[row] for row in sorted(first)))
    return extended
