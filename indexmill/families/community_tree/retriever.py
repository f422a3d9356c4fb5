"""The retriever of community_tree: searches a snapshot's nodes and passages and returns hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.families.community_tree.entities import Gains, ScopeMasks, gains, with_gains
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.ranking import NodeEvidence, RankedPassages, rank_passages
from indexmill.families.community_tree.search import in_one_list, nodes_of
from indexmill.hits import Hit
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.columns import parts
from indexmill.retrieve.linking import Links
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.retrieval_method import (
    Allowed,
    Explanations,
    PassageRetriever,
    QueryBatch,
    Ranking,
    parameters_of,
)

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class CommunityTreeReader(PassageRetriever):
    """The nearest entities and communities of every level, and the passages that they were built from, as one list.

    The explanation of an entity is ``{"type", "relations"}``: its relations with the entities before it among the hits,
    each ``{"source", "target", "kind", "description", "entity_id"}`` with the id of the other entity. The explanation
    of a community is ``{"level", "rating", "size", "members"}``: the number of entities under it and the ids of its
    members. Both have ``"stand_in": true`` if the language model did not write the text. The explanation of a passage
    is ``{"entities", "communities"}``: the nodes that support it, each with the amount ``added`` to the score, in
    descending order.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._near = passage_vectors_of(artifacts)
        self._use(parameters_of(artifacts, "community_tree", CommunityTreeParameters))
        self._communities = communities_of(artifacts)
        self._tree = self._communities.tree

    def _use(self, setting: Any) -> None:
        """Apply settings, with the values that their preset fixes: see ``PassageRetriever``."""
        super()._use(setting)
        self._applied: CommunityTreeParameters = setting.applied()
        self._vectors = self._near.untitled if setting.preset == "paper" else self._near

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank passages by the evidence of the nodes found and by their cosine: see ``PassageRetriever``."""
        setting, limits = self._applied, self._limits(batch)
        shown = ~self._tree.single if limits is None else ~self._tree.single & limits.nodes
        levels = nodes_of(self._tree, batch.vectors, setting.reach, setting, shown)
        visible = self._visible(batch, limits) if batch.explain else None
        for ranked in rank_passages(self._tree, self._vectors, batch, levels, self._gained(batch, limits), setting, k):
            yield Ranking(ranked.rows, ranked.scores, answer=(ranked.evidence, visible))

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[Explanations]:
        """Explain passages by entities and communities: see ``PassageRetriever``."""
        return [
            self._through(ranking.answer[0], ranking.rows[list(chosen)], ranking.answer[1])
            for ranking, chosen in zip(rankings, positions, strict=True)
        ]

    def search(self, batch: QueryBatch, k: int) -> list[list[Hit]]:
        """Find nodes and passages: see ``Retriever``. A token budget may leave fewer than k hits."""
        setting, limits = self._applied, self._limits(batch)
        shown = ~self._tree.single if limits is None else ~self._tree.single & limits.nodes
        levels = nodes_of(self._tree, batch.vectors, max(setting.reach, setting.k_level), setting, shown)
        most = k if setting.passages is None else min(k, setting.passages)
        gained = self._gained(batch, limits)
        passages = rank_passages(self._tree, self._vectors, batch, levels, gained, setting, most)
        least = levels[0].first(setting.reach).least if levels else np.empty(0)
        visible = self._visible(batch, limits)
        if visible is not None and batch.readable is not None:
            levels = nodes_of(self._tree, batch.vectors, setting.k_level, setting, shown & visible)
        levels = [level.first(setting.k_level) for level in levels]
        if levels:
            levels[0] = with_gains(
                levels[0], least, gained if visible is None else gained.where(visible), setting.k_level
            )
        return [
            self._merged(*in_one_list(levels, number, setting.level_weight), ranked, k, visible, batch.explain)
            for number, ranked in enumerate(passages)
        ]

    def _limits(self, batch: QueryBatch) -> ScopeMasks | None:
        return None if batch.allowed is None else ScopeMasks(batch.allowed, self._tree.allowed(batch.allowed))

    def _visible(self, batch: QueryBatch, limits: ScopeMasks | None) -> Allowed | None:
        """Return a mask of the nodes that may be shown; None for all.

        The text of a node contains the displayed names of entities, so the user must also be allowed to read the names.
        """
        if limits is None or batch.readable is None:
            return None if limits is None else limits.nodes
        spelled = self._communities.spelled(batch.readable)
        return limits.nodes & self._tree.allowed_above(spelled)

    def _gained(self, batch: QueryBatch, limits: ScopeMasks | None) -> Gains:
        """Find the entities that the questions name, and the entities in the same passages."""
        names, setting = self._communities.names, self._applied
        linked: list[Links] = [()] * len(batch.questions)
        if setting.name_weight:
            named = None if limits is None else self._tree.passages.counts_of(limits.passages) > 0
            linked = names.links(batch, named)
        return gains(self._tree, linked, names.residual(batch.vectors, linked), setting, limits)

    def _merged(
        self, nodes: Rows, scores: Scores, passages: RankedPassages, k: int, visible: Allowed | None, explain: bool
    ) -> list[Hit]:
        """Merge nodes and passages into one list by score; on ties nodes come first."""
        both, node_count = np.concatenate([nodes, passages.rows]), len(nodes)
        value = np.concatenate([scores, passages.scores])
        order = (-value).argsort(kind="stable")[:k]
        if self._applied.token_budget is not None:
            tokens = (
                self._communities.tokens(int(both[at])) if at < node_count else self.passages.tokens(int(both[at]))
                for at in order.tolist()
            )
            order = order[fitting(tokens, self._applied.token_budget)]
        is_node = order < node_count
        chosen, others = both[order[is_node]], both[order[~is_node]]
        of_nodes = iter(self._communities.hits(chosen.tolist(), value[order[is_node]].tolist(), explain))
        reasons = self._through(passages.evidence, others, visible) if explain else None
        of_passages = iter(self.passages.hits(others, value[order[~is_node]], reasons))
        return [next(of_nodes if node else of_passages) for node in is_node.tolist()]

    def _through(self, evidence: NodeEvidence, passages: Rows, visible: Allowed | None) -> list[dict[str, Any]]:
        """Explain some passages of one question by the nodes that may be shown."""
        first = self._tree.leaves
        rows = parts(evidence.pairs)[1]  # ascending
        explanations = []
        for passage in passages.tolist():
            span = slice(rows.searchsorted(passage), rows.searchsorted(passage, side="right"))
            nodes, amounts = evidence.nodes[span], evidence.amounts[span]
            entities, communities = [], []
            for at in np.lexsort((nodes, -amounts)).tolist():
                row, added = int(nodes[at]), float(amounts[at])
                if visible is not None and not visible[row]:
                    continue
                named = self._communities.label(row)
                if row < first:
                    entities.append({"entity_id": named.id, "surface": named.title, "added": added})
                else:
                    level = self._tree.layer(row)
                    communities.append({"community_id": named.id, "title": named.title, "level": level, "added": added})
            explanations.append({"entities": entities, "communities": communities})
        return explanations
