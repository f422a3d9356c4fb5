"""The settings of retrieval by heterograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from indexmill.retrieve.base import Count, Share, Weight


@dataclass(frozen=True, slots=True)
class HeterographParameters:
    """The settings of retrieval, of the snapshot or of one call; the paper's symbol in brackets.

    entries: the nearest units, attributes and high-level elements [k]. names: names and overviews at which one name of
    a question enters at most, whole ones first; 0 for none. texts, units, attributes, high_level, relations: nodes of
    each kind that the walk adds at most; entries that rank among them count. texts may be None: all that it reaches,
    and the nearest of the others where too few come. restart: the probability to return to the entries [alpha]. steps:
    of the walk [t]. token_budget: the tokens that all hits of a question hold at most, as the embedder counts them;
    None for no bound.

    preset: ``paper`` weighs all entries alike, divides the walk by degrees, gives the list by the scores of the walk,
    and uses none of the settings below.

    entry_weight: of an entry by vector for its cosine; a name weighs 1. near_texts: the texts nearest to the question,
    and as many that share most words with it, whose order together counts beside the walk. text_weight: what the first
    of them adds to its score, compared with the best score; the others add much less. unnamed_text_weight: what it adds
    where the question names nothing, by degrees: times the square of what its names lack of weight 1; the others then
    add a little less.
    bridge: least similarity to the residual query, relative to the most similar unit that names an entity of the
    question, of a unit whose other entities are entries, too; 1 or more for none. bridge_power: of that similarity, in
    their weights. bridge_residual, rank_residual: how much of what a question names is taken out of its vector where
    such units are looked for, and where texts are compared with it. agreement: the power of a text's relative
    similarity to the residual query in its score; 0 leaves it out. widest_entity: an entity of more links leads only to
    units of the nearest texts.
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

    @property
    def by_kind(self) -> bool:
        """True if a node divides its score among the kinds of its links."""
        return self.preset == "ours"

    def most(self) -> tuple[int | None, ...]:
        """The maximum number of nodes of each kind that the walk adds, in the order of KINDS; None for all."""
        return (self.texts, self.units, self.attributes, self.high_level, self.relations)
