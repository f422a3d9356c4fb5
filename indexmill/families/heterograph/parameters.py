"""The settings of retrieval by heterograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from indexmill.retrieve.retrieval_method import Count, Share, Weight


@dataclass(frozen=True, slots=True)
class HeterographParameters:
    """The retrieval settings of a snapshot or of one call; the paper's symbol in brackets.

    entries: the number of nearest units, attributes and high-level elements at which the walk begins [k]. names: the
    maximum number of names and overviews at which one name of a question enters, exact names first; 0 for none. texts,
    units, attributes, high_level, relations: the maximum number of nodes of each kind that the walk adds, including
    entries that rank among them. If ``texts`` is None, all texts that the walk reaches are added, then the nearest
    others. restart: the probability of a return to the entries [alpha]. steps: the number of steps of the walk [t].
    token_budget: the maximum number of tokens in all hits of a question, as the embedder counts them; None for no
    limit.

    preset: ``paper`` weighs all entries alike, divides the walk by degrees, ranks by the scores of the walk, and
    ignores the settings below.

    entry_weight: the factor of the cosine in the weight of an entry found by vector; a name weighs 1. near_texts: how
    many texts to lift; they are the best by joint rank of similarity and shared words. text_weight: the lift of the
    first of them, relative to the best score; the others gain much less. unnamed_text_weight: an additional lift, times
    the square of (1 - the weight of the question's names, at most 1); the others gain a little less than the first.
    bridge: the minimum similarity to the residual query, relative to the most similar unit that names an entity of the
    question, at which a unit's other entities become entries; 1 or more for none. bridge_power: the power of that
    similarity in their weights. bridge_residual, rank_residual: the share of the question's names that is removed from
    its vector to find such units, and to compare texts with it. agreement: the power of a text's relative similarity to
    the residual query in its score; 0 turns it off. widest_entity: an entity with more links to units bridges only
    through units of the nearest texts.
    """

    entries: Count = 10
    names: Count = 20
    texts: Count | None = None
    units: Count = 10
    attributes: Count = 10
    high_level: Count = 10
    relations: Count = 10
    restart: Annotated[float, Field(gt=0, lt=1)] = 0.5
    steps: Count = 2
    token_budget: Annotated[int, Field(ge=1)] | None = None
    preset: Literal["ours", "paper"] = "ours"
    entry_weight: Weight = 0.01
    near_texts: Count = 20
    text_weight: Weight = 0.3
    unnamed_text_weight: Weight = 3.0
    bridge: Weight = 0.7
    bridge_power: Weight = 10.0
    bridge_residual: Share = 0.5
    rank_residual: Share = 1.0
    agreement: Weight = 0.5
    widest_entity: Count = 100

    def most(self) -> tuple[int | None, ...]:
        """Return the maximum number of nodes of each kind that the walk adds, in the order of KINDS; None for all."""
        return (self.texts, self.units, self.attributes, self.high_level, self.relations)
