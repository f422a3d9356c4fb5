"""The questions of the gate that miss documents, as a page lists them: those of the best method first."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.report.run_record import Missed, Quality

_OPEN = 10
"""The questions of the best method that are seen at once."""

_BEST, _OTHERS = 50, 15
"""The questions that are listed of the best method, and of each other one."""


@dataclass(frozen=True, slots=True)
class MissedByMethod:
    """The missed questions of a method that a page lists. shown: seen at once. folded: seen on a click.

    recall: of the method, None if it was not recorded. left_out: how many more the run recorded.
    """

    method: str
    recall: float | None
    shown: tuple[Missed, ...]
    folded: tuple[Missed, ...]
    left_out: int


def missed_by_method(quality: Quality) -> tuple[MissedByMethod, ...]:
    """The missed questions by method, the method with the highest recall first: it is the one that people use."""
    by_method: dict[str, list[Missed]] = {}
    for one in quality.missed:
        by_method.setdefault(one.method, []).append(one)
    return tuple(
        _of_method(method, quality.recall.get(method), some, is_best=not place)
        for place, (method, some) in enumerate(by_method.items())
    )


def _of_method(method: str, recall: float | None, some: list[Missed], *, is_best: bool) -> MissedByMethod:
    opened, most = (_OPEN, _BEST) if is_best else (0, _OTHERS)
    return MissedByMethod(method, recall, tuple(some[:opened]), tuple(some[opened:most]), max(len(some) - most, 0))
