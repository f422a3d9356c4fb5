"""``indexmill quarantine``: the rows that a run refused, and the prompts that no model answered."""

from __future__ import annotations

import click

from flows.command.shared import blank
from indexmill.command.options import Options, common
from indexmill.text.table import table

__all__ = ["command"]


@click.command("quarantine")
@click.option("--run", "run_id", metavar="ID", help="The run to look at; the last one by default.")
@common
def command(options: Options, run_id: str | None) -> None:
    """What was refused: rows by file, line, document and reason; prompts by key, task and reason.

    The rows are those of one run. The prompts are all that have no usable answer to this day, or those that the run of
    --run gave up; they are asked again by `indexmill build --retry-refused`.
    """
    from storage import refusals
    from storage import runs as records
    from storage.folder import open_store

    store = open_store(options.store_path())
    prompts = [
        {"key": name.rpartition("/")[2]}
        | ({"reason": "damaged"} if one is None else one.model_dump(mode="json", exclude={"format", "key"}))
        for name, one in refusals.scan(store)
        if run_id is None or (one is not None and one.run_id == run_id)
    ]
    run_id, rows = records.quarantine_of(store, run_id)
    if options.json:
        options.print_json({"run": run_id, "quarantined": rows.num_rows, "rows": rows.to_pylist(), "prompts": prompts})
        return
    if rows.num_rows:
        columns = ("file", "line", "document_id", "reason", "detail")
        listed = [[blank(row[name]) for name in columns] for row in rows.to_pylist()]
        click.echo(table(["file", "line", "document", "reason", "detail"], listed))
    elif run_id is None:
        click.echo("no run has read a corpus yet")
    elif not prompts:
        click.echo(f"run {run_id} refused nothing")
    if prompts:
        names = ("key", "task", "model", "reason", "makes", "run_id")
        click.echo(table(["prompt", *names[1:]], [[one.get(name, "") for name in names] for one in prompts]))
