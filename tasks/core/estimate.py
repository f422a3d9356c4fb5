"""Estimates of a part's rows and cost, made from its inputs before it is computed; results of a stage's `estimate`.

A plan calls `estimate` for every missing part of such a stage, in the order of the data flow, and never runs the stage.
A stage that asks a language model returns the number of calls and tokens in `llm`. Low and high are bounds, which are
equal if the number is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number; they are equal if the number is known."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"expected 0 <= low <= high; found {self.low} and {self.high}")

    @classmethod
    def exactly(cls, number: int) -> Range:
        return cls(number, number)

    def __add__(self, addend: Range) -> Range:
        return Range(self.low + addend.low, self.high + addend.high)


ZERO = Range(0, 0)


@dataclass(frozen=True, slots=True)
class Forecast(Range):
    """Bounds of a number, and the number that is expected."""

    expected: int

    def __post_init__(self) -> None:
        Range.__post_init__(self)
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"expected a number from {self.low} to {self.high}; found {self.expected}")

    @classmethod
    def within(cls, bounds: Range, expected: float) -> Forecast:
        """Return the bounds with the whole number within them that is next to `expected`."""
        return cls(bounds.low, bounds.high, min(max(round(expected), bounds.low), bounds.high))

    @classmethod
    def total(cls, forecasts: Iterable[Forecast]) -> Forecast:
        """Return the sums of all bounds and of the expected numbers."""
        counted = list(forecasts)
        return cls(*(sum(getattr(number, name) for number in counted) for name in ("low", "high", "expected")))


@dataclass(frozen=True, slots=True)
class RowRange(Range):
    """Bounds of the number of an output's rows, and of new rows among them, which no earlier part has."""

    fresh: Range


def new_rows(rows: Range) -> Range:
    """Return the bounds of the number of new rows; if they are not known, all rows count as new."""
    return rows.fresh if isinstance(rows, RowRange) else rows


Expected = Mapping[str, Range | None]
"""The number of rows of each input that is only planned, by name; None if unknown."""


@dataclass(frozen=True, slots=True)
class LlmUse:
    """A part's use of one language model. Low bounds exclude answers that are in the ledger.

    calls, input_tokens, output_tokens: bounds that hold for any answers, a repair of each answer included. tasks: the
    task of the prompts, then the tasks of possible follow-up prompts. prompts: bounds of the number of prompts of the
    first task. guess: their expected number, if it is not the middle of the bounds. usual: the input and output tokens
    that these prompts usually take, for an estimate without answers. counted: the expected input tokens and a likely
    bound, if a tokenizer has counted them.
    """

    model: str
    calls: Range
    input_tokens: Range
    output_tokens: Range
    tasks: tuple[str, ...] = ()
    prompts: Range = ZERO
    guess: float | None = None
    usual: tuple[float, float] = (0.0, 0.0)
    counted: Range | None = None

    @property
    def expected_prompts(self) -> float:
        return (self.prompts.low + self.prompts.high) / 2 if self.guess is None else self.guess

    def scaled(self, factor: float) -> LlmUse:
        """Return the use with the expected number of prompts multiplied, up to the upper bound; the bounds stay."""
        factor = min(factor, self.prompts.high / self.expected_prompts) if self.expected_prompts else factor
        usual_input, usual_output = self.usual
        return replace(self, guess=factor * self.expected_prompts, usual=(factor * usual_input, factor * usual_output))

    def guessed(self, times: int) -> LlmUse:
        """Return the use if the subjects are guesses: 0 to `times` the upper bounds; what is expected stays."""

        def most(bounds: Range) -> Range:
            return Range(0, times * bounds.high)

        return replace(
            self,
            calls=most(self.calls),
            input_tokens=most(self.input_tokens),
            output_tokens=most(self.output_tokens),
            prompts=most(self.prompts),
            guess=self.expected_prompts,
        )


@dataclass(frozen=True)
class EncoderTexts:
    """The texts that a part sends to an encoder behind an endpoint, without batches in the ledger.

    tokens, bytes: the size of all texts as sent; tokens are counted by the settings' tokenizer. unknown: bounds of the
    number of texts that are not written yet, each of at most `longest` tokens.
    """

    calls: int = 0
    texts: int = 0
    tokens: int = 0
    bytes: int = 0
    unknown: Range = ZERO
    longest: int = 0


@dataclass(frozen=True)
class Estimate:
    """The expected rows and cost of a part.

    rows: the number of rows of outputs, by name: only of those that a later stage's estimate needs, but always of every
    output `<name>/<label>`. counts: the counts of the run's report that are known exactly (`vectors_made`,
    `vectors_reused`). llm: the use of language models. texts: the texts for an encoder behind an endpoint. stand_ins:
    blobs of the plan's own store that later stages read instead of outputs, by name. guessed: True if these may differ
    from the outputs.
    """

    rows: Mapping[str, Range] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    llm: tuple[LlmUse, ...] = ()
    texts: EncoderTexts = EncoderTexts()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False
