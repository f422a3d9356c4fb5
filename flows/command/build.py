"""``indexmill build``: bring the index up to date with the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.command.shared import (
    FILE,
    begin,
    build_options,
    print_result,
    quality_lines,
    run_options,
)
from indexmill.command.options import Options, common
from indexmill.text.counted import counted
from indexmill.text.durations import duration

if TYPE_CHECKING:
    from flows.build_run import BuildOutcome, PlanOptions
    from schemas.config import Configuration


@click.command("build")
@build_options
@run_options
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    type=FILE,
    help="Refuse (exit code 3) if corpus, settings or index differ from those of this plan: see `indexmill plan -o`.",
)
@click.option(
    "--max-cost", type=click.FloatRange(min=0), help="Refuse (exit code 4) if the plan will likely cost more than this."
)
@common
def command(
    options: Options,
    configuration: Configuration,
    how: PlanOptions,
    note: str,
    plan_file: Path | None,
    max_cost: float | None,
) -> None:
    """Bring the index up to date with the corpus and publish it as the next version.

    Only changes of the corpus are computed, and an interrupted build continues where it stopped. --max-cost limits the
    planned cost before anything is made. --budget-tokens and --budget-cost, or llm.budget, limit the amount spent, at
    every call; when the budget is reached, the answers so far are kept, and the next build continues.

    Exit codes: 0 published or nothing to do, 1 an error of the program, 2 bad input or configuration, 3 refused by a
    gate, 4 budget reached, 5 another run holds the lease, 6 the disk is full (free some space, and the next build
    continues), 130 interrupted.
    """
    progress = begin("build", configuration)
    from flows import local  # takes seconds, so after the first line
    from flows.plan import make_plan, read_plan
    from tasks.pipeline.plan.plan import Approved

    plan = None
    if plan_file is not None:
        plan = read_plan(plan_file)
    elif max_cost is not None:
        plan = make_plan(configuration, progress=progress, **how)
    approved = None if plan is None else Approved(plan, max_cost)
    outcome = local.build_under_prefect(configuration, progress=progress, note=note, approved=approved, **how)
    print_result(options, outcome, outcome_lines(outcome))


def outcome_lines(outcome: BuildOutcome) -> Iterator[str]:
    """Describe the outcome of a build."""
    if outcome.published:
        size = f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}"
        yield f"published version {outcome.version}: {size}"
    else:
        yield f"nothing to do: version {outcome.version} is up to date"
    if outcome.files_unchanged:
        yield f"{counted(outcome.files_read, 'file')} read, {outcome.files_unchanged:,} unchanged"
    yield (
        f"parts: {outcome.parts_made} made, {outcome.parts_reused} reused; vectors: {outcome.vectors_made} made, "
        f"{outcome.vectors_reused} reused; {duration(outcome.seconds)}"
    )
    if outcome.llm_calls or outcome.llm_ledger:
        yield (
            f"language model: {counted(outcome.llm_calls, 'call')}, {counted(outcome.llm_tokens, 'token')}, "
            f"cost {outcome.cost:.4f}; {counted(outcome.llm_ledger, 'answer was', 'answers were')} in the ledger"
        )
    if outcome.embed_calls or outcome.embed_ledger:
        yield (
            f"vectors of the endpoint: {counted(outcome.embed_calls, 'call')}, "
            f"{counted(outcome.embed_tokens, 'token')}; {outcome.embed_ledger:,} in the ledger; cost of all calls "
            f"{outcome.cost:.4f}"
        )
    if outcome.quality is not None:
        yield from quality_lines(outcome.quality)
    if outcome.quarantined:
        yield f"{counted(outcome.quarantined, 'row was', 'rows were')} refused: see `indexmill quarantine`"
    if outcome.forgotten:
        forgotten = counted(outcome.forgotten, "document of the corpus is", "documents of the corpus are")
        yield f"{forgotten} forgotten, and left out"
