"""What questions to a language model will take, judged from the answers that the ledger holds.

Bounds that hold whatever a model answers (`tasks.core.request_estimate`) are many times what it does answer. An answer
in the ledger says what it took, repairs included, so the answers of a task tell what its next questions will take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from storage import ledger
from storage.protocol import Store
from tasks.core.estimate import LlmUse

__all__ = ["ENOUGH", "Judged", "Rate", "judge", "rates_of"]

ENOUGH = 3
"""Answers of a task from which what it takes can be judged."""

MANY = 30
"""Answers of a task whose mean and deviation say what a number of them takes together; with fewer, each is taken to be
somewhat larger than the largest."""

_READ, _SAMPLE = 20_000, 4000
"""Records that are read at most, and answers of the model that are enough. The ledger is in the order of its keys,
which are hashes, so that the first are a random sample."""

_DEVIATIONS = 3
_DRIFT, _MARGIN = 1.1, 1.25
"""How far the likely bound is above the mean: by the scatter of a sum, and since tonight's texts may be longer; and how
far it is above the largest of a few answers."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What the answers of one task took, tokens of prompts and of answers: mean, deviation and largest of each.

    answers: how many there are.
    """

    answers: int
    mean: tuple[float, float]
    deviation: tuple[float, float]
    largest: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Judged:
    """Tokens of prompts and of answers as expected, and a bound that they are unlikely to pass.

    answers: from which this is judged.
    """

    expected: tuple[int, int]
    likely: tuple[int, int]
    answers: int


def rates_of(store: Store, model: str) -> dict[str, Rate]:
    """What a model's answers took, by task."""
    found: dict[str, list[tuple[int, int]]] = {}
    entries = (entry for _, _, entry in islice(ledger.scan(store), _READ))
    for entry in islice((one for one in entries if one is not None and one.model == model), _SAMPLE):
        found.setdefault(entry.task, []).append((entry.input_tokens, entry.output_tokens))
    rates = {}
    for task, tokens in sorted(found.items()):
        table = np.array(tokens, dtype=np.float64)
        rates[task] = Rate(len(tokens), _pair(table.mean(axis=0)), _pair(table.std(axis=0)), _pair(table.max(axis=0)))
    return rates


def judge(uses: Iterable[LlmUse], rates: Mapping[str, Rate]) -> Judged | None:
    """What some use of one model will take; None where no task of it has enough answers to judge by.

    A task that has too few counts with its bounds, and is expected to take as much of these as the others do of theirs.
    """
    expected, likely, worst, unjudged = (np.zeros(2) for _ in range(4))
    answers: dict[str, int] = {}
    asked = False
    for use in uses:
        asked |= use.calls.high > 0
        most = np.array([use.input_tokens.high, use.output_tokens.high], dtype=np.float64)
        first = rates.get(use.tasks[0]) if use.tasks else None
        if first is None or first.answers < ENOUGH:
            unjudged += most
            continue
        for task in use.tasks:
            rate = rates.get(task)
            if rate is None:  # no answer has yet called for this question
                continue
            answers[task] = rate.answers
            share = rate.answers / first.answers
            high = share * use.prompts.high
            expected += share * use.expected_prompts * np.array(rate.mean)
            if rate.answers < MANY:
                likely += high * _MARGIN * np.array(rate.largest)
            else:
                likely += high * _DRIFT * np.array(rate.mean) + _DEVIATIONS * math.sqrt(high) * np.array(rate.deviation)
        worst += most
    if asked and not answers:
        return None
    likely = np.minimum(likely, worst)
    expected = np.minimum(expected, likely)
    expected += unjudged * np.divide(expected, worst, out=np.zeros(2), where=worst > 0)
    likely += unjudged
    return Judged(_whole(expected), _whole(likely), sum(answers.values()))


def _pair(tokens: npt.NDArray[np.float64]) -> tuple[float, float]:
    inputs, outputs = tokens.tolist()
    return inputs, outputs


def _whole(tokens: npt.NDArray[np.float64]) -> tuple[int, int]:
    inputs, outputs = np.ceil(tokens.round(6)).astype(np.int64).tolist()
    return inputs, outputs
