"""``indexmill batches``: what is being answered at an endpoint, by its Batch API."""

from __future__ import annotations

from typing import Any

import click

from flows.command.shared import blank, configured
from indexmill.command.options import Options, common
from indexmill.text.printable import one_line
from indexmill.text.table import table

__all__ = ["command"]

_COLUMNS = ("id", "state", "questions", "stage", "model", "started", "endpoint", "batch_id")


@click.command("batches")
@click.option("--cancel", metavar="ID", help="End this one at the endpoint; what it has answered is kept.")
@click.option("--give-up", metavar="ID", help="Drop this one here: what it brings is lost, and may be paid again.")
@common
def command(options: Options, cancel: str | None, give_up: str | None) -> None:
    """The batches that are not collected yet: questions that `backfill` with llm.batch has sent to an endpoint.

    The next run that asks a language model waits for those that it needs, and keeps what the others have brought. One
    that is cancelled ends within minutes with the answers so far; the next run keeps these and asks the rest directly.
    One that its endpoint does not know any more has to be given up. Exit codes: 0 done; 2 there is no such batch, or
    its endpoint cannot be asked with these settings; 5 another run is at work and waits for what was to be given up.
    """
    from indexmill.errors import BadInput
    from storage import batches
    from storage.folder import open_store

    if cancel is not None and give_up is not None:
        raise BadInput("--cancel and --give-up are two ways to end a batch: give one of them")
    store = open_store(options.store_path())
    if give_up is not None:
        _give_up(options, give_up)
        return
    begun = batches.begun(store)
    if cancel is not None:
        chosen = [batch for batch in begun if batch.id == cancel]
        if not chosen or chosen[0].started is None:
            raise BadInput(f"{cancel} is no batch at an endpoint: `indexmill batches` lists those that are")
        _cancel(options, chosen[0])
        return
    rows: list[dict[str, Any]] = [
        {
            "id": batch.id,
            "state": batch.state,
            "questions": len(batch.asked.questions),
            "stage": batch.asked.stage,
            "model": batch.asked.model,
            "started": batch.started.created if batch.started else None,
            "endpoint": batch.asked.endpoint,
            "batch_id": batch.started.batch_id if batch.started else None,
            "run": batch.asked.run_id,
        }
        for batch in begun
    ]
    if options.json:
        options.print_json({"batches": rows})
    elif rows:
        click.echo(table(_COLUMNS, [[blank(row[name]) for name in _COLUMNS] for row in rows]))
    else:
        click.echo("no batch is at an endpoint")


def _cancel(options: Options, batch: Any) -> None:
    from indexmill.errors import BadInput
    from indexmill.models.openai_batches import OpenAiBatches
    from indexmill.models.openai_llm import open_llm

    endpoint = OpenAiBatches(open_llm(configured(options).llm))
    if endpoint.where != batch.asked.endpoint:
        raise BadInput(f"{batch}: llm.base_url is that of {endpoint.where}")
    shown = endpoint.cancel(batch.started.batch_id)
    status = "unknown" if shown is None else shown.status
    if options.json:
        options.print_json({"id": batch.id, "batch_id": batch.started.batch_id, "status": status})
    else:
        click.echo(one_line(f"{batch}: {status}"))


def _give_up(options: Options, batch: str) -> None:
    from flows.operation import operation
    from indexmill.errors import BadInput
    from storage import batches
    from storage.folder import open_store

    with operation(open_store(options.store_path()), "batches", details={"give_up": batch}) as run:
        if not batches.give_up(run.store, batch):
            raise BadInput(f"there is no batch {batch}: `indexmill batches` lists those that there are")
        run.done = True
    if options.json:
        options.print_json({"id": batch, "status": "given-up"})
    else:
        click.echo(f"batch {batch} is given up; what is left of it at its endpoint has to be deleted there")
