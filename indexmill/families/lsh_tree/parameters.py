"""The settings of retrieval by lsh_tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class LshTreeParameters:
    """The settings of retrieval, of the snapshot or of one call.

    pattern: the favoured kind. ratio: the favoured kind's share of k; unused for ``collapsed``. token_budget: the
    maximum number of tokens in all hits of a question, as the embedder counts them; None for no limit but k. preset:
    ``paper`` ranks passages only by their cosines, ``ours`` as described in ``indexmill.families.lsh_tree.leaves``,
    with the settings below.

    pool: the length of each list. constant: added to a rank before taking its reciprocal. first_hits: the number of
    hits that are searched for the best sentence. carried: the weight of that sentence in the second round, relative to
    the question; 0 skips that round. first_round: the weight of the first round's lists, relative to the second's.
    """

    pattern: Literal["collapsed", "detailed", "summarised"] = "collapsed"
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.8
    token_budget: Annotated[int, Field(ge=1)] | None = None
    preset: Literal["ours", "paper"] = "ours"
    pool: Annotated[int, Field(ge=1, le=10_000)] = 100
    constant: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5.0
    first_hits: Annotated[int, Field(ge=1, le=1000)] = 3
    carried: Annotated[float, Field(ge=0, le=10)] = 0.5
    first_round: Annotated[float, Field(ge=0, le=10)] = 0.7
