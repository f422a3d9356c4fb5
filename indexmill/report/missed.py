"""The gate's questions with missed documents, in the order of their display: the best method first."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.report.run_record import GateMeasurement, Missed

_OPEN = 10  # the maximum questions of the best method visible without a click

_BEST, _OTHERS = 50, 15  # the maximum questions listed for the best method, and for each other method


@dataclass(frozen=True, slots=True)
class MissedByMethod:
    """The missed questions of a method that a page lists. shown: visible immediately. folded: visible after a click.

    recall: the method's recall; None if it was not recorded. left_out: the number of questions that are not listed.
    """

    method: str
    recall: float | None
    shown: tuple[Missed, ...]
    folded: tuple[Missed, ...]
    left_out: int


def missed_by_method(quality: GateMeasurement) -> tuple[MissedByMethod, ...]:
    """Return the missed questions by method, the method with the highest recall first."""
    by_method: dict[str, list[Missed]] = {}
    for missed in quality.missed:
        by_method.setdefault(missed.method, []).append(missed)
    return tuple(
        _of_method(method, quality.recall.get(method), questions, is_best=not position)
        for position, (method, questions) in enumerate(by_method.items())
    )


def _of_method(method: str, recall: float | None, questions: list[Missed], *, is_best: bool) -> MissedByMethod:
    opened, most = (_OPEN, _BEST) if is_best else (0, _OTHERS)
    return MissedByMethod(
        method, recall, tuple(questions[:opened]), tuple(questions[opened:most]), max(len(questions) - most, 0)
    )
