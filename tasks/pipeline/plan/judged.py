"""Estimates of the tokens of calls to a language model, from the answers in the ledger.

Worst-case bounds (`tasks.core.request_estimate`) are many times the actual use. An answer in the ledger records its
tokens, repairs included, so the answers of a task predict the tokens of its next calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from storage import ledger
from storage.protocol import Store
from tasks.core.estimate import ZERO, Forecast, LlmUse

ENOUGH = 3
"""The minimum number of answers of a task for an estimate."""

MANY = 30
"""The minimum number of answers of a task for a bound from mean and deviation; with fewer, each call is assumed to use
somewhat more tokens than the largest answer."""

_READ, _SAMPLE = 20_000, 4000
"""The maximum numbers of ledger records read and of the model's answers used. The ledger is sorted by its keys, which
are hashes, so the first records are a random sample."""

_DEVIATIONS = 3
_DRIFT, _MARGIN = 1.1, 1.25
"""The margins of the likely bound: standard deviations of the sum; a factor on the mean, since new texts may be longer;
and a factor on the largest of a few answers."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The mean, deviation and maximum of the input and output tokens of one task's answers. answers: their number."""

    answers: int
    mean: tuple[float, float]
    deviation: tuple[float, float]
    largest: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Judged:
    """The expected calls, and input and output tokens, and a bound that the tokens are unlikely to exceed.

    likely: None without answers. answers: the sample size.
    """

    calls: float
    expected: tuple[float, float]
    likely: tuple[int, int] | None
    answers: int


MEASURES = ("calls", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A plan's use of one model. likely, answers: as in `Judged`."""

    calls: Forecast
    input_tokens: Forecast
    output_tokens: Forecast
    likely: tuple[int, int] | None
    answers: int


def rates_of(store: Store, model: str) -> dict[str, Rate]:
    tokens_by_task: dict[str, list[tuple[int, int]]] = {}
    entries = (entry for _, _, entry in islice(ledger.scan(store), _READ))
    for entry in islice((entry for entry in entries if entry is not None and entry.model == model), _SAMPLE):
        tokens_by_task.setdefault(entry.task, []).append((entry.input_tokens, entry.output_tokens))
    rates = {}
    for task, tokens in sorted(tokens_by_task.items()):
        table = np.array(tokens, dtype=np.float64)
        rates[task] = Rate(len(tokens), _pair(table.mean(axis=0)), _pair(table.std(axis=0)), _pair(table.max(axis=0)))
    return rates


def judge(uses: Iterable[LlmUse], rates: Mapping[str, Rate]) -> Judged:
    """Estimate the calls and tokens of one model.

    A task with too few answers is expected to take its usual tokens, and adds its worst case to the likely bound.
    """
    expected, likely, worst, usual, unjudged = (np.zeros(2) for _ in range(5))
    answers: dict[str, int] = {}
    calls = 0.0
    for use in uses:
        most = np.array([use.input_tokens.high, use.output_tokens.high], dtype=np.float64)
        first = rates.get(use.tasks[0]) if use.tasks else None
        if first is None or first.answers < ENOUGH:
            calls += use.expected_prompts
            usual += np.minimum(use.usual, most)
            unjudged += most
            continue
        for task in use.tasks:
            rate = rates.get(task)
            if rate is None:  # no answer has required this call yet
                continue
            answers[task] = rate.answers
            share = rate.answers / first.answers
            high = share * use.prompts.high
            calls += share * use.expected_prompts
            expected += share * use.expected_prompts * np.array(rate.mean)
            if rate.answers < MANY:
                likely += high * _MARGIN * np.array(rate.largest)
            else:
                likely += high * _DRIFT * np.array(rate.mean) + _DEVIATIONS * math.sqrt(high) * np.array(rate.deviation)
        worst += most
    likely = np.minimum(likely, worst)
    expected = np.minimum(expected, likely) + usual
    is_judged = bool(answers) or not unjudged.any()
    return Judged(calls, _pair(expected), _whole(likely + unjudged) if is_judged else None, sum(answers.values()))


def model_uses(uses: Iterable[LlmUse], store: Store) -> dict[str, ModelUse]:
    """Return the use of each model, by name, with what is expected from the answers in the store's ledger."""
    by_model: dict[str, list[LlmUse]] = {}
    for use in uses:
        by_model.setdefault(use.model, []).append(use)
    return {name: _model_use(model, store) for name, model in by_model.items()}


def _model_use(uses: Sequence[LlmUse], store: Store) -> ModelUse:
    calls, inputs, outputs = (sum((getattr(use, name) for use in uses), ZERO) for name in MEASURES)
    counts = [use.counted for use in uses if use.counted is not None]
    if len(counts) == len(uses):
        counted = sum(counts, ZERO)
        judged = Judged(calls.low, (counted.low, 0), (counted.high, 0), 0)
    else:
        judged = judge(uses, rates_of(store, uses[0].model) if calls.high else {})
    return ModelUse(
        calls=Forecast.within(calls, judged.calls),
        input_tokens=Forecast.within(inputs, judged.expected[0]),
        output_tokens=Forecast.within(outputs, judged.expected[1]),
        likely=judged.likely,
        answers=judged.answers,
    )


def _pair(tokens: npt.NDArray[np.float64]) -> tuple[float, float]:
    inputs, outputs = tokens.tolist()
    return inputs, outputs


def _whole(tokens: npt.NDArray[np.float64]) -> tuple[int, int]:
    inputs, outputs = np.ceil(tokens.round(6)).astype(np.int64).tolist()
    return inputs, outputs
