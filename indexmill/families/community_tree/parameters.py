"""The settings of retrieval by community_tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from indexmill.retrieve.retrieval_method import Weight


@dataclass(frozen=True, slots=True)
class CommunityTreeParameters:
    """The retrieval settings of a snapshot or of one call.

    k_level: the number of nodes to find on each level. levels: the number of community levels to search, from the
    lowest up; None for all, 0 for entities only. ef: the minimum number of nodes in a level's beam. level_weight: the
    factor by which each level above the entities multiplies a node's cosine. passages: the maximum number of passages
    among the hits of a question; None for no limit but k, 0 for none, as in the paper. token_budget: the maximum number
    of tokens in all hits of a question, as the embedder counts them; None for no limit.

    reach: the number of nearest nodes on each level that count as evidence for passages. similarity_weight,
    community_weight, spread, widest, mention_weight: the parameters of the ranking of passages, see `ranking`.
    name_weight, hop_weight, hops, widest_hop: the parameters of the entities found by words, see `entities`; a weight
    of 0 turns its part off.

    preset: "paper" for the method of the ArchRAG paper: the k_level nearest nodes of each level, no names, and no
    passages. It overrides other settings.
    """

    k_level: Annotated[int, Field(ge=1, le=1000)] = 5
    levels: Annotated[int, Field(ge=0)] | None = None
    ef: Annotated[int, Field(ge=1, le=10_000)] = 128
    level_weight: Weight = 1.0
    passages: Annotated[int, Field(ge=0)] | None = None
    token_budget: Annotated[int, Field(ge=1)] | None = None
    reach: Annotated[int, Field(ge=1, le=1000)] = 20
    similarity_weight: Annotated[float, Field(ge=0, le=1)] = 0.1
    community_weight: Weight = 1.0
    spread: Annotated[float, Field(ge=0, le=1)] = 0.25
    widest: Annotated[int, Field(ge=1)] = 1000
    mention_weight: Annotated[float, Field(ge=0, le=1)] = 0.25
    name_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    hop_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    hops: Annotated[int, Field(ge=1, le=1000)] = 20
    widest_hop: Annotated[int, Field(ge=1)] = 100
    preset: Literal["ours", "paper"] = "ours"

    def applied(self) -> CommunityTreeParameters:
        """Return the effective settings: the preset's values replace the settings that it fixes."""
        if self.preset == "ours":
            return self
        return replace(
            self,
            preset="ours",
            ef=1,
            level_weight=1.0,
            passages=0,
            reach=self.k_level,
            mention_weight=1.0,
            name_weight=0.0,
            hop_weight=0.0,
        )
