"""``indexmill runs``: the runs of a store, their work and their outcomes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from flows.command.shared import print_result, quality_lines, store_of
from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.text.counted import byte_size, counted, figure_text
from indexmill.text.durations import duration
from indexmill.text.printable import one_line, printable
from indexmill.text.terminal import PLAIN, TerminalStyle, columns_of, display_width, fitted, style_of
from indexmill.text.text_table import table
from storage import ledger
from storage import runs as records
from storage.protocol import Store
from storage.runs import StoredRun


@click.command("runs")
@click.argument("run_id", required=False)
@common
def command(options: Options, run_id: str | None) -> None:
    """List the runs of a store, or show one of them: how it ended, and what each stage made and reused."""
    store = store_of(options)
    if run_id is not None:
        with Waiting(f"reading the record of run {run_id}", only_terminals=True):
            stored = records.read_run(store, run_id)
            run = _summary(stored)
        if stored.state == "killed":
            with Waiting("counting the answers that the run paid for", only_terminals=True):
                run["paid"] = _paid(store, run_id)
        print_result(options, run, described(run))
        return
    with Waiting("reading the records of the runs", only_terminals=True):
        summaries = [_summary(run) for run in records.list_runs(store)]
    columns = columns_of(sys.stdout) if sys.stdout.isatty() else None
    print_result(options, {"runs": summaries}, [listing(summaries, columns, style_of(sys.stdout))])


def listing(summaries: Sequence[Mapping[str, Any]], columns: int | None = None, style: TerminalStyle = PLAIN) -> str:
    """Format runs as a table, one per line: command, state, duration, and the cause of a failure.

    columns: the width of a terminal. The cause is cut to the rest of the line, or gets its own line if little is left.
    """
    refused = any(run["quarantined"] for run in summaries)
    titles = ["run", "started (UTC)", "command", "state", "version", "duration", *["refused"] * refused]
    rows = [
        [
            run["run"],
            run["started"][:19].replace("T", " "),
            run["command"],
            run["state"],
            "" if run["version"] is None else str(run["version"]),
            "" if run["seconds"] is None else duration(run["seconds"]),
            *[f"{run['quarantined']:,}"] * refused,
        ]
        for run in summaries
    ]
    causes = [one_line(run["error"] or "") for run in summaries]
    right = ("version", "duration", "refused")
    if not any(causes):
        return table(titles, rows, right=right, style=style)
    plain = table(titles, rows, right=right).splitlines()
    if columns is None or columns - max(map(display_width, plain)) - 2 >= _CAUSE:
        both = [[*row, cause] for row, cause in zip(rows, causes, strict=True)]
        return table([*titles, "cause"], both, right=right, columns=columns, style=style)
    header, *lines = table(titles, rows, right=right, style=style).split("\n")
    result = [header]
    for line, cause in zip(lines, causes, strict=True):
        result += [line, *[style.dim(f"    {fitted(cause, columns - 4)}")] * bool(cause)]
    return "\n".join(result)


def _summary(run: StoredRun) -> dict[str, Any]:
    """Summarise a run for `--json`. The entries of its report are fields of the summary, under their own names."""
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


def _paid(store: Store, run_id: str) -> dict[str, int]:
    """Count the answers in the ledger that a run without a report paid for, and their tokens."""
    counts, _, _ = ledger.stats(store, run_id=run_id)
    names = ("answers", "input_tokens", "output_tokens")
    return {name: sum(of_task[name] for of_task in counts.values()) for name in names}


_CAUSE = 40
"""The minimum width of the column of causes."""

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

_NAMES = {"seconds": "duration", "quarantined": "refused rows"}
"""The labels of facts whose labels differ from their names."""

_COLUMNS = {
    "parts_made": "made",
    "parts_reused": "reused",
    "parts_failed": "failed",
    "quarantined": "refused",
    "wall_seconds": "wall s",
    "seconds": "work s",
    "bytes_made": "size",
    "vectors_made": "vectors",
    "vectors_reused": "copied",
    "llm_calls": "calls",
    "llm_ledger": "from ledger",
    "llm_tokens": "tokens",
    "embed_calls": "vector calls",
    "embed_ledger": "vectors from ledger",
    "embed_tokens": "vector tokens",
    "cost": "cost",
}
"""The counts in the row of a stage, with the titles of their columns."""

_UNLESS_ZERO = frozenset(_COLUMNS) - {"parts_made", "parts_reused", "wall_seconds", "seconds", "bytes_made"}
"""The counts whose columns are left out if they are zero in all stages."""


def described(run: Mapping[str, Any]) -> Iterator[str]:
    """Describe a run of `runs ID --json` as lines: its facts, recall, warnings, stages and plan."""
    for name in _FACTS:
        if run[name] is not None:
            value = duration(run[name]) if name == "seconds" else str(run[name])
            yield f"{_NAMES.get(name, name.replace('_', ' '))}: {printable(value)}"
    paid = run.get("paid")
    if paid and paid["answers"]:
        tokens = paid["input_tokens"] + paid["output_tokens"]
        yield f"paid for: {counted(paid['answers'], 'answer')} of language models, {counted(tokens, 'token')}"
    if run.get("quality"):
        yield from quality_lines(run["quality"])
    for warning in run.get("warnings", ()):
        yield f"warning: {one_line(str(warning))}"
    if left_out := run.get("warnings_left_out"):
        yield f"{counted(left_out, 'more warning was', 'more warnings were')} not recorded"
    stages, totals = run["stages"], run.get("totals", {})
    if stages:
        shown = [name for name in _COLUMNS if totals.get(name) or name not in _UNLESS_ZERO]
        in_order = sorted(stages.items(), key=lambda stage: stage[1].get("began_seconds", 0))
        rows = [[name, *_numbers(counts, shown)] for name, counts in in_order]
        rows.append(["total", *_numbers(totals, shown)])
        titles = [_COLUMNS[name] for name in shown]
        yield table(["stage", *titles], rows, right=titles, style=style_of(sys.stdout))
    if run["plan"]:
        rows = [
            [name, figure_text(figure["planned"]), figure_text(figure["actual"])]
            for name, figure in run["plan"].items()
        ]
        yield table(["plan and outcome", "planned", "actual"], rows, right=("planned", "actual"))


def _numbers(counts: dict[str, Any], shown: Sequence[str]) -> list[str]:
    """Format counts: sizes with their units, seconds to the hundredth, and money to the hundredth of a cent."""
    numbers = [counts.get(name, 0) for name in shown]
    return [
        byte_size(number)
        if name == "bytes_made"
        else f"{number:,.{4 if name == 'cost' else 2}f}"
        if isinstance(number, float)
        else f"{number:,}"
        for name, number in zip(shown, numbers, strict=True)
    ]
