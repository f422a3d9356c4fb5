"""Linking: the entities that a question names (LinearRAG, eq. 3), by its words or by the nearest name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexmill.models.recogniser import LONGEST_NAME, question_names, question_runs, question_words
from indexmill.retrieve.base import Encode, QueryBatch, Vectors
from indexmill.retrieve.dense import nearest
from indexmill.text.names import NameIndex

if TYPE_CHECKING:
    from indexmill.text.name_filter import NameFilter

__all__ = [
    "FILTERED",
    "Link",
    "Links",
    "link_columns",
    "link_known",
    "link_named",
    "link_nearest",
    "links_of",
    "mentioned",
]

Rows = npt.NDArray[np.int64]

FILTERED = 4
"""Fewest questions whose runs of words are filtered before they are looked up: for fewer it saves nothing."""

_TILE = 128
"""Questions whose runs of words are filtered together."""


@dataclass(frozen=True, slots=True)
class Link:
    """An entity that the question names [E_q]: its row, the matched canonical name, and the similarity of eq. 3."""

    entity: int
    name: str
    score: float


Links = tuple[Link, ...]
"""The entities that one question names, ascending by row."""


def link_columns(linked: Sequence[Links]) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """The links of some questions as columns: the question, the entity and the score of each."""
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
    """The entities that each of the questions names, by its words and by the nearest name: found once for all methods.

    See ``link_known``, ``link_named`` and ``link_nearest``. Methods of one snapshot have the same names and entities.
    """
    key = f"links at {least}"
    if key not in asked.shared:
        linked = link_known(asked.questions, names, counts)
        if asked.names:
            linked = link_named(asked.names, linked, names, counts)
        if asked.encode is not None and vectors:
            linked = link_nearest(asked.questions, linked, asked.encode, vectors, rows, least, asked.names)
        asked.shared[key] = linked
    found: list[Links] = asked.shared[key]
    return found


def link_known(
    questions: Sequence[str], names: NameIndex, counts: Callable[[Rows], npt.NDArray[np.bool_]]
) -> list[Links]:
    """The entities whose canonical names stand in each question, the longest names first.

    counts: which rows of ``names`` are entities of the graph. All names of a batch are looked up at once. One common
    word is no name, even where some work is called by it.
    """
    likely = names.likely() if len(questions) >= FILTERED else None
    if likely is None:
        runs = [[run for run in question_runs(question) if run[3] or run[2] - run[1] > 1] for question in questions]
    else:
        tiles = (questions[first : first + _TILE] for first in range(0, len(questions), _TILE))
        runs = [of_one for tile in tiles for of_one in _likely_runs(tile, likely)]
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


def mentioned(asked: QueryBatch, names: NameIndex) -> list[list[str]]:
    """The canonical names that each question mentions, whether or not an entity has them.

    Those of entities that stand in it, those that the rules recognise in it, and those that it is known to mention.
    """
    linked = link_known(asked.questions, names, lambda rows: np.ones(len(rows), dtype=np.bool_))
    return [
        list(dict.fromkeys([*(link.name for link in links), *question_names(question), *told]))
        for question, links, told in zip(
            asked.questions, linked, asked.names or [()] * len(asked.questions), strict=True
        )
    ]


def _likely_runs(questions: Sequence[str], likely: NameFilter) -> list[list[tuple[str, int, int, bool]]]:
    """What ``question_runs`` gives of each question, without most of what is no name: words of all in one column."""
    read = [question_words(question) for question in questions]
    words = [word for of_one, _, _ in read for word in of_one]
    joined = " ".join(words)
    text = joined.encode("utf-8", "surrogatepass")
    plain = len(text) == len(joined)
    lengths = np.array([len(word if plain else word.encode("utf-8", "surrogatepass")) for word in words], np.int64)
    begins = (lengths + 1).cumsum() - lengths - 1
    telling, capitals = (
        np.cumsum([0, *(one for of_one in read for one in of_one[column])], dtype=np.int64) for column in (1, 2)
    )
    counts = np.array([len(of_one) for of_one, _, _ in read], np.int64)
    last = counts.cumsum()
    article = np.array([word == "the" for word in words], np.bool_)
    # Every run of so many words from each word on, the longest of a question first, then from left to right.
    starts = np.arange(len(words))[:, None]
    ends = starts + np.arange(LONGEST_NAME, 0, -1)
    inside = (ends <= last.repeat(counts)[:, None]) & ~article[:, None]
    at, column = inside.nonzero()
    start, end = at, ends[at, column]
    capital = capitals[end] > capitals[start]
    named = (telling[end] > telling[start]) & (capital | (end - start > 1))  # one common word is no name
    start, end, capital = start[named], end[named], capital[named]
    named = likely.likely(np.frombuffer(text, np.uint8), begins[start], begins[end - 1] + lengths[end - 1])
    start, end, capital = start[named], end[named], capital[named]
    asking = last.searchsorted(start, side="right")
    order = np.lexsort((start, start - end, asking))
    start, end, asking = start[order], end[order], asking[order]
    first = (last - counts)[asking]
    found = [
        (joined[begin:upto] if plain else text[begin:upto].decode("utf-8", "surrogatepass"), *place)
        for begin, upto, *place in zip(
            begins[start].tolist(),
            (begins[end - 1] + lengths[end - 1]).tolist(),
            (start - first).tolist(),
            (end - first).tolist(),
            capital[order].tolist(),
            strict=True,
        )
    ]
    cuts = asking.searchsorted(np.arange(len(read) + 1)).tolist()
    return [found[begin:upto] for begin, upto in pairwise(cuts)]


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
) -> list[Links]:
    """Add to the links of each question its unknown names, by the nearest name vector.

    vectors: ``(n, d) float32`` arrays of the names of the entities ``rows`` (None: of all). least: a name whose nearest
    vector is less similar counts for nothing. named: canonical names of each question, beside those that the rules
    recognise in it.
    """
    unknown = []
    for question, links, told in zip(questions, linked, named or [()] * len(questions), strict=True):
        known = {word for link in links for word in link.name.split()}
        split = [(name, name.split()) for name in dict.fromkeys([*question_names(question), *told])]
        unknown.append([name for name, words in split if 2 * sum(word in known for word in words) <= len(words)])
    wanted = sorted({name for names in unknown for name in names})
    if not wanted:
        return list(linked)
    entity: dict[str, Link] = {}
    for name, (found, similarities) in zip(wanted, nearest(vectors, encode(wanted), 1), strict=True):
        if len(found) and similarities[0] >= least:
            row = int(found[0] if rows is None else rows[found[0]])
            entity[name] = Link(row, name, min(float(similarities[0]), 1.0))
    extended = []
    for links, names in zip(linked, unknown, strict=True):
        more = sorted((entity[name] for name in names if name in entity), key=lambda link: (-link.score, link.name))
        first = {link.entity: link for link in [*more[::-1], *links]}  # of one entity the exact link, then the best
        extended.append(tuple(first[row] for row in sorted(first)))
    return extended
