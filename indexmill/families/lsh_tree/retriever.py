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
from indexmill.families.lsh_tree.search import ScoredNodes, candidates
from indexmill.families.lsh_tree.summaries import summaries_of, summary_vectors
from indexmill.hits import Hit
from indexmill.retrieve import retrieval_method
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.legibility import legibility_of
from indexmill.retrieve.mention_matrices import MENTION_LINKS, sentence_starts
from indexmill.retrieve.method_registry import words_of
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.retrieval_method import Allowed, PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class LshTreeReader(PassageRetriever):
    """The nearest passages and summaries, as one flat set or by a pattern, within a token budget.

    ``Leaves`` selects and orders the passages; scores are cosines (for passages see ``Ordered``). The explanation of a
    summary is ``{"layer", "passages"}``, with the ids of the passages under it, and ``"stand_in": true`` if the
    language model did not write it. The explanation of a passage is ``{"layer": 0, "above"}``, with the ids of the
    visible summaries above it, from the nearest to the root, and ``"second_round"``, the sentence used in the second
    round, if there was one.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._artifacts = artifacts
        self._setting = parameters_of(artifacts, "lsh_tree", LshTreeParameters)
        self._summaries = summaries_of(artifacts)
        self._tree = self._summaries.tree
        self._sentences = TableRows(artifacts, "sentences", ["start", "end"])
        linked = bool(artifacts.shards(MENTION_LINKS))
        self._starts = sentence_starts(artifacts) if linked else _starts_from_tables(artifacts)
        self._leaves = Leaves(
            passage_vectors_of(artifacts),
            artifacts.row_vectors("sentences"),
            self._starts,
            self._texts,
            words_of(artifacts),
            legibility_of(artifacts),
        )

    def reads(self, k: int) -> int:
        """Return at least ``pool``: see ``PassageRetriever``."""
        pool: int = self._setting.pool
        return max(k, pool)

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank passages in two rounds: see ``Leaves``, and ``PassageRetriever``.

        The tree does not change the order: ranking by the similarity of the summaries above did harm when measured.
        """
        return (Ranking(ordered.rows, ordered.scores) for ordered in self._leaves.rank(batch, k, self._setting))

    def search(self, batch: QueryBatch, k: int) -> list[list[Hit]]:
        """Find passages and summaries: see ``Retriever``. A token budget may leave fewer than k hits."""
        allowed = None if batch.allowed is None else self._tree.allowed_above(batch.allowed)
        first = self._tree.leaves
        summaries = None if allowed is None else allowed[first:]
        above = nearest(summary_vectors(self._artifacts), batch.vectors, k, summaries)
        ranked = zip(self._leaves.rank(batch, k, self._setting), above, strict=True)
        hits: list[list[Hit]] = []
        while tile := list(islice(ranked, retrieval_method.EXPLAINED_TOGETHER)):
            selected = []
            for passages, (rows, scores) in tile:
                nodes = candidates(
                    ScoredNodes(passages.rows, passages.scores), ScoredNodes(rows + first, scores), k, self._setting
                )
                if self._setting.token_budget is not None:
                    places = fitting(self._tokens(nodes.rows), self._setting.token_budget)
                    nodes = nodes.at(places)
                # by descending score; on ties passages come first
                selected.append(nodes.at(np.lexsort((nodes.rows >= first, -nodes.scores))))
            hits += self._hits(
                selected, allowed, [passages.sentence for passages, _ in tile] if batch.explain else None
            )
        return hits

    def _tokens(self, rows: npt.NDArray[np.int64]) -> list[int]:
        first = self._tree.leaves
        return [
            self.passages.tokens(row) if row < first else self._summaries.tokens(row - first) for row in rows.tolist()
        ]

    def _hits(
        self, nodes: Sequence[ScoredNodes], allowed: Allowed | None, sentences: Sequence[int] | None
    ) -> list[list[Hit]]:
        """Convert the nodes of some questions into hits.

        sentences: each question's sentence in the second round, -1 for none; None for no explanations.
        """
        first = self._tree.leaves
        rows, scores = (np.concatenate(column) for column in zip(*nodes, strict=True))
        is_passage = rows < first
        reasons = None
        if sentences is not None:
            owners = np.arange(len(nodes)).repeat([len(question_nodes.rows) for question_nodes in nodes])[is_passage]
            second_rounds = self._second_rounds(sentences)
            above = self._above(rows[is_passage], allowed)
            reasons = [
                {"layer": 0, "above": ids} | second_rounds[owner]
                for ids, owner in zip(above, owners.tolist(), strict=True)
            ]
        passages = iter(self.passages.hits(rows[is_passage], scores[is_passage], reasons))
        explain = sentences is not None
        summaries = iter(self._summaries.hits(rows[~is_passage] - first, scores[~is_passage], explain))
        hits = (next(passages if is_leaf else summaries) for is_leaf in is_passage.tolist())
        return [list(islice(hits, len(question_nodes.rows))) for question_nodes in nodes]

    def _second_rounds(self, sentences: Sequence[int]) -> list[dict[str, Any]]:
        """Return the explanation of each question's second round; empty if there was none."""
        texts = iter(self._texts(np.array([one for one in sentences if one >= 0], dtype=np.int64)))
        return [{"second_round": next(texts)} if sentence >= 0 else {} for sentence in sentences]

    def _texts(self, sentences: npt.NDArray[np.int64]) -> list[str]:
        rows = self._starts.searchsorted(sentences, side="right") - 1
        bounds = zip(self._sentences.take(sentences, "start"), self._sentences.take(sentences, "end"), strict=True)
        return [text[start:end] for text, (start, end) in zip(self.passages.texts(rows), bounds, strict=True)]

    def _above(self, passages: npt.NDArray[np.int64], allowed: Allowed | None) -> list[list[str]]:
        """Return the ids of the visible summaries above each passage, from the nearest to the root."""
        first = self._tree.leaves
        rows = [
            [node - first for node in self._tree.ancestors(row) if allowed is None or allowed[node]]
            for row in passages.tolist()
        ]
        ids = iter(self._summaries.ids(np.array([node for of_one in rows for node in of_one], dtype=np.int64)))
        return [list(islice(ids, len(of_one))) for of_one in rows]


def _starts_from_tables(artifacts: Artifacts) -> npt.NDArray[np.int64]:
    """Compute `sentence_starts` without mention links. Raises CorruptBlob if sentences are not in passage order."""
    import pyarrow.compute as pc

    counts = [np.empty(0, np.int64)]
    labels = [shard.name.partition("/")[2] for shard in artifacts.shards("passages")]
    for label in labels:
        passages = artifacts.table(f"passages/{label}", ["passage_id"])["passage_id"]
        sentences = artifacts.table(f"sentences/{label}", ["passage_id"])["passage_id"]
        owners = pc.index_in(sentences, value_set=passages.combine_chunks())
        rows = owners.to_numpy().astype(np.int64) if not owners.null_count else np.array([1, 0])
        if (np.diff(rows) < 0).any():
            raise CorruptBlob(f"{artifacts.path}: the sentences of {label!r} are not in the order of its passages")
        counts.append(np.bincount(rows, minlength=len(passages)))
    return np.concatenate([[0], np.concatenate(counts).cumsum()]).astype(np.int64)
