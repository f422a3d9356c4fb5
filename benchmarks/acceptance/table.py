"""The table of the acceptance run: values with their floors, and the outcome of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class RowStatus(Enum):
    """The outcome of a line."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A line of the table. seconds, cpu: the times of the complete row, given on the row's first line only."""

    row: str
    status: RowStatus
    value: str
    floor: str = ""
    seconds: float = 0.0
    cpu: float = 0.0


def markdown(lines: Sequence[ResultLine]) -> Iterator[str]:
    """Yield the lines of the table, and the counts of each status."""
    yield "| row | measured | floor | | s | CPU s |"
    yield "| --- | --- | --- | --- | ---: | ---: |"
    for line in lines:
        status = f"**{line.status.value}**" if line.status is RowStatus.FAILED else line.status.value
        times = [f"{line.seconds:.0f}", f"{line.cpu:.0f}"] if line.seconds else ["", ""]
        yield f"| {' | '.join([line.row, *map(_cell, (line.value, line.floor)), status, *times])} |"
    counts = {status: sum(line.status is status for line in lines) for status in RowStatus}
    yield ""
    yield ", ".join(f"{count} {status.value}" for status, count in counts.items())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def to_json(lines: Sequence[ResultLine]) -> dict[str, Any]:
    return {
        "passed": not exit_code(lines),
        "rows": [asdict(line) | {"status": line.status.value} for line in lines],
    }


def exit_code(lines: Sequence[ResultLine]) -> int:
    """Return 1 if a line failed; rows that were not run are ignored."""
    return int(any(line.status is RowStatus.FAILED for line in lines))
