"""A family as a build sees it: everything that the pipeline knows of it, in one declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schemas.config import Configuration
from tasks.core.checks import Check
from tasks.core.step import Step
from tasks.core.writer import Writer

__all__ = ["Family"]


def _never(_: Configuration) -> bool:
    return False


@dataclass(frozen=True)
class Family:
    """One way of retrieval, as a build makes it; `tasks/families/<name>/family.py` declares it as `FAMILY`.

    name: of the family, of its settings among `families`, of its stage whose outputs readers open, and of its step
    that makes them. steps: what makes it; they run where the family is enabled and their own `enabled` allows it.
    artifact: the output of that stage that `counts` counts. counts: of the arrays of this output, one argument for each
    part, the numbers that the manifest states. checks: what is held against what before a snapshot is published.
    writers: of its texts. history_dependent: True where its rows depend on the version before, beside the corpus.

    A registry imports every declaration: modules whose libraries are slow to import (igraph, leidenalg, faiss, spacy,
    torch) are to be imported inside the functions that use them.
    """

    name: str
    steps: tuple[Step, ...]
    artifact: str
    counts: Callable[..., Mapping[str, int]]
    checks: tuple[Check, ...] = ()
    writers: tuple[Writer, ...] = ()
    history_dependent: Callable[[Configuration], bool] = _never

    def enabled(self, configuration: Configuration) -> bool:
        """True if the settings ask for the family."""
        return bool(getattr(configuration.families, self.name).enabled)

    def guarded_steps(self) -> tuple[Step, ...]:
        """Its steps, enabled only where the family is."""

        def guarded(step: Step) -> Step:
            return replace(step, enabled=lambda settings: self.enabled(settings) and step.enabled(settings))

        return tuple(map(guarded, self.steps))
