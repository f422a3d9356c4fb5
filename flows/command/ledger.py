"""``indexmill ledger``: the stored answers of language models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import click

from flows.command.shared import FILE, make_progress, print_result, store_of
from flows.ledger import ExportReport, ImportReport, export_ledger, import_ledger
from indexmill.command.options import Options, common, shared_options
from indexmill.store.layout import ledger_prefixes
from indexmill.text.counted import counted
from indexmill.text.text_table import table
from storage import ledger, refusals

_COLUMNS = ("model", "task", "answers", "input_tokens", "output_tokens", "bytes")


@click.group("ledger")
@shared_options
def command() -> None:
    """Count, export or import the ledger: the answers of language models that were paid for.

    An answer is stored under the hash of everything that determines it: model, prompt, schema, parameters, texts. A
    build that needs the same answer again takes it from the ledger and pays nothing. Neither `gc` nor `build --cold`
    removes answers; `forget` removes those derived from a forgotten document.
    """


@command.command("stats", short_help="Count the answers and what they cost.")
@common
def stats(options: Options) -> None:
    """Count the answers by model and task, with their tokens and bytes."""
    store, progress = store_of(options), make_progress()
    progress.begin("stats", len(ledger_prefixes()))
    statistics, damaged, lost = ledger.stats(store, lambda: progress.advance("stats"))
    refused = sum(1 for _ in refusals.scan(store))
    rows = [
        {"model": model, "task": task, **{name: counts[name] for name in _COLUMNS[2:]}}
        for (model, task), counts in statistics.items()
    ]
    totals = {name: sum(counts[name] for counts in statistics.values()) for name in _COLUMNS[2:]}
    progress.end("stats", f"{counted(totals['answers'], 'answer')}")
    totals["bytes"] += lost
    lines = ["no language model has answered anything yet"]
    if rows:
        cells = [[row[name] for name in _COLUMNS] for row in rows]
        lines = [table(_COLUMNS, [*cells, ["all", "", *totals.values()]])]
    if damaged:
        lines.append(f"damaged records: {damaged:,}; not counted, and replaced when a build needs them again")
    if refused:
        lines.append(f"prompts without an answer: {refused:,}; `indexmill quarantine` lists them")
    print_result(options, {**totals, "damaged": damaged, "refused": refused, "models": rows}, lines)


@command.command("export", short_help="Write all answers to a file.")
@click.argument("file", type=FILE)
@common
def export(options: Options, file: Path) -> None:
    """Write all answers to FILE as JSON Lines, compressed if its name ends in .gz.

    The file appears under its name once complete; an existing file is refused. It contains text of the corpus, so the
    store keeps a record of the export, and `forget` lists it among the copies that it cannot reach. A build may be at
    work; answers that it receives meanwhile may be missing.
    """
    report = export_ledger(store_of(options), file, progress=make_progress())
    print_result(options, report, _export_lines(report))


def _export_lines(report: ExportReport) -> Iterator[str]:
    yield f"exported {counted(report.answers, 'answer')} to {report.path}: {counted(report.bytes, 'byte')}"
    if report.damaged:
        yield f"left out: {counted(report.damaged, 'damaged record')}"


@command.command("import", short_help="Add the answers of a file.")
@click.argument("file", type=FILE)
@click.option("--dry-run", is_flag=True, help="Read and count every line, and change nothing.")
@common
def import_(options: Options, file: Path, dry_run: bool) -> None:
    """Add the answers of FILE, which `ledger export` wrote from this store or another one.

    Answers that the store already has are kept. A line that is not exactly as it was exported is rejected, counted, and
    listed by `indexmill quarantine`; answers derived from a forgotten document are left out. A build checks an
    imported answer against its schema before it uses it. Exit codes: 2 there is no valid line, 5 a run is at work.
    """
    report = import_ledger(store_of(options), file, progress=make_progress(), dry_run=dry_run)
    reasons = dict(sorted(report.reasons.items()))
    print_result(options, {**dataclasses.asdict(report), "reasons": reasons}, _import_lines(report, reasons))


def _import_lines(report: ImportReport, reasons: dict[str, int]) -> Iterator[str]:
    yield f"answers {'to add' if report.dry_run else 'added'}: {report.added:,}; there already: {report.there:,}"
    if report.forgotten:
        yield f"left out, from forgotten documents: {report.forgotten:,}"
    for reason, count in reasons.items():
        yield f"refused lines, {reason}: {count:,}"
