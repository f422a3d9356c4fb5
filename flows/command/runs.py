"""``indexmill runs``: what runs did and how they ended."""

from __future__ import annotations

from typing import Any

import click

from flows.command.shared import blank
from indexmill.command.options import Options, common, printable, table
from storage.runs import Run

__all__ = ["command"]


@click.command("runs")
@click.argument("run_id", required=False)
@common
def command(options: Options, run_id: str | None) -> None:
    """The runs of a store, or all about one of them: what each stage made and reused, and how it ended."""
    from storage import runs as records
    from storage.folder import open_store

    store = open_store(options.store_path())
    if run_id is not None:
        found = _shown(records.read_run(store, run_id))
        if options.json:
            options.print_json(found)
        else:
            _print_run(found)
        return
    listed = [_shown(run) for run in records.list_runs(store)]
    if options.json:
        options.print_json({"runs": listed})
        return
    names = ["run", "state", "exit_code", "version", "started", "quarantined"]
    click.echo(table(names, [[blank(run[name]) for name in names] for run in listed]))


def _shown(run: Run) -> dict[str, Any]:
    """A run as people and scripts read it."""
    end = run.end
    return {
        "run": run.run_id,
        "command": run.start.command,
        "state": run.state,
        "exit_code": end.exit_code if end else None,
        "version": run.version,
        "parent": run.start.parent,
        "started": run.start.started,
        "ended": end.ended if end else None,
        "quarantined": run.quarantined,
        "error": end.error if end else None,
        "stages": dict(end.report) if end else {},
        "plan": end.plan if end else None,
    }


def _print_run(run: dict[str, Any]) -> None:
    stages, plan = run.pop("stages"), run.pop("plan")
    for name, value in run.items():
        if value is not None:
            click.echo(f"{name}: {printable(str(value))}")
    if stages:
        names = ["parts_made", "parts_reused", "seconds", "vectors_made", "vectors_reused"]
        rows = [[stage, *(counts.get(name, "") for name in names)] for stage, counts in stages.items()]
        click.echo(table(["stage", "made", "reused", "seconds", "vectors made", "vectors reused"], rows))
    if plan:
        rows = [[name, _planned(both["planned"]), both["actual"]] for name, both in plan.items()]
        click.echo(table(["plan and outcome", "planned", "actual"], rows))


def _planned(value: Any) -> object:
    if isinstance(value, dict):
        low, high = value["low"], value["high"]
        return low if low == high else f"{low} to {high}"
    return blank(value)
