"""``indexmill quarantine``: the rows that a run rejected, and the prompts that no model answered."""

from __future__ import annotations

import click

from flows.command.shared import print_result, store_of, table_of
from indexmill.command.options import Options, common
from indexmill.text.printable import escaped
from storage import refusals
from storage import runs as records

_ROW = {"file": "file", "line": "line", "document_id": "document", "reason": "reason", "detail": "detail"}
_PROMPT = {"key": "prompt", **{name: name for name in ("task", "model", "reason", "makes", "run_id")}}


@click.command("quarantine")
@click.option("--run", "run_id", metavar="ID", help="Run to list; by default, the last run and all prompts.")
@common
def command(options: Options, run_id: str | None) -> None:
    """List rejected rows of the corpus, and prompts that no language model answered.

    The rows are those that one run rejected. The prompts are all that still have no usable answer, or with --run those
    that this run gave up on; `indexmill build --retry-refused` sends them again.
    """
    store = store_of(options)
    prompts = [
        {"key": name.rpartition("/")[2]}
        | ({"reason": "damaged"} if refusal is None else refusal.model_dump(mode="json", exclude={"format", "key"}))
        for name, refusal in refusals.scan(store)
        if run_id is None or (refusal is not None and refusal.run_id == run_id)
    ]
    run_id, refused = records.quarantine_of(store, run_id)
    rows = refused.to_pylist()
    lines = []
    if rows:
        names = ("file", "document_id")
        shown = [row | {name: escaped(row[name]) for name in names if isinstance(row.get(name), str)} for row in rows]
        lines.append(table_of(_ROW, shown))
    elif run_id is None:
        lines.append("no run has read a corpus yet")
    elif not prompts:
        lines.append(f"run {run_id} rejected nothing")
    if prompts:
        lines.append(table_of(_PROMPT, prompts))
    print_result(options, {"run": run_id, "quarantined": len(rows), "rows": rows, "prompts": prompts}, lines)
