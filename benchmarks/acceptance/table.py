"""The lines of the acceptance run: what was measured beside its floor, and what the run as a whole says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Status(Enum):
    """How a line ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table.

    seconds and cpu are those of a whole row; of the lines of one row the first has them.
    """

    row: str
    status: Status
    value: str
    floor: str = ""
    seconds: float = 0.0
    cpu: float = 0.0


def markdown(lines: Sequence[Line]) -> Iterator[str]:
    """The table, and under it the counts and what fails."""
    yield "| row | measured | floor | | s | CPU s |"
    yield "| --- | --- | --- | --- | ---: | ---: |"
    for line in lines:
        status = f"**{line.status.value}**" if line.status is Status.FAILED else line.status.value
        times = [f"{line.seconds:.0f}", f"{line.cpu:.0f}"] if line.seconds else ["", ""]
        yield f"| {' | '.join([line.row, *map(_cell, (line.value, line.floor)), status, *times])} |"
    counts = {status: sum(line.status is status for line in lines) for status in Status}
    yield ""
    yield ", ".join(f"{count} {status.value}" for status, count in counts.items())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def to_json(lines: Sequence[Line]) -> dict[str, Any]:
    """The same as one object."""
    return {
        "passed": not exit_code(lines),
        "rows": [asdict(line) | {"status": line.status.value} for line in lines],
    }


def exit_code(lines: Sequence[Line]) -> int:
    """1 if a line failed; what was not run fails nothing."""
    return int(any(line.status is Status.FAILED for line in lines))
