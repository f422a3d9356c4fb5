"""The settings of retrieval by tri_graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from indexmill.retrieve.retrieval_method import Count, Finite, Share, Weight


@dataclass(frozen=True, slots=True)
class TriGraphParameters:
    """The settings of retrieval; the paper's symbol in brackets.

    hops: the maximum number of iterations of eq. 5 [n].
    activation_threshold: a newly activated entity at or below it is pruned [delta].
    reading: how to read eq. 5: ``max`` keeps the best path to an entity, ``sum`` adds all paths, as printed.
    sentences_per_entity: the number of sentences through which an entity passes activation on, most similar first;
        0 for all.
    sentences_per_step: the same number for all entities of an iteration together: 1 is greedy, 3 the beam of appendix
        E.6; 0 for all.
    damping: the share of a score that follows links [d, eq. 6].
    similarity_weight: the weight of a passage's similarity to the question, relative to entities [lambda, eq. 7].
    passage_weight: the weight of passages in the start, relative to entities [W_p, eq. 7].
    steps: the number of steps of the walk.
    dense_passages: the number of nearest passages in the walk, whatever they contain.
    widest_entity: an entity mentioned in more sentences passes activation on only through sentences of the nearest
        passages; an entity contained in more passages adds none to the walk, but counts in passages already there.
    bridge_residual, rank_residual: the share of the question's names that is removed from its vector, 0 to 1.
    agreement: the power of a passage's relative similarity in its final score; 0 turns it off.
    nearest_name: the minimum similarity at which an unknown name is linked to the entity with the nearest name (eq. 3).
    activation, pagerank, pruning: False turns that part off (figure 4).
    rarity: True if entities in few documents count for more; the paper's appendix G.3 argues for weights of one.
    relative: True if similarities are relative to the strongest, in eq. 4 and in eq. 7; False uses the cosines.
    threshold_factor, threshold_step: every iteration after the first multiplies the threshold by the factor and
        subtracts the step.
    preset: ``paper`` sets every setting that is at its default to the paper's value (PAPER).
    """

    preset: Literal["ours", "paper"] = "ours"

    hops: Count = 4
    activation_threshold: Finite = 0.6
    reading: Literal["max", "sum"] = "max"
    sentences_per_entity: Count = 0
    sentences_per_step: Count = 0
    damping: Share = 0.5
    similarity_weight: Weight = 1.0
    passage_weight: Weight = 0.1
    steps: Count = 3
    dense_passages: Annotated[int, Field(ge=1, le=10_000)] = 50
    widest_entity: Count = 100
    bridge_residual: Share = 0.5
    rank_residual: Share = 1.0
    agreement: Weight = 0.5
    nearest_name: Finite = 0.7
    activation: bool = True
    pagerank: bool = True
    pruning: bool = True
    rarity: bool = True
    relative: bool = True
    threshold_factor: Share = 1.0
    threshold_step: Weight = 0.0


PAPER: Mapping[str, object] = {
    "reading": "sum",
    "activation_threshold": 4.0,
    "damping": 0.85,
    "similarity_weight": 0.05,
    "steps": 20,
    "dense_passages": 1_000,
    "widest_entity": 1_000_000_000,
    "bridge_residual": 0.0,
    "rank_residual": 0.0,
    "agreement": 0.0,
    "nearest_name": -1.0,
    "rarity": False,
    "relative": False,
}
"""The values in the paper's text. Choices that the paper leaves open stay ours: W_p, and titles as the subjects of
sentences, which are part of the index."""
