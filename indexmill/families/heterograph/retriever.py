"""The retriever of heterograph: finds entries, walks the graph, and returns hits of five kinds (NodeRAG, 2.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.heterograph.entries import WeightedEntries, name_entries, rescored, weighted_entries
from indexmill.families.heterograph.explanations import Through, through
from indexmill.families.heterograph.nodes import SHOWN, heterograph_of
from indexmill.families.heterograph.parameters import HeterographParameters
from indexmill.families.heterograph.search import Entries, PageRankNodes, WalkSteps, within_budget
from indexmill.hits import Hit
from indexmill.retrieve import retrieval_method
from indexmill.retrieve.columns import paired, positions, reciprocal_ranks
from indexmill.retrieve.linking import mentioned
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.method_registry import words_of
from indexmill.retrieve.passage_vectors import PassageVectors, passage_vectors_of
from indexmill.retrieve.retrieval_method import (
    Allowed,
    Explanations,
    PassageRetriever,
    QueryBatch,
    Ranking,
    parameters_of,
)
from indexmill.retrieve.term_index import by_words

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_CONSTANT = 5.0  # the constant of the reciprocal rank fusion of lexical and dense texts

_TOGETHER = 32
"""The number of questions whose bridges are searched at once: the links of all their entities are in memory."""

_EXPLAINED = 5  # the maximum number of nodes under ``through`` in a hit's explanation


@dataclass(frozen=True)
class _EntryPoints:
    """Where each question enters the graph.

    names: canonical names of each question. near: rows of the nearest nodes; cosines: parallel to near. starts: the
    entries of each question, found by name and by vector. weighted: the same entries with weights; empty for ``paper``.
    allowed, names_allowed: masks of the nodes, and of the names and overviews, that take part. readable: a mask of the
    passages that the user may read. showable: a mask of the nodes that the user may see. In these four masks, None
    stands for all.
    """

    names: Sequence[Sequence[str]]
    near: Sequence[Rows]
    cosines: Sequence[Scores]
    starts: Sequence[Entries]
    weighted: Sequence[WeightedEntries]
    allowed: Allowed | None
    names_allowed: Allowed | None
    readable: Allowed | None
    showable: Allowed | None


class _NodeList(NamedTuple):
    """The nodes of question ``number``, best first. cosines: NaN except for texts found only by their cosine."""

    number: int
    rows: Rows
    scores: Scores
    entries: npt.NDArray[np.bool_]
    cosines: Scores

    def at(self, places: Sequence[int]) -> _NodeList:
        chosen = np.array(places, dtype=np.int64)
        return _NodeList._make((self.number, *(column[chosen] for column in self[1:])))


def _columns(lists: Sequence[tuple[Rows, Scores]]) -> tuple[list[Rows], list[Scores]]:
    return [rows for rows, _ in lists], [values for _, values in lists]


def _steps(setting: HeterographParameters, entered: _EntryPoints) -> WalkSteps:
    return WalkSteps(setting.restart, setting.steps, entered.allowed, by_kind=setting.preset == "ours")


class HeterographReader(PassageRetriever):
    """Texts, units, attributes, high-level elements and relations as one list, by the score of the walk.

    Texts that the walk does not reach follow by their similarity (``passage_vectors``). Their score is the similarity
    minus the maximum similarity, so it is never above the score of a node that the walk reaches; if the walk reaches
    nothing, their score is the similarity.

    The explanation of a hit is ``{"entry", "through", "passages"}``. ``entry``: whether the question enters at the
    node. ``through``: the nodes that the walk came through, the largest contribution first, each with the amount
    ``added`` to the score of the walk, and with the ``name`` or the ``cosine`` by which the question enters there, or
    the text of the unit that is the ``bridge`` to it. ``passages``: the ids of the passages that the hit comes from. An
    entry, and a text found by its cosine, also has ``"cosine"``; ``"stand_in": true`` marks a text that the language
    model did not write.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._setting = parameters_of(artifacts, "heterograph", HeterographParameters)
        self._nodes = heterograph_of(artifacts)
        self._graph = self._nodes.graph
        self._vectors = passage_vectors_of(artifacts)
        self._index = words_of(artifacts)

    def reads(self, k: int) -> int:
        """Return at least ``near_texts``: see ``PassageRetriever``."""
        most: int = self._setting.near_texts
        return max(k, most)

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank texts by the score of the walk, then by their cosine: see ``PassageRetriever``."""
        texts_alone = replace(self._setting, texts=k, units=0, attributes=0, high_level=0, relations=0)
        entered = self._enter(batch)
        upto = int(self._graph.offsets[1])
        for number, reached in enumerate(self._walked(entered, texts_alone)):
            is_text = reached.rows < upto
            walked = PageRankNodes(reached.rows[is_text], reached.scores[is_text], reached.entries[is_text])
            listed = self._filled(batch, number, walked, k, k)
            yield Ranking(self._nodes.passages_of(listed.rows), listed.scores, answer=(entered, listed))

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[Explanations]:
        """Explain texts by the nodes that the walk came through: see ``PassageRetriever``."""
        if not rankings:
            return []
        entered: _EntryPoints = rankings[0].answer[0]
        lists = [ranking.answer[1].at(chosen) for ranking, chosen in zip(rankings, positions, strict=True)]
        return list(self._explain(entered, lists))

    def search(self, batch: QueryBatch, k: int) -> list[list[Hit]]:
        """Find nodes of all five kinds: see ``Retriever``. A token budget may leave fewer than k hits."""
        most = k if self._setting.texts is None else min(k, self._setting.texts)
        entered = self._enter(batch)
        listed = (
            self._within_budget(self._filled(batch, number, walked, most, k), batch.readable)
            for number, walked in enumerate(self._walked(entered, replace(self._setting, texts=most)))
        )
        hits = []
        explanations: Iterator[Explanations]
        while tile := list(islice(listed, retrieval_method.EXPLAINED_TOGETHER)):
            explanations = self._explain(entered, tile) if batch.explain else repeat(None, len(tile))
            for nodes, reasons in zip(tile, explanations, strict=True):
                hits.append(self._nodes.hits(nodes.rows, nodes.scores, reasons, batch.allowed, batch.readable))
        return hits

    def _enter(self, batch: QueryBatch) -> _EntryPoints:
        """Find the entries of all questions (dual search)."""
        setting, first = self._setting, self._graph.rows("N").start
        allowed = None if batch.allowed is None else self._graph.allowed(batch.allowed)
        enterable = None if allowed is None else allowed[self._graph.rows("N", "O")]
        showable = None
        if allowed is not None and batch.readable is not None:
            showable = self._nodes.showable(allowed, batch.readable)
        limits = (allowed, enterable, batch.readable, showable)
        names = mentioned(batch, self._nodes.names, None if enterable is None else lambda rows: enterable[rows])
        near = self._nodes.nearest(batch.vectors, setting.entries, allowed)
        if setting.preset == "paper":
            named = [rows + first for rows in self._nodes.words.find_all(names, setting.names, enterable)]
            starts = self._graph.starts(named, [rows for rows, _ in near], allowed)
            return _EntryPoints(names, *_columns(near), starts, (), *limits)
        of_names = name_entries(self._nodes, names, setting.names, enterable)
        texts, entries = self._texts(batch), list[WeightedEntries]()
        for at in range(0, len(near), _TOGETHER):
            tile, named_here = slice(at, at + _TOGETHER), of_names.of(at, at + _TOGETHER)
            vectors = batch.vectors[tile]
            entries += weighted_entries(self._nodes, vectors, named_here, near[tile], texts[tile], setting, allowed)
        return _EntryPoints(names, *_columns(near), [question.entries for question in entries], entries, *limits)

    @property
    def _near(self) -> PassageVectors:
        """The passage vectors to search: without titles for ``paper``, which does not use them."""
        return self._vectors.untitled if self._setting.preset == "paper" else self._vectors

    def _texts(self, batch: QueryBatch) -> list[Rows]:
        """Return the best texts for each question by words and by vectors, fused by reciprocal rank."""
        most = self._setting.near_texts
        if not most:
            return [np.empty(0, dtype=np.int64)] * len(batch.questions)
        lists = [[rows] for rows, _ in self._near.nearest_to(batch, most)]
        if self._index is not None:
            for of_one, ranked in zip(lists, by_words(self._index, batch, most), strict=True):
                of_one.append(ranked.rows)
        return [self._nodes.of_passages(reciprocal_ranks(of_one, _CONSTANT)[:most]) for of_one in lists]

    def _walked(self, entered: _EntryPoints, setting: HeterographParameters) -> Iterator[PageRankNodes]:
        graph, starts = self._graph, entered.starts
        for first, scores in graph.tiles(starts, _steps(setting, entered)):
            span = slice(first, first + len(scores))
            if entered.weighted:
                scores = rescored(self._nodes, scores, entered.weighted[span], setting)
            for entries, of_one in zip(starts[span], scores, strict=True):
                yield graph.chosen(entries.rows, of_one, setting.most(), entered.showable)

    def _filled(self, batch: QueryBatch, number: int, walked: PageRankNodes, texts: int, k: int) -> _NodeList:
        """Return at most k nodes of a question: those of the walk, then the nearest texts up to ``texts`` texts."""
        rows, scores = walked.rows[:k], walked.scores[:k]
        missing = min(k - len(rows), texts - int(np.count_nonzero(rows < self._graph.offsets[1])))
        more, similar, cosines = np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
        if missing > 0:
            passages, values = self._near.nearest_to(batch, k)[number]
            near = self._nodes.of_passages(passages)
            (new,) = (~positions(near, np.sort(rows))[1]).nonzero()
            new = new[:missing]
            more, similar = near[new], values[new].astype(np.float64)
            pairs = paired(np.full(len(new), number), passages[new])
            cosines = self._near.cosines(batch.vectors, pairs).astype(np.float64)
        below = np.minimum(similar - self._near.most, 0) if len(rows) else similar
        return _NodeList(
            number,
            np.concatenate([rows, more]),
            np.concatenate([scores, below]),
            np.concatenate([walked.entries[:k], np.zeros(len(more), dtype=np.bool_)]),
            np.concatenate([np.full(len(rows), np.nan), cosines]),
        )

    def _within_budget(self, listed: _NodeList, readable: Allowed | None) -> _NodeList:
        """Keep the nodes that fit into the token budget, chosen best first; for ``paper``, entries are chosen first."""
        budget = self._setting.token_budget
        if budget is None:
            return listed
        tokens = (self._nodes.tokens(row, readable) for row in listed.rows.tolist())
        first = listed.entries if self._setting.preset == "paper" else np.zeros(len(listed.rows), dtype=np.bool_)
        return listed.at(
            within_budget(PageRankNodes(listed.rows, listed.scores, first), tokens, len(listed.rows), budget)
        )

    def _explain(self, entered: _EntryPoints, lists: Sequence[_NodeList]) -> Iterator[list[dict[str, Any]]]:
        starts, setting = [entered.starts[nodes.number] for nodes in lists], self._setting
        rows = [nodes.rows for nodes in lists]
        reached = through(self._graph, starts, rows, _steps(setting, entered), _EXPLAINED)
        for nodes, senders in zip(lists, reached, strict=True):
            yield self._explain_one(entered, nodes, senders)

    def _explain_one(self, entered: _EntryPoints, listed: _NodeList, senders: Through) -> list[dict[str, Any]]:
        by_name = self._by_name(entered, listed.number)
        bridges: dict[int, int] = {}
        if entered.weighted:
            question = entered.weighted[listed.number]
            bridges = dict(zip(question.bridged.tolist(), question.units.tolist(), strict=True))
        near, values = entered.near[listed.number], entered.cosines[listed.number]
        by_vector = dict(zip(near.tolist(), values.tolist(), strict=True))
        explanations: list[dict[str, Any]] = []
        entries = listed.entries.tolist()
        for row, entry, cosine in zip(listed.rows.tolist(), entries, listed.cosines.tolist(), strict=True):
            similarity = {"cosine": by_vector[row]} if entry else {} if np.isnan(cosine) else {"cosine": cosine}
            explanations.append({"entry": entry, **similarity, "through": []})
        sent = zip(senders.places.tolist(), senders.senders.tolist(), senders.amounts.tolist(), strict=True)
        kinds = self._graph.kinds(senders.senders)
        for (place, row, amount), kind in zip(sent, kinds, strict=True):
            if entered.showable is not None and not entered.showable[row]:
                continue
            named = self._nodes.label(row, entered.readable)
            description = {
                "kind": SHOWN[kind],
                "node_id": named.id,
                "title": named.text if kind in "SR" else named.title,
            }
            if row in by_name:
                description["name"] = by_name[row]
            if row in by_vector:
                description["cosine"] = by_vector[row]
            if row in bridges:
                description["bridge"] = self._nodes.label(bridges[row]).text
            explanations[place]["through"].append({**description, "added": amount})
        return explanations

    def _by_name(self, entered: _EntryPoints, number: int) -> dict[int, str]:
        """Return the first name of a question that each name or overview node contains, by row."""
        first, names_by_row = self._graph.rows("N").start, dict[int, str]()
        names = entered.names[number]
        every = self._nodes.words.find_each(names, self._setting.names, entered.names_allowed)
        for name, rows in zip(names, every, strict=True):
            for row in rows.tolist():
                names_by_row.setdefault(row + first, name)
        return names_by_row
