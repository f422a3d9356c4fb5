"""The rows of the acceptance run. A group's rows run in order and are timed; an error in one does not stop the rest."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.acceptance.commands import CommandFailed, Programs
from benchmarks.acceptance.table import ResultLine, RowStatus


class Measure(NamedTuple):
    """A measured value and its floor. of: what the value measures, if its row has several values."""

    value: str
    floor: str
    is_met: bool
    of: str = ""


def at_least(values: Sequence[float], floors: Sequence[float], of: str = "") -> Measure:
    """Compare numbers with their floors."""
    value, floor = (" / ".join(f"{number:.3f}" for number in numbers) for numbers in (values, floors))
    return Measure(value, floor, all(value >= floor for value, floor in zip(values, floors, strict=True)), of)


@dataclass(frozen=True)
class AcceptanceRow:
    """A check of a group's subject. requires: rows that must pass first. reason: why there is no check yet."""

    name: str
    check: Callable[[Any], Iterable[Measure]] | None = None
    requires: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Group:
    """Rows that check one subject, which ``open`` creates. None is run if the data folder lacks one of ``files``."""

    name: str
    rows: tuple[AcceptanceRow, ...]
    open: Callable[[Path, Path, Programs], Any] = lambda data, folder, programs: None
    files: tuple[str, ...] = ()

    def title(self, row: AcceptanceRow) -> str:
        return f"{self.name}: {row.name}"

    def choose(self, only: Sequence[str]) -> Group:
        """Return the group with the rows whose titles contain one of the strings (all if none), and required rows."""
        by_name = {row.name: row for row in self.rows}
        names = {row.name for row in self.rows if not only or any(word in self.title(row) for word in only)}
        while required := {name for row in names for name in by_name[row].requires} - names:
            names |= required
        return Group(self.name, tuple(row for row in self.rows if row.name in names), self.open, self.files)


def run_group(group: Group, data: Path, work: Path) -> list[ResultLine]:
    """Run the rows of a group, in a folder of its own below ``work``; return their lines of the table."""
    missing = [data / name for name in group.files if not (data / name).exists()]
    if missing:
        return [ResultLine(group.title(row), RowStatus.NOT_RUN, f"there is no {missing[0]}") for row in group.rows]
    folder = work / group.name
    folder.mkdir(parents=True, exist_ok=True)
    programs = Programs(folder)
    subject = group.open(data, folder, programs)
    lines: dict[str, list[ResultLine]] = {}
    for row in group.rows:
        lines[row.name] = list(_run(group, row, subject, programs, lines))
    return [line for of_row in lines.values() for line in of_row]


def _run(
    group: Group, row: AcceptanceRow, subject: object, programs: Programs, before: Mapping[str, Sequence[ResultLine]]
) -> Iterator[ResultLine]:
    title = group.title(row)
    if row.check is None:
        yield ResultLine(title, RowStatus.NOT_RUN, row.reason)
        return
    failed = [name for name in row.requires if any(line.status is RowStatus.FAILED for line in before[name])]
    if failed:
        yield ResultLine(title, RowStatus.FAILED, f"needs {', '.join(failed)}, which failed")
        return
    print(title, file=sys.stderr, flush=True)
    began, cpu = time.perf_counter(), programs.cpu
    measures: list[Measure] = []
    try:
        for measure in row.check(subject):
            measures.append(measure)
    except CommandFailed as error:
        print(f"{title}: {error}", file=sys.stderr, flush=True)
        measures.append(Measure(str(error).splitlines()[0], "", False))
    except Exception as error:  # the other rows continue
        traceback.print_exc()
        measures.append(Measure(f"{type(error).__name__}: {error}", "", False))
    seconds, cpu = time.perf_counter() - began, programs.cpu - cpu
    for number, measure in enumerate(measures):
        status = RowStatus.PASSED if measure.is_met else RowStatus.FAILED
        times = (0.0, 0.0) if number else (seconds, cpu)
        yield ResultLine(f"{title} {measure.of}".rstrip(), status, measure.value, measure.floor, *times)
