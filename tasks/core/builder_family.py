"""The declaration of a family: everything that the pipeline knows about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schemas.config import Configuration
from tasks.core.checks import Check
from tasks.core.step import Step
from tasks.core.writer import Writer


@dataclass(frozen=True)
class BuilderFamily:
    """One retrieval family as a build sees it; `tasks/families/<name>/family.py` declares it as `FAMILY`.

    name: the name of the family, of its settings section in `families`, of the stage whose outputs readers open, and of
    the step that runs this stage. steps: run if the family is enabled and their own `enabled` allows it. artifact: the
    output of that stage that `counts` reads; empty if the family has no such stage. counts: computes the manifest's
    numbers from the arrays of this output, one argument for each part. shared: outputs of shared steps that `counts`
    also reads; each becomes an argument of the same name, with the arrays of every part. checks: run before a snapshot
    is published. writers: write the family's texts. history_dependent: True if the family's rows depend on the previous
    version as well as on the corpus.

    The registry imports every declaration. Import modules whose libraries are slow to import (igraph, leidenalg, faiss,
    spacy, torch) inside the functions that use them.
    """

    name: str
    steps: tuple[Step, ...]
    artifact: str
    counts: Callable[..., Mapping[str, int]]
    shared: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    writers: tuple[Writer, ...] = ()
    history_dependent: bool = False

    def enabled(self, configuration: Configuration) -> bool:
        return bool(getattr(configuration.families, self.name).enabled)

    def guarded_steps(self) -> tuple[Step, ...]:
        """Return the steps of the family, each enabled only if the family is."""

        def guarded(step: Step) -> Step:
            return replace(step, enabled=lambda settings: self.enabled(settings) and step.enabled(settings))

        return tuple(map(guarded, self.steps))
