"""The settings of retrieval by zoom_graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from indexmill.families.zoom_graph.walk import Scale
from indexmill.retrieve.retrieval_method import Count, Finite, Share, Weight


@dataclass(frozen=True, slots=True)
class ZoomGraphParameters:
    """The settings of retrieval; the paper's symbol in brackets.

    steps, restart: the number of steps and the restart probability of the coarse walk [t, alpha]. documents: the number
    of best documents whose sentences are walked [K]. fine_restart: the restart probability of the fine walk [beta].
    kept: the share of these sentences that hits keep. temporal_width, temporal_share: the width and the share of the
    links between sentences of a document [sigma, omega].
    threshold: a question is linked to documents whose weight exceeds its mean by this many standard deviations.
    relative_power: the weight of such a link is exp(similarity). If unrelated texts are similar, it is this power of
    the relative similarity above theirs instead; 0 turns that off.
    scale: the denominator of a block's average weight: the number of its ``cells``, or of its stored ``links``.
    title_weight: the weight of the link between a document and its title's entity; links to other entities weigh 1.
    question_weight: the weight of links to entities, relative to links to documents.
    look_ahead: the minimum relative similarity at which a sentence passes its entities on; above 1 turns it off.
    look_ahead_power: the power of that similarity in the weight of the entity. open_share: the share of the question's
    names that is removed from its vector for the look-ahead; the agreement removes all. agreement: the power of a
    document's relative similarity in its score, if names explain half of the question; 0 turns it off.
    widest_entity: an entity in more sentences is followed only through the sentences of the nearest documents.
    nearest_name: the minimum similarity at which an unknown name is linked to the entity with the nearest name.
    follow: a node with at most this score is not followed.
    fine, entities, question_links, document_links, semantic_links, temporal_links: False turns that part off (table 4).
    preset: ``paper`` sets every setting that is at its default to the paper's value (PAPER).
    """

    preset: Literal["ours", "paper"] = "ours"

    steps: Count = 5
    restart: Share = 0.8
    documents: Annotated[int, Field(ge=1, le=10_000)] = 10
    fine_restart: Share = 0.9
    kept: Share = 0.7
    temporal_width: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    temporal_share: Share = 0.5
    threshold: Finite = 3.0
    relative_power: Weight = 4.0
    scale: Scale = "cells"
    title_weight: Weight = 16.0
    question_weight: Weight = 16.0
    look_ahead: Weight = 0.7
    look_ahead_power: Weight = 10.0
    open_share: Share = 0.5
    agreement: Weight = 0.5
    widest_entity: Count = 100
    nearest_name: Finite = 0.7
    follow: Weight = 1e-4
    fine: bool = True
    entities: bool = True
    question_links: bool = True
    document_links: bool = True
    semantic_links: bool = True
    temporal_links: bool = True


PAPER: Mapping[str, object] = {
    "relative_power": 0.0,
    "title_weight": 1.0,
    "question_weight": 1.0,
    "look_ahead": 2.0,
    "agreement": 0.0,
    "nearest_name": -1.0,
    "follow": 0.0,
}
"""The paper's values of the settings whose defaults differ."""
