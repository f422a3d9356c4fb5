"""``indexmill batches``: the open batches of prompts at an endpoint's Batch API."""

from __future__ import annotations

from typing import Any

import click

from flows.command.shared import configuration_of, print_result, store_of, table_of
from flows.operation import operation
from indexmill.command.options import Options, common
from indexmill.errors import BadInput
from indexmill.models.openai_llm import open_llm
from indexmill.text.printable import one_line
from storage import batches
from storage.batches import Batch
from tasks.llm.openai_batches import OpenAiBatches

_COLUMNS = {name: name for name in ("id", "state", "questions", "stage", "model", "started", "endpoint", "batch_id")}


@click.command("batches")
@click.option("--cancel", metavar="ID", help="End this batch at the endpoint; its answers so far are kept.")
@click.option("--give-up", metavar="ID", help="Forget this batch: its answers are lost, and may be paid for again.")
@common
def command(options: Options, cancel: str | None, give_up: str | None) -> None:
    """List the batches that `backfill` with llm.batch sent to an endpoint and that are not collected yet.

    The next run that calls a language model waits for the batches it needs, and keeps the answers of the others. A
    cancelled batch ends within minutes with the answers so far; the next run keeps them and sends the other prompts
    directly. Give up a batch that its endpoint no longer knows.

    Exit codes: 0 done; 2 no such batch exists, or the settings name another endpoint or one that cannot be called; 5
    another run is at work: wait for it before giving up a batch.
    """
    if cancel is not None and give_up is not None:
        raise BadInput("--cancel and --give-up are mutually exclusive: give only one")
    if cancel is not None:
        _cancel(options, cancel)
    elif give_up is not None:
        _give_up(options, give_up)
    else:
        rows = [_row(batch) for batch in batches.begun(store_of(options))]
        lines = [table_of(_COLUMNS, rows) if rows else "there are no open batches"]
        print_result(options, {"batches": rows}, lines)


def _row(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "state": batch.state,
        "questions": len(batch.request.questions),
        "stage": batch.request.stage,
        "model": batch.request.model,
        "started": batch.started.created if batch.started else None,
        "endpoint": batch.request.endpoint,
        "batch_id": batch.started.batch_id if batch.started else None,
        "run": batch.request.run_id,
    }


def _cancel(options: Options, name: str) -> None:
    batch = next((batch for batch in batches.begun(store_of(options)) if batch.id == name), None)
    if batch is None or batch.started is None:
        raise BadInput(f"{name} is not an open batch at an endpoint: `indexmill batches` lists the batches")
    endpoint = OpenAiBatches(open_llm(configuration_of(options).llm))
    if endpoint.where != batch.request.endpoint:
        raise BadInput(f"{batch}: llm.base_url belongs to {endpoint.where}")
    shown = endpoint.cancel(batch.started.batch_id)
    status = "unknown" if shown is None else shown.status
    result = {"id": batch.id, "batch_id": batch.started.batch_id, "status": status}
    print_result(options, result, [one_line(f"{batch}: {status}")])


def _give_up(options: Options, name: str) -> None:
    with operation(store_of(options), "batches", details={"give_up": name}) as run:
        if not batches.give_up(run.store, name):
            raise BadInput(f"there is no batch {name}: `indexmill batches` lists them")
        run.done = True
    line = f"batch {name} is given up; delete its remaining files at its endpoint"
    print_result(options, {"id": name, "status": "given-up"}, [line])
