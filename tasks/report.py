"""What a run tells while it works and after: progress events, and counts per stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Progress", "Report", "Silent", "StageReport"]


class Progress(Protocol):
    """Told about each stage as it goes; implementations print, and never fail."""

    def begin(self, stage: str, parts: int) -> None:
        """A stage starts, with so many parts to make or find."""
        ...

    def advance(self, stage: str, parts: int = 1) -> None:
        """Some parts of a stage are there."""
        ...

    def end(self, stage: str, summary: str) -> None:
        """A stage is done; the summary is a few words."""
        ...

    def warn(self, message: str) -> None:
        """Something that a person should know, and that does not stop the run."""
        ...

    def note(self, message: str) -> None:
        """Something that is as it should be, and good to know."""
        ...


class Silent:
    """Says nothing."""

    def begin(self, stage: str, parts: int) -> None:
        pass

    def advance(self, stage: str, parts: int = 1) -> None:
        pass

    def end(self, stage: str, summary: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    def note(self, message: str) -> None:
        pass


@dataclass
class StageReport:
    """Counts of one stage. `seconds` is work summed over workers, not time on the wall."""

    parts_made: int = 0
    parts_reused: int = 0
    parts_differing: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """The report as the run's record keeps it."""
        return {
            "parts_made": self.parts_made,
            "parts_reused": self.parts_reused,
            "parts_differing": self.parts_differing,
            "seconds": round(self.seconds, 3),
            **dict(sorted(self.counts.items())),
        }


@dataclass
class Report:
    """Counts of a run, stage by stage in the order they began."""

    stages: dict[str, StageReport] = field(default_factory=dict)
    changed_files: tuple[str, ...] = ()  # changed while they were read

    def stage(self, name: str) -> StageReport:
        """The report of a stage, begun if it is new."""
        return self.stages.setdefault(name, StageReport())

    def total(self, count: str) -> int:
        """A count over all stages."""
        return sum(stage.counts[count] for stage in self.stages.values())

    @property
    def parts_made(self) -> int:
        return sum(stage.parts_made for stage in self.stages.values())

    @property
    def parts_reused(self) -> int:
        return sum(stage.parts_reused for stage in self.stages.values())
