"""What a part would hold and cost, as far as its inputs tell before it is computed: what a stage's `estimate` returns.

A plan calls it for every missing part of such a stage, in the order of the flow of data, and never runs the stage. A
stage that asks a language model returns in `llm` how often and for how many tokens. Low and high are bounds, equal
where the number is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["ZERO", "Estimate", "Expected", "LlmUse", "Range", "Rows"]


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number; equal where it is known."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"expected 0 <= low <= high; found {self.low} and {self.high}")

    @classmethod
    def exactly(cls, number: int) -> Range:
        """A number that is known."""
        return cls(number, number)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


ZERO = Range(0, 0)


@dataclass(frozen=True, slots=True)
class Rows(Range):
    """Bounds of the rows of an output, and of those among them that no earlier part holds."""

    fresh: Range


Expected = Mapping[str, Range | None]
"""The rows of inputs that are only planned, by input name; None where nothing is known of them."""


@dataclass(frozen=True, slots=True)
class LlmUse:
    """What a part asks of one language model. Answers that the ledger holds are in no low bound.

    calls, input_tokens, output_tokens: bounds that hold whatever it answers, a repair of each answer included. tasks:
    the task of the prompts, then those of prompts that an answer may call for. prompts: of the first task. guess: how
    many of these are expected, where that is not the middle of their bounds.
    """

    model: str
    calls: Range
    input_tokens: Range
    output_tokens: Range
    tasks: tuple[str, ...] = ()
    prompts: Range = ZERO
    guess: float | None = None

    @property
    def expected_prompts(self) -> float:
        """How many prompts are expected."""
        return (self.prompts.low + self.prompts.high) / 2 if self.guess is None else self.guess

    def guessed(self, times: int) -> LlmUse:
        """The same where what is asked about is not known: from nothing to so many times as much."""

        def most(one: Range) -> Range:
            return Range(0, times * one.high)

        return replace(
            self,
            calls=most(self.calls),
            input_tokens=most(self.input_tokens),
            output_tokens=most(self.output_tokens),
            prompts=most(self.prompts),
            guess=self.expected_prompts,
        )


@dataclass(frozen=True)
class Estimate:
    """What a part will hold and cost.

    rows: of outputs, by name, where the estimate of a later stage needs them; every output `<name>/<label>` is among
    them. counts: what the run's report will count, where that is known exactly (`vectors_made`, `vectors_reused`).
    llm: what the part asks of language models. stand_ins: blobs of the plan's own store that later stages may read in
    the place of outputs, by name. guessed: they are not what the part will hold.
    """

    rows: Mapping[str, Range] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    llm: tuple[LlmUse, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False
