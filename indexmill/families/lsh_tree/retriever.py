"""The retriever of lsh_tree: searches a snapshot's passages and summaries and returns hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.families.lsh_tree.leaves import Leaves
from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.families.lsh_tree.search import Nodes, candidates
from indexmill.families.lsh_tree.summaries import summaries_of, summary_vectors
from indexmill.hits import Hit
from indexmill.retrieve import base
from indexmill.retrieve.base import Allowed, PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.mention_links import MENTION_LINKS, sentence_starts
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.registry import words_of
from indexmill.retrieve.row_vectors import row_vectors
from indexmill.retrieve.rows import Rows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class LshTreeReader(PassageRetriever):
    """The nearest passages and summaries, as one flat set or by a pattern, within a token budget.

    ``Leaves`` selects and orders the passages; scores are cosines (of a passage's place: see ``Ordered``). The
    explanation of a summary is ``{"layer", "passages"}``, with the ids of the passages under it, and ``"stand_in":
    true`` if the language model did not write it. The explanation of a passage is ``{"layer": 0, "above"}``, with the
    ids of the summaries above it that may be shown, from the nearest to the root, and ``"second_round"``, the sentence
    used in the second round, if there was one.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._artifacts = artifacts
        self._setting = parameters_of(artifacts, "lsh_tree", LshTreeParameters)
        self._summaries = summaries_of(artifacts)
        self._tree = self._summaries.tree
        self._sentences = Rows(artifacts, "sentences", ["start", "end"])
        linked = bool(artifacts.shards(MENTION_LINKS))
        self._starts = sentence_starts(artifacts) if linked else _told_starts(artifacts)
        self._leaves = Leaves(
            passage_vectors_of(artifacts),
            row_vectors(artifacts, "sentences"),
            self._starts,
            self._texts,
            words_of(artifacts),
        )

    def reads(self, k: int) -> int:
        """At least ``pool``: see ``PassageRetriever``."""
        pool: int = self._setting.pool
        return max(k, pool)

    def rank(self, asked: QueryBatch, k: int) -> Iterator[Ranking]:
        """The passages in the order of two rounds: see ``Leaves``, and ``PassageRetriever``.

        The tree does not change the order: ranking by the nearness of the summaries above was measured to do harm.
        """
        return (Ranking(one.rows, one.scores) for one in self._leaves.rank(asked, k, self._setting))

    def search(self, asked: QueryBatch, k: int) -> list[list[Hit]]:
        """Passages and summaries of each question: see ``Retriever``. A token budget may leave fewer than k."""
        allowed = None if asked.allowed is None else self._tree.allowed_above(asked.allowed)
        first = self._tree.leaves
        summaries = None if allowed is None else allowed[first:]
        above = nearest(summary_vectors(self._artifacts), asked.vectors, k, summaries)
        ranked = zip(self._leaves.rank(asked, k, self._setting), above, strict=True)
        hits: list[list[Hit]] = []
        while tile := list(islice(ranked, base.EXPLAINED_TOGETHER)):
            found = []
            for passages, (rows, scores) in tile:
                nodes = candidates(Nodes(passages.rows, passages.scores), Nodes(rows + first, scores), k, self._setting)
                if self._setting.token_budget is not None:
                    places = fitting(self._tokens(nodes.rows), self._setting.token_budget)
                    nodes = Nodes(nodes.rows[places], nodes.scores[places])
                found.append(_in_order(nodes, first))
            hits += self._hits(found, allowed, [passages.sentence for passages, _ in tile] if asked.explain else None)
        return hits

    def _tokens(self, rows: npt.NDArray[np.int64]) -> list[int]:
        first = self._tree.leaves
        return [
            self.passages.tokens(row) if row < first else self._summaries.tokens(row - first) for row in rows.tolist()
        ]

    def _hits(
        self, nodes: Sequence[Nodes], allowed: Allowed | None, sentences: Sequence[int] | None
    ) -> list[list[Hit]]:
        """The nodes of some questions as hits. sentences: those of the second rounds; None for no explanations."""
        first = self._tree.leaves
        rows, scores = (np.concatenate(column) for column in zip(*nodes, strict=True))
        is_passage = rows < first
        reasons = None
        if sentences is not None:
            owners = np.arange(len(nodes)).repeat([len(one.rows) for one in nodes])[is_passage]
            led = self._second_rounds(sentences)
            above = self._above(rows[is_passage], allowed)
            reasons = [
                {"layer": 0, "above": ids} | led[owner] for ids, owner in zip(above, owners.tolist(), strict=True)
            ]
        passages = iter(self.passages.hits(rows[is_passage], scores[is_passage], reasons))
        explain = sentences is not None
        summaries = iter(self._summaries.hits(rows[~is_passage] - first, scores[~is_passage], explain))
        hits = (next(passages if own else summaries) for own in is_passage.tolist())
        return [list(islice(hits, len(one.rows))) for one in nodes]

    def _second_rounds(self, sentences: Sequence[int]) -> list[dict[str, Any]]:
        """The part of each question's explanations about the second round; empty if there was none."""
        texts = iter(self._texts(np.array([one for one in sentences if one >= 0], dtype=np.int64)))
        return [{"second_round": next(texts)} if sentence >= 0 else {} for sentence in sentences]

    def _texts(self, sentences: npt.NDArray[np.int64]) -> list[str]:
        """The texts of some sentences."""
        rows = self._starts.searchsorted(sentences, side="right") - 1
        bounds = zip(self._sentences.take(sentences, "start"), self._sentences.take(sentences, "end"), strict=True)
        return [text[start:end] for text, (start, end) in zip(self.passages.texts(rows), bounds, strict=True)]

    def _above(self, passages: npt.NDArray[np.int64], allowed: Allowed | None) -> list[list[str]]:
        """The ids of the summaries above each passage that may be shown, from the nearest to the root."""
        first = self._tree.leaves
        rows = [
            [one - first for one in self._tree.ancestors(row) if allowed is None or allowed[one]]
            for row in passages.tolist()
        ]
        ids = iter(self._summaries.ids(np.array([one for of_one in rows for one in of_one], dtype=np.int64)))
        return [list(islice(ids, len(of_one))) for of_one in rows]


def _in_order(nodes: Nodes, first: int) -> Nodes:
    """Sort nodes by falling score, stably; on ties passages (rows below ``first``) come first."""
    order = np.lexsort((nodes.rows >= first, -nodes.scores))
    return Nodes(nodes.rows[order], nodes.scores[order])


def _told_starts(artifacts: Artifacts) -> npt.NDArray[np.int64]:
    """The same as `sentence_starts` from the tables, for a snapshot without links of mentions.

    Raises CorruptBlob if the sentences are not in the order of their passages.
    """
    import pyarrow.compute as pc

    counts = [np.empty(0, np.int64)]
    labels = [one.name.partition("/")[2] for one in artifacts.shards("passages")]
    for label in labels:
        passages = artifacts.table(f"passages/{label}", ["passage_id"])["passage_id"]
        sentences = artifacts.table(f"sentences/{label}", ["passage_id"])["passage_id"]
        found = pc.index_in(sentences, value_set=passages.combine_chunks())
        rows = found.to_numpy().astype(np.int64) if not found.null_count else np.array([1, 0])
        if (np.diff(rows) < 0).any():
            raise CorruptBlob(f"{artifacts.path}: the sentences of {label!r} do not stand in the order of its passages")
        counts.append(np.bincount(rows, minlength=len(passages)))
    return np.concatenate([[0], np.concatenate(counts).cumsum()]).astype(np.int64)
