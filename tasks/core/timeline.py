"""The timeline of a run, which shows the stages that each worker worked on, and when."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Any

MOST_SPANS = 2_000
"""The maximum number of spans in the record of a run: more than a page can show."""

_GAP = 0.5
"""The maximum pause within a span, in seconds."""

_GATHERED = 4 * MOST_SPANS
"""The number of spans in memory at which neighbouring spans are merged again."""


@dataclass(slots=True)
class _Span:
    worker: str
    stage: str
    began: float
    ended: float
    parts: int


class Timeline:
    """The work of a run's workers on its stages. Safe to use from many threads.

    A span is an interval in which a worker made parts of one stage, with pauses of at most half a second. If there are
    too many spans, longer pauses are bridged, then the shortest spans are dropped; the record counts their parts.
    """

    def __init__(self) -> None:
        self._spans: list[_Span] = []
        self._parts = 0
        self._lock = threading.Lock()

    def add(self, worker: str, stage: str, began: float, ended: float) -> None:
        """Record that a worker made a part; times are in seconds since the start of the run."""
        with self._lock:
            self._parts += 1
            self._spans.append(_Span(worker, stage, max(began, 0.0), max(ended, 0.0), 1))
            if len(self._spans) > _GATHERED:
                self._spans = _at_most(MOST_SPANS, self._spans)

    def to_json(self) -> dict[str, Any]:
        """Return the timeline in the form of the run's record.

        `workers`: names, in the order of their first span. `spans`: `[worker, stage, began, ended, parts]`, with the
        worker's index in `workers`, in the order of their start. `left_out`: the number of parts without a span.
        """
        with self._lock:
            parts, spans = self._parts, _at_most(MOST_SPANS, self._spans)
        spans.sort(key=lambda span: (span.began, span.worker, span.stage))
        places = {worker: place for place, worker in enumerate(dict.fromkeys(span.worker for span in spans))}
        return {
            "workers": list(places),
            "spans": [
                [places[span.worker], span.stage, round(span.began, 3), round(span.ended, 3), span.parts]
                for span in spans
            ],
            "left_out": parts - sum(span.parts for span in spans),
        }


def _at_most(most: int, spans: list[_Span]) -> list[_Span]:
    """Merge neighbouring spans, bridging longer pauses if needed; if more than `most` remain, keep the longest."""
    gap = _GAP
    merged = _merged(spans, gap)
    while len(merged) > most and gap < 60.0:
        gap *= 2
        merged = _merged(merged, gap)
    if len(merged) > most:
        merged = sorted(merged, key=lambda span: span.began - span.ended)[:most]
    return merged


def _merged(spans: list[_Span], gap: float) -> list[_Span]:
    """Copy the spans, and join a worker's consecutive spans on the same stage if the pause is at most `gap`."""
    merged: list[_Span] = []
    by_worker = sorted(spans, key=lambda span: (span.worker, span.began, span.ended))
    for _, worker_spans in itertools.groupby(by_worker, key=lambda span: span.worker):
        last: _Span | None = None
        for span in worker_spans:
            if last is not None and last.stage == span.stage and span.began - last.ended <= gap:
                last.ended = max(last.ended, span.ended)
                last.parts += span.parts
            else:
                last = _Span(span.worker, span.stage, span.began, span.ended, span.parts)
                merged.append(last)
    return merged
