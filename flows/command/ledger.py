"""``indexmill ledger``: the answers of language models that were paid for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from flows.command.shared import progress_of
from indexmill.command.options import Options, common, shared_options
from indexmill.text.counted import counted
from indexmill.text.table import table

__all__ = ["command"]

_COLUMNS = ("model", "task", "answers", "input_tokens", "output_tokens", "bytes")


@click.group("ledger")
@shared_options
def command() -> None:
    """The answers of language models that were paid for: count them, hand them over, take them in.

    An answer is kept under the hash of all that shapes it: model, prompt, schema, parameters, texts. A build that asks
    the same again finds it here and pays nothing. Neither `gc` nor `build --cold` touches it; `forget` removes what
    comes from a forgotten document.
    """


@command.command("stats", short_help="How many answers there are, and what they cost.")
@common
def stats(options: Options) -> None:
    """How many answers there are, by model and task, what they cost in tokens, and how much room they take."""
    from indexmill.store.layout import ledger_prefixes
    from storage import ledger, refusals
    from storage.folder import open_store

    store, progress = open_store(options.store_path()), progress_of()
    progress.begin("stats", len(ledger_prefixes()))
    found, damaged, lost = ledger.stats(store, lambda: progress.advance("stats"))
    refused = sum(1 for _ in refusals.scan(store))
    rows = [
        {"model": model, "task": task, **{name: counts[name] for name in _COLUMNS[2:]}}
        for (model, task), counts in found.items()
    ]
    totals = {name: sum(counts[name] for counts in found.values()) for name in _COLUMNS[2:]}
    progress.end("stats", f"{counted(totals['answers'], 'answer')}")
    totals["bytes"] += lost
    if options.json:
        options.print_json({**totals, "damaged": damaged, "refused": refused, "models": rows})
        return
    if rows:
        shown = [[row[name] for name in _COLUMNS] for row in rows]
        click.echo(table(_COLUMNS, [*shown, ["all", "", *totals.values()]]))
    else:
        click.echo("no language model has answered anything yet")
    if damaged:
        click.echo(f"damaged records: {damaged:,}; they count as none, and are replaced when they are asked for again")
    if refused:
        click.echo(f"prompts without an answer: {refused:,}; `indexmill quarantine` lists them")


@command.command("export", short_help="Write all answers to a file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@common
def export(options: Options, file: Path) -> None:
    """Write all answers to FILE, JSON Lines, compressed where its name ends in .gz.

    The file appears under its name once it is whole; one that exists is refused. It holds words of the corpus: the
    store keeps a record of the export, and `forget` lists it among the copies that are out of reach. A build may be at
    work; what it is answered meanwhile may be missing.
    """
    from flows.ledger import export_ledger
    from storage.folder import open_store

    made = export_ledger(open_store(options.store_path()), file, progress=progress_of())
    if options.json:
        options.print_json(dataclasses.asdict(made))
        return
    click.echo(f"exported {counted(made.answers, 'answer')} to {made.path}: {counted(made.bytes, 'byte')}")
    if made.damaged:
        click.echo(f"left out: {counted(made.damaged, 'damaged record')}")


@command.command("import", short_help="Take in the answers of a file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Read and count every line, and touch nothing.")
@common
def take_in(options: Options, file: Path, dry_run: bool) -> None:
    """Take in the answers of FILE, which `ledger export` wrote, here or for another store.

    An answer that the store has already stays. A line that is not exactly as it was exported is refused, counted, and
    listed by `indexmill quarantine`; what comes from a forgotten document is left out. An answer that was taken in is
    held against its schema again before a build uses it. Exit codes: 2 where no line is a record, 5 while a run is at
    work.
    """
    from flows.ledger import import_ledger
    from storage.folder import open_store

    done = import_ledger(open_store(options.store_path()), file, progress=progress_of(), dry_run=dry_run)
    if options.json:
        options.print_json({**dataclasses.asdict(done), "reasons": dict(sorted(done.reasons.items()))})
        return
    click.echo(f"answers {'to add' if dry_run else 'added'}: {done.added:,}; there already: {done.there:,}")
    if done.forgotten:
        click.echo(f"left out, from forgotten documents: {done.forgotten:,}")
    for reason, count in sorted(done.reasons.items()):
        click.echo(f"refused lines, {reason}: {count:,}")
