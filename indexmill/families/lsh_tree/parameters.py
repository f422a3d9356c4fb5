"""The settings of retrieval by lsh_tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Pattern = Literal["collapsed", "detailed", "summarised"]


Preset = Literal["ours", "paper"]


@dataclass(frozen=True, slots=True)
class LshTreeParameters:
    """The settings of retrieval, of the snapshot or of one call.

    pattern: which kind is favoured. ratio: of k, the part of the favoured kind; nothing to ``collapsed``. token_budget:
    the tokens that all hits of a question hold at most, as the embedder counts them; None for no bound but k. preset:
    ``paper`` ranks passages by their cosine alone, ``ours`` as ``indexmill.families.lsh_tree.leaves`` says, whose
    settings the rest are. pool: how many passages each list counts. constant: added to a place before its reciprocal is
    taken. first_hits: in which the best sentence is looked for. carried: what that sentence counts in the second round
    where the question counts 1; 0 leaves that round out. first_round: what the lists of the first count where that of
    the second counts 1.
    """

    pattern: Pattern = "collapsed"
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.8
    token_budget: Annotated[int, Field(ge=1)] | None = None
    preset: Preset = "ours"
    pool: Annotated[int, Field(ge=1, le=10_000)] = 100
    constant: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5.0
    first_hits: Annotated[int, Field(ge=1, le=1000)] = 3
    carried: Annotated[float, Field(ge=0, le=10)] = 0.5
    first_round: Annotated[float, Field(ge=0, le=10)] = 0.7
