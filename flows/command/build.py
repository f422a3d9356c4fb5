"""``indexmill build``: bring the index up to date with the corpus."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.command.shared import budget_of, budgeted, configured, progress_of, quality_lines
from indexmill.command.options import Options, common
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from flows.run import Outcome

__all__ = ["command", "tell"]


@click.command("build")
@click.option("--cold", is_flag=True, help="Make every part again; the ledger alone is kept.")
@click.option("--strict", is_flag=True, help="Exit with 2, publishing nothing, when a row is refused.")
@click.option(
    "--allow-shrink",
    is_flag=True,
    help="Publish although documents have gone: more than gates.max_shrink, all, or those of a silent source.",
)
@budgeted
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: the cores.")
@click.option("--dask", metavar="ADDRESS", help="Use the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Refuse (exit 3) where corpus, settings or index are not those of this plan: see `indexmill plan -o`.",
)
@click.option(
    "--max-cost", type=click.FloatRange(min=0), help="Refuse (exit 4) where the plan is likely to cost more than this."
)
@click.option("--note", default="", help="A remark kept with the version.")
@common
def command(
    options: Options,
    cold: bool,
    strict: bool,
    allow_shrink: bool,
    retry_refused: bool,
    budget_tokens: int | None,
    budget_cost: float | None,
    workers: int | None,
    dask: str | None,
    plan_file: Path | None,
    max_cost: float | None,
    note: str,
) -> None:
    """Bring the index up to date with the corpus and publish it as the next version.

    Only what the corpus changed is computed; a build that was interrupted goes on where it stopped. --max-cost holds
    the plan against a sum before anything is made; --budget-tokens and --budget-cost, or llm.budget, hold what is spent
    against one at every call: when it is reached what was asked is kept, and the next build goes on. Exit codes: 0
    published or nothing to do, 1 an error of the program, 2 bad input or configuration, 3 refused by a gate, 4 budget
    reached, 5 another run holds the lease, 6 the disk is full: free some space, and the next build goes on; 130
    interrupted.
    """
    run: dict[str, Any] = {"strict": True} if strict else {}
    if workers is not None:
        run["workers"] = workers
    configuration = configured(options, {"run": run, **budget_of(budget_tokens, budget_cost)})
    progress = progress_of()
    progress.doing("looking at the corpus")

    progress.doing("starting")
    from flows.local import build_under_prefect

    approved = None
    if plan_file is not None or max_cost is not None:
        from flows.plan import make_plan, read_plan
        from tasks.pipeline.plan.plan import Approved

        plan = (
            read_plan(plan_file)
            if plan_file is not None
            else make_plan(
                configuration,
                progress=progress,
                cold=cold,
                allow_shrink=allow_shrink,
                retry_refused=retry_refused,
            )
        )
        approved = Approved(plan, max_cost)
    outcome = build_under_prefect(
        configuration,
        progress=progress,
        cold=cold,
        allow_shrink=allow_shrink,
        retry_refused=retry_refused,
        dask=dask,
        note=note,
        approved=approved,
    )
    tell(options, outcome)


def tell(options: Options, outcome: Outcome) -> None:
    """How a build ended, for people or for scripts."""
    if options.json:
        options.print_json(dataclasses.asdict(outcome))
        return
    if outcome.published:
        held = f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}"
        click.echo(f"published version {outcome.version}: {held}")
    else:
        click.echo(f"nothing to do: version {outcome.version} is up to date")
    click.echo(
        f"parts: {outcome.parts_made} made, {outcome.parts_reused} reused; vectors: {outcome.vectors_made} made, "
        f"{outcome.vectors_reused} reused; {outcome.seconds:.1f} s"
    )
    if outcome.llm_calls or outcome.llm_ledger:
        asked = f"{counted(outcome.llm_calls, 'call')}, {counted(outcome.llm_tokens, 'token')}"
        click.echo(
            f"language model: {asked}, cost {outcome.cost:.4f}; "
            f"{counted(outcome.llm_ledger, 'answer was', 'answers were')} in the ledger"
        )
    if outcome.quality is not None:
        for line in quality_lines(outcome.quality):
            click.echo(line)
    if outcome.quarantined:
        click.echo(f"{counted(outcome.quarantined, 'row was', 'rows were')} refused: see `indexmill quarantine`")
    if outcome.forgotten:
        gone = counted(outcome.forgotten, "document of the corpus is", "documents of the corpus are")
        click.echo(f"{gone} forgotten, and left out")
