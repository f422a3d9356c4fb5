"""``indexmill runs``: what runs did and how they ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from flows.command.shared import print_result, quality_lines, store_of, table_of
from indexmill.command.options import Options, common
from indexmill.text.printable import printable
from indexmill.text.table import table
from storage import runs as records
from storage.runs import Run

__all__ = ["command"]


@click.command("runs")
@click.argument("run_id", required=False)
@common
def command(options: Options, run_id: str | None) -> None:
    """List the runs of a store, or show one of them: how it ended, and what each stage made and reused."""
    store = store_of(options)
    if run_id is not None:
        run = _summary(records.read_run(store, run_id))
        print_result(options, run, _lines(run))
        return
    summaries = [_summary(run) for run in records.list_runs(store)]
    print_result(options, {"runs": summaries}, [table_of(_LISTED, summaries)])


def _summary(run: Run) -> dict[str, Any]:
    """How a run ended, with the entries of its report under their own names."""
    end = run.end
    return {
        "stages": {},
        **(end.report if end else {}),
        "run": run.run_id,
        "command": run.start.command,
        "state": run.state,
        "exit_code": end.exit_code if end else None,
        "version": run.version,
        "parent": run.start.parent,
        "candidate": run.candidate,
        "started": run.started,
        "ended": end.ended if end else None,
        "seconds": run.seconds,
        "quarantined": run.quarantined,
        "error": end.error if end else None,
        "plan": end.plan if end else None,
    }


_LISTED = {
    name: name for name in ("run", "state", "exit_code", "version", "command", "started", "seconds", "quarantined")
}

_FACTS = (
    "run",
    "command",
    "state",
    "exit_code",
    "version",
    "parent",
    "candidate",
    "started",
    "ended",
    "seconds",
    "quarantined",
    "error",
)

_COLUMNS = {
    "parts_made": "made",
    "parts_reused": "reused",
    "parts_failed": "failed",
    "quarantined": "quarantined",
    "wall_seconds": "wall s",
    "seconds": "work s",
    "bytes_made": "bytes made",
    "vectors_made": "vectors made",
    "vectors_reused": "vectors reused",
    "llm_calls": "calls",
    "llm_ledger": "from ledger",
    "llm_tokens": "tokens",
    "cost": "cost",
}
"""The counts of a stage that its row shows, and what they are called there."""

_UNLESS_ZERO = frozenset({"parts_failed", "quarantined", "llm_calls", "llm_ledger", "llm_tokens", "cost"})


def _lines(run: dict[str, Any]) -> Iterator[str]:
    for name in _FACTS:
        if run[name] is not None:
            yield f"{name}: {printable(str(run[name]))}"
    if run.get("quality"):
        yield from quality_lines(run["quality"])
    stages, totals = run["stages"], run.get("totals", {})
    if stages:
        shown = [name for name in _COLUMNS if totals.get(name) or name not in _UNLESS_ZERO]
        in_order = sorted(stages.items(), key=lambda stage: stage[1].get("began_seconds", 0))
        rows = [[name, *_numbers(counts, shown)] for name, counts in in_order]
        rows.append(["total", *_numbers(totals, shown)])
        yield table(["stage", *(_COLUMNS[name] for name in shown)], rows)
    if run["plan"]:
        rows = [[name, _planned(figure["planned"]), figure["actual"]] for name, figure in run["plan"].items()]
        yield table(["plan and outcome", "planned", "actual"], rows)


def _numbers(counts: dict[str, Any], shown: Sequence[str]) -> list[float]:
    """Some counts, seconds to the hundredth and money to the hundredth of a cent."""
    numbers = [counts.get(name, 0) for name in shown]
    return [
        round(number, 4 if name == "cost" else 2) if isinstance(number, float) else number
        for name, number in zip(shown, numbers, strict=True)
    ]


def _planned(value: Any) -> object:
    if isinstance(value, dict):
        low, high = value["low"], value["high"]
        return low if low == high else f"{low} to {high}"
    return "" if value is None else value
