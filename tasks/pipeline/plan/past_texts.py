"""The expected number of texts that a build writes again, from its changed documents and from past builds.

A text of many documents, such as the report of a community, is written again if one of them changes. A few changed
documents touch many texts, and further ones touch the same texts again: the share of written texts is about a power of
the share of changed documents. The exponent, from 0 to 1, depends on the corpus, so past builds give it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from storage.runs import StoredRun
from tasks.pipeline.plan.duration import stage_counts

USUAL_EXPONENT = 0.5
"""The exponent of a store without builds that changed some of its documents; later it counts as one of theirs."""

_RUNS = 20
"""The number of newest builds that are used."""

_OTHERS = {"bytes", "documents", "parts", "vectors"}


@dataclass(frozen=True, slots=True)
class PastTexts:
    """What a past build counted: its documents, the changed ones, and a stage's texts, the written ones."""

    documents: int
    changed: int
    texts: int
    written: int


def past_texts(history: Iterable[StoredRun], stage: str) -> list[PastTexts]:
    """Return the counts of one stage in the newest successful builds, oldest first."""
    past = []
    for run in history:
        stages = stage_counts(run)
        if run.end is not None and run.end.exit_code == 0 and {"ingest", "split", stage} <= stages.keys():
            written, reused = _texts(stages[stage], "_made"), _texts(stages[stage], "_reused")
            documents, changed = stages["ingest"].get("documents", 0), stages["split"].get("documents_made", 0)
            if documents and written + reused:
                past.append(PastTexts(documents, changed, written + reused, written))
    return past[-_RUNS:]


def expected_texts(past: Sequence[PastTexts], documents: int, changed: int) -> float | None:
    """Estimate how many texts a build writes with so many documents, some of them changed; None without past builds.

    The number of all texts per document is the largest that was counted, since a build does not count the texts of
    parts that it reuses.
    """
    if not past or not documents:
        return None
    rate = max(build.texts / build.documents for build in past)
    exponents = [
        min(1.0, math.log(build.written / (rate * build.documents)) / math.log(build.changed / build.documents))
        if build.written
        else 1.0
        for build in past
        if 0 < build.changed < build.documents
    ]
    share = min(1.0, changed / documents)
    return rate * documents * share ** median([USUAL_EXPONENT, *exponents]) if share else 0.0


def _texts(counts: Mapping[str, Any], suffix: str) -> int:
    return sum(n for name, n in counts.items() if name.endswith(suffix) and name.removesuffix(suffix) not in _OTHERS)
