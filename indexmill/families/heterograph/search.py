"""A graph of nodes of seven kinds, and retrieval from it (NodeRAG, section 2.5).

    T  texts: the passages            R  relations between two entities
    S  units: statements of passages  N  names of entities
    A  attributes of entities         O  overviews: titles of high-level elements
    H  high-level elements

A question enters the graph (dual search) at the names and overviews that contain a name of the question, by words, and
at the units, attributes and high-level elements nearest to its vector. From the entries V a walk takes a few steps:

    pi(0) = p,   pi(t) = alpha p + (1 - alpha) P^T pi(t - 1),   p uniform over V

with P the adjacency matrix divided by the degrees of its rows; a node without links passes nothing on. The search
returns the nodes with the highest scores of each kind except names and overviews, which are never returned. It also
returns the entries that are units, attributes or high-level elements.

That is the paper's retrieval (``preset: paper``). By default entries have weights (`entries`), a node divides its score
equally among the kinds of its links, except for a larger share along links of subjects, and a text also gains the
scores of its units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import distinct, positions, sums
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse
from indexmill.retrieve.retrieval_method import Allowed

KINDS = ("T", "S", "A", "H", "R", "N", "O")
"""The kinds of nodes in the order of rows: the first four have vectors and the first five are retrieved; S, A and H are
entries by vector, N and O by name."""

EDGES = ("mention", "source", "target", "same_as", "attribute", "overview", "text", "match", "near", "subject")
"""The kinds of edges, in the order of counts; ``docs/families/heterograph.md`` describes their ends."""

_TILE = 1 << 18  # the number of scores of several questions in memory at once, 2 MiB: a larger tile is no faster

_LINKS = 1 << 20  # the maximum number of links in memory at once, about 40 MiB

_SUBJECT = EDGES.index("subject")  # not in the paper

_KIND_WEIGHTS = np.where(np.arange(len(EDGES)) == _SUBJECT, 4.0, 1.0)
"""The relative weight of each kind of links in the score that a node passes on."""


class Entries(NamedTuple):
    """The entries of one question: distinct rows, ascending, and their weights, which sum to 1 [p]."""

    rows: Rows
    shares: Scores

    @classmethod
    def alike(cls, rows: Rows) -> Entries:
        """Build entries of equal weight."""
        return cls(rows, np.full(len(rows), 1 / max(len(rows), 1)))


class WalkSteps(NamedTuple):
    """The settings of a walk. restart: alpha. steps: t. allowed: a mask of the nodes that take part; None for all.

    by_kind: True if a node divides its score among the kinds of its links, False if equally among its links.
    """

    restart: float
    steps: int
    allowed: Allowed | None = None
    by_kind: bool = False


class PageRankNodes(NamedTuple):
    """The nodes retrieved for one question: rows best first, ties by row, their scores, and a mask of entries."""

    rows: Rows
    scores: Scores
    entries: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Heterograph:
    """The graph over plain arrays, which may be memory maps.

    offsets: ``(8,)``, where the rows of each kind begin, and the number of all nodes. links: nodes x nodes, symmetric;
    each link is stored in both of its rows. passages: texts, units, attributes, high-level elements and relations x
    passages, the passages that each node comes from. edge_kinds: ``(n_links,) uint8``, the index in EDGES of each link.
    """

    offsets: Integers
    links: Sparse
    passages: Sparse
    edge_kinds: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.links)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, as stored in a pack."""
        return {
            "offsets": self.offsets,
            **self.links.arrays("links"),
            **self.passages.arrays("passages"),
            "links.kinds": self.edge_kinds,
        }

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Heterograph:
        """Load the graph from a pack's arrays; raises ValueError if they do not match each other."""
        links, passages = Sparse.of(arrays, "links"), Sparse.of(arrays, "passages")
        offsets, kinds = arrays["offsets"], arrays["links.kinds"]
        fits = len(offsets) == len(KINDS) + 1 and offsets[0] == 0 and offsets[-1] == len(links)
        fits = fits and bool((np.diff(offsets) >= 0).all()) and links.indptr[-1] == len(links.indices)
        if not fits or len(kinds) != len(links.indices) or len(passages) != offsets[5]:
            raise ValueError(f"a graph of {len(links)} nodes has kinds that begin at {offsets.tolist()}")
        return cls(offsets, links, passages, kinds)

    def rows(self, first: str, last: str | None = None) -> slice:
        """Return the rows of the kind ``first``, or of all kinds from ``first`` to ``last``."""
        return slice(int(self.offsets[KINDS.index(first)]), int(self.offsets[KINDS.index(last or first) + 1]))

    def kinds(self, rows: Rows) -> list[str]:
        """Return the kind of each row."""
        return [KINDS[kind] for kind in (self.offsets.searchsorted(rows, side="right") - 1).tolist()]

    def allowed(self, passages: Allowed) -> Allowed:
        """Return a mask of the nodes that take part if only some passages may: ``(n_nodes,)``.

        A text, a unit or a relation takes part if any of its passages is allowed. An attribute or a high-level element
        takes part if all of its source passages are allowed, since its text draws on them. An overview takes part with
        its element, and a name if it is linked to any of these.
        """
        mask = np.ones(len(self), dtype=np.bool_)
        allowed = self.passages.counts_of(passages)
        mask[: len(allowed)] = allowed > 0
        generated = self.rows("A", "H")
        mask[generated] = allowed[generated] == np.diff(self.passages.indptr)[generated]
        self._with_overviews(mask)
        names, links = self.rows("N"), self.links
        leads = mask.copy()
        leads[self.rows("N", "O")] = False
        bounds = links.indptr[names.start : names.stop + 1].astype(np.int64)
        inside = Sparse(bounds - bounds[0], links.indices[bounds[0] : bounds[-1]])
        mask[names] = inside.counts_of(leads) > 0
        return mask

    def showable(self, allowed: Allowed, plain: Allowed) -> Allowed:
        """Return a mask ``(n_nodes,)`` of the allowed nodes to show to a user who can read only some passages.

        plain: a mask of the readable passages whose names are spelled as the user may see them
        (``EntityLabels.plain``). The texts of attributes and high-level elements repeat these spellings.
        """
        mask, generated = allowed.copy(), self.rows("A", "H")
        mask[generated] &= self.passages.counts_of(~plain)[generated] == 0
        self._with_overviews(mask)
        return mask

    def _with_overviews(self, mask: Allowed) -> None:
        """Remove from a mask of nodes the overviews whose elements are not in it."""
        overviews = self.rows("O")
        rows = np.arange(overviews.start, overviews.stop)
        owners, elements, _ = self.links.links(rows)
        mask[rows[owners[~mask[elements]]]] = False

    def starts(self, named: Sequence[Rows], near: Sequence[Rows], allowed: Allowed | None = None) -> list[Entries]:
        """Weight the entries of each question equally.

        named, near: the rows of each question's entries by name and by vector. allowed: a mask of nodes; None for all.
        """
        starts = [
            np.unique(np.concatenate([by_name, by_vector])) for by_name, by_vector in zip(named, near, strict=True)
        ]
        if allowed is not None:
            starts = [rows[allowed[rows]] for rows in starts]
        return [Entries.alike(rows) for rows in starts]

    def tiles(self, starts: Sequence[Entries], how: WalkSteps) -> Iterator[tuple[int, Scores]]:
        """Yield the scores of ``walk`` for tiles of questions, each with the number of its first question."""
        together = max(1, _TILE // max(len(self), 1))
        for first in range(0, len(starts), together):
            yield first, self.walk(starts[first : first + together], how)

    def walk(self, starts: Sequence[Entries], how: WalkSteps) -> Scores:
        """Return the scores ``(n_questions, n_nodes)`` after ``how.steps`` steps from each question's entries."""
        size = len(self)
        counts = np.array([len(start.rows) for start in starts], dtype=np.int64)
        entries = np.concatenate([np.empty(0, dtype=np.int64), *(start.rows for start in starts)])
        entries += np.arange(len(starts)).repeat(counts) * size
        share = np.concatenate([np.empty(0), *(start.shares for start in starts)])
        scores = np.zeros(len(starts) * size)
        scores[entries] = share
        for _ in range(how.steps):
            (active,) = (scores > 0).nonzero()  # faster than nonzero() of floats
            scores = self._step(active, scores[active] * (1 - how.restart), len(scores), how)
            scores[entries] += how.restart * share
        return scores.reshape(len(starts), size)

    def _step(self, active: Rows, passed: Scores, cells: int, how: WalkSteps) -> Scores:
        """Compute the flow from ``active`` (question, node) cells into all cells. passed: the score each passes on.

        The flow into a cell is summed in the order of the source rows, whatever the block size.
        """
        rows = active % max(len(self), 1)
        scores = np.zeros(cells)
        cut = np.cumsum(self.links.degrees(rows)) // _LINKS
        edges = np.concatenate([[0], np.flatnonzero(np.diff(cut)) + 1, [len(rows)]])
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            owners, columns, kinds = self.links_of(rows[first:last], how)
            columns += (active[first:last] - rows[first:last])[owners]
            flow = (passed[first:last, None] * shares(owners, kinds, last - first)).take(_cells(owners, kinds))
            if len(edges) == 2:
                return sums(columns, flow, cells)
            np.add.at(scores, columns, flow)
        return scores

    def links_of(self, rows: Rows, how: WalkSteps) -> tuple[Rows, Rows, Integers | None]:
        """Return the links of some rows: positions in ``rows``, columns, and kinds (None unless ``how.by_kind``)."""
        owners, columns, places = self.links.links(rows)
        kinds = self.edge_kinds.take(places)
        mask = None if how.allowed is None else how.allowed[columns]
        if not how.by_kind:
            not_subject = kinds != _SUBJECT
            mask = not_subject if mask is None else mask & not_subject
        if mask is not None:
            owners, columns, kinds = owners[mask], columns[mask], kinds[mask]
        return owners, columns, kinds if how.by_kind else None

    def chosen(
        self, entries: Rows, scores: Scores, most: Sequence[int | None], showable: Allowed | None = None
    ) -> PageRankNodes:
        """Choose the nodes returned for one question: its entries of kinds S, A and H, and the best of each kind.

        Texts and relations are returned only for their scores. showable: a mask of the nodes that may be shown; None
        for all.
        """
        if showable is not None:
            entries, scores = entries[showable[entries]], np.where(showable, scores, 0.0)
        best = [entries[(entries >= self.offsets[1]) & (entries < self.offsets[4])]]
        for kind, count in zip(KINDS, most, strict=False):
            kind_rows = self.rows(kind)
            if count != 0:
                best.append(_best(scores[kind_rows], count) + kind_rows.start)
        rows = distinct(np.concatenate(best))
        values = scores[rows]
        order = (-values).argsort(kind="stable")
        rows = rows[order]
        return PageRankNodes(rows, values[order], positions(rows, entries)[1])


def shares(owners: Rows, kinds: Integers | None, count: int) -> Scores:
    """Compute the share of a node's score that goes along a link: ``(count, 1)``, or by kind ``(count, n_kinds)``.

    owners, kinds: the node and the kind of each link; if ``kinds`` is None, all links are alike. With kinds, a node
    divides its score equally among the kinds of its links, except that links of subjects get four times the share.
    """
    width = 1 if kinds is None else len(EDGES)
    counts = np.bincount(_cells(owners, kinds), minlength=count * width).reshape(count, width)
    along = 1.0 / np.maximum(counts, 1)
    if kinds is not None:
        weights = np.where(counts > 0, _KIND_WEIGHTS, 0.0)
        along *= weights / np.maximum(weights.sum(axis=1), 1.0)[:, None]
    fractions: Scores = along
    return fractions


def _cells(owners: Rows, kinds: Integers | None) -> Rows:
    """Return the flat indices of links into the table of ``shares``."""
    return owners if kinds is None else owners * len(EDGES) + kinds


def _best(scores: Scores, count: int | None) -> Rows:
    """Return the positions of the ``count`` highest scores above zero, ties by position; None returns all of them."""
    (places,) = (scores > 0).nonzero()
    if count is None:
        return places
    values = scores[places]
    if len(places) > count > 0:
        least = np.partition(values, -count)[-count]
        places, values = places[values >= least], values[values >= least]
    return places[np.lexsort((places, -values))[:count]]


def within_budget(nodes: PageRankNodes, tokens: Iterable[int], k: int, budget: int | None) -> list[int]:
    """Choose at most k of a question's nodes whose texts fit into a budget; return their positions in order.

    tokens: the number of tokens of each text. k and budget are spent on the entries, best first, then on the other
    nodes; a node that does not fit into the remaining budget is skipped, and the next is tried.
    """
    counts = list(tokens)
    places: list[int] = []
    remaining = math.inf if budget is None else budget
    for place in [*np.flatnonzero(nodes.entries).tolist(), *np.flatnonzero(~nodes.entries).tolist()]:
        if len(places) < k and counts[place] <= remaining:
            places.append(place)
            remaining -= counts[place]
    return sorted(places)
