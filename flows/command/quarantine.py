"""``indexmill quarantine``: the rows that a run refused."""

from __future__ import annotations

import click

from flows.command.shared import blank
from indexmill.command.options import Options, common, table

__all__ = ["command"]


@click.command("quarantine")
@click.option("--run", "run_id", metavar="ID", help="The run to look at; the last one by default.")
@common
def command(options: Options, run_id: str | None) -> None:
    """The rows that a run refused: file, line, document and the reason."""
    from storage import runs as records
    from storage.folder import open_store

    store = open_store(options.store_path())
    run_id, rows = records.quarantine_of(store, run_id)
    if options.json:
        options.print_json({"run": run_id, "quarantined": rows.num_rows, "rows": rows.to_pylist()})
        return
    if not rows.num_rows:
        click.echo(f"run {run_id} refused nothing" if run_id else "no run has read a corpus yet")
        return
    listed = [
        [blank(row[name]) for name in ("file", "line", "document_id", "reason", "detail")] for row in rows.to_pylist()
    ]
    click.echo(table(["file", "line", "document", "reason", "detail"], listed))
