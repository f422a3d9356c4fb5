"""Settings of a run and of its gates; none of them affects the index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from indexmill.retrieve.registry import METHODS
from schemas.config.base import Settings
from schemas.corpus import as_tuple

__all__ = ["GateSettings", "RunSettings"]


class GateSettings(Settings):
    """What a corpus and its index have to hold to be published; nothing of this reaches the index."""

    questions: Path | None = Field(
        None, description="JSON Lines of {id, question, gold_ids}; recall on them is measured before publishing"
    )
    methods: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("fused",), min_length=1, description="the retrieval methods whose recall is measured"
    )
    k: int = Field(5, ge=1, le=1000, description="recall is of the first k documents")
    tolerance: float = Field(
        0.02, ge=0, le=1, description="recall that a method may lose against the version before; more is refused"
    )
    minimum: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="recall below which nothing is published, whatever the version before had"
    )
    max_shrink: float = Field(
        0.2,
        ge=0,
        le=1,
        description="the share of documents that one build may take away without --allow-shrink: a night's deletions "
        "are a few in a hundred, a mount or an export that failed takes a whole source",
    )

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(METHODS))
        if unknown:
            raise ValueError(f"there is no method {unknown[0]!r}; there are {', '.join(METHODS)}")
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _minimum_of_something(self) -> GateSettings:
        if self.minimum is not None and self.questions is None:
            raise ValueError("minimum is the recall on questions, and there are none: set gates.questions, too")
        return self


class RunSettings(Settings):
    """How a run works; nothing of this reaches the index."""

    workers: Annotated[int, Field(ge=1)] | None = Field(None, description="worker processes; default: the cores")
    lease_seconds: int = Field(120, ge=10, description="a lease not renewed for this long may be taken over")
    strict: bool = Field(False, description="a refused row ends the run with exit code 2")
    max_failed_share: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when more of the rows than this are refused, and more than ten: exit code 3",
    )
    max_stand_ins: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when a language model did not write more of a stage's texts than this, and "
        "more than ten or all of them: exit code 3",
    )
    wave_shards: Annotated[int, Field(ge=1)] | None = Field(
        None, description="shards in a wave of `backfill`; default: as many as hold about four million tokens"
    )
