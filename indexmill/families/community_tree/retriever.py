"""The retriever of community_tree: searches a snapshot's nodes and passages and returns hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.families.community_tree.entities import Gains, Limits, gains, with_gains
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.ranking import Evidence, RankedPassages, rank_passages
from indexmill.families.community_tree.search import in_one_list, nodes_of
from indexmill.hits import Hit
from indexmill.retrieve.base import Allowed, Explanations, PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.columns import parts
from indexmill.retrieve.linking import Links
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.passage_vectors import passage_vectors_of

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class CommunityTreeReader(PassageRetriever):
    """The nearest entities and communities of every level, and the passages from which they were made, as one list.

    The explanation of an entity is ``{"type", "relations"}``: its relations with the entities before it among the hits,
    each ``{"source", "target", "kind", "description", "entity_id"}`` with the id of the other entity. The explanation
    of a community is ``{"level", "rating", "size", "members"}``: the number of entities under it and the ids of its
    members. Both have ``"stand_in": true`` if the language model did not write the text. The explanation of a passage
    is ``{"entities", "communities"}``: the nodes found above it, each with the amount ``added`` to the score, the
    largest first.
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

    def rank(self, asked: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank passages by the evidence of the nodes found and by their cosine: see ``PassageRetriever``."""
        setting, limits = self._applied, self._limits(asked)
        shown = ~self._tree.single if limits is None else ~self._tree.single & limits.nodes
        levels = nodes_of(self._tree, asked.vectors, setting.reach, setting, shown)
        may = self._may(asked, limits) if asked.explain else None
        for one in rank_passages(self._tree, self._vectors, asked, levels, self._gained(asked, limits), setting, k):
            yield Ranking(one.rows, one.scores, answer=(one.evidence, may))

    def explanations(self, found: Sequence[Ranking], places: Sequence[Sequence[int]]) -> list[Explanations]:
        """Explanations by entities and communities: see ``PassageRetriever``."""
        return [
            self._through(one.answer[0], one.rows[list(its)], one.answer[1])
            for one, its in zip(found, places, strict=True)
        ]

    def search(self, asked: QueryBatch, k: int) -> list[list[Hit]]:
        """Nodes and passages of each question: see ``Retriever``. A token budget may leave fewer than k."""
        setting, limits = self._applied, self._limits(asked)
        shown = ~self._tree.single if limits is None else ~self._tree.single & limits.nodes
        levels = nodes_of(self._tree, asked.vectors, max(setting.reach, setting.k_level), setting, shown)
        most = k if setting.passages is None else min(k, setting.passages)
        gained = self._gained(asked, limits)
        passages = rank_passages(self._tree, self._vectors, asked, levels, gained, setting, most)
        least = levels[0].first(setting.reach).least if levels else np.empty(0)
        may = self._may(asked, limits)
        if may is not None and asked.readable is not None:
            levels = nodes_of(self._tree, asked.vectors, setting.k_level, setting, shown & may)
        levels = [level.first(setting.k_level) for level in levels]
        if levels:
            levels[0] = with_gains(levels[0], least, gained if may is None else gained.where(may), setting.k_level)
        return [
            self._merged(*in_one_list(levels, number, setting.level_weight), one, k, may, asked.explain)
            for number, one in enumerate(passages)
        ]

    def _limits(self, asked: QueryBatch) -> Limits | None:
        """The nodes that take part; None for all."""
        return None if asked.allowed is None else Limits(asked.allowed, self._tree.allowed(asked.allowed))

    def _may(self, asked: QueryBatch, limits: Limits | None) -> Allowed | None:
        """A mask of the nodes that may be shown; None for all.

        The text of a node spells the names of entities as they are shown, so the asker has to be allowed these, too.
        """
        if limits is None or asked.readable is None:
            return None if limits is None else limits.nodes
        spelled = self._communities.spelled(asked.readable)
        return limits.nodes & self._tree.allowed_above(spelled)

    def _gained(self, asked: QueryBatch, limits: Limits | None) -> Gains:
        """The entities that the questions find by words."""
        names, setting = self._communities.names, self._applied
        linked: list[Links] = [()] * len(asked.questions)
        if setting.name_weight:
            named = None if limits is None else self._tree.passages.counts_of(limits.passages) > 0
            linked = names.links(asked, named)
        return gains(self._tree, linked, names.residual(asked.vectors, linked), setting, limits)

    def _merged(
        self, nodes: Rows, scores: Scores, passages: RankedPassages, k: int, may: Allowed | None, explain: bool
    ) -> list[Hit]:
        """Merge nodes and passages into one list by score; on ties nodes come first."""
        both, own = np.concatenate([nodes, passages.rows]), len(nodes)
        value = np.concatenate([scores, passages.scores])
        order = (-value).argsort(kind="stable")[:k]
        if self._applied.token_budget is not None:
            tokens = (
                self._communities.tokens(int(both[at])) if at < own else self.passages.tokens(int(both[at]))
                for at in order.tolist()
            )
            order = order[fitting(tokens, self._applied.token_budget)]
        is_node = order < own
        chosen, others = both[order[is_node]], both[order[~is_node]]
        of_nodes = iter(self._communities.hits(chosen.tolist(), value[order[is_node]].tolist(), explain))
        reasons = self._through(passages.evidence, others, may) if explain else None
        of_passages = iter(self.passages.hits(others, value[order[~is_node]], reasons))
        return [next(of_nodes if node else of_passages) for node in is_node.tolist()]

    def _through(self, told: Evidence, passages: Rows, may: Allowed | None) -> list[dict[str, Any]]:
        """The explanations of some passages of one question; they name only nodes that may be shown."""
        first = self._tree.leaves
        rows = parts(told.pairs)[1]  # ascending
        explanations = []
        for passage in passages.tolist():
            its = slice(rows.searchsorted(passage), rows.searchsorted(passage, side="right"))
            nodes, amounts = told.nodes[its], told.amounts[its]
            entities, communities = [], []
            for at in np.lexsort((nodes, -amounts)).tolist():
                row, added = int(nodes[at]), float(amounts[at])
                if may is not None and not may[row]:
                    continue
                named = self._communities.label(row)
                if row < first:
                    entities.append({"entity_id": named.id, "surface": named.title, "added": added})
                else:
                    level = self._tree.layer(row)
                    communities.append({"community_id": named.id, "title": named.title, "level": level, "added": added})
            explanations.append({"entities": entities, "communities": communities})
        return explanations
