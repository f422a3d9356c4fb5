"""``indexmill plan``: what the next build would do, touching nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.command.shared import configured, progress_of
from indexmill.command.options import Options, common
from indexmill.text.printable import one_line
from indexmill.text.table import table

if TYPE_CHECKING:
    from tasks.core.estimate import Range
    from tasks.pipeline.plan.plan import Cost, Plan

__all__ = ["command"]

_CAUSES = {
    "first": "first build",
    "cold": "--cold",
    "model": "model differs",
    "code": "code or libraries differ",
    "settings": "settings differ",
    "corpus": "corpus changed",
    "lost": "lost or damaged",
}


@click.command("plan")
@click.option("--cold", is_flag=True, help="Plan a build that makes every part again.")
@click.option("--strict", is_flag=True, help="Exit with 2 when a row is refused.")
@click.option("--allow-shrink", is_flag=True, help="Plan although documents have gone: see `build`.")
@click.option("--retry-refused", is_flag=True, help="Plan a build that asks again what language models refused.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes on this machine; default: the cores.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0), help="Exit with 4 where the build is likely to cost more than this."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the plan, for `build --plan FILE`.",
)
@common
def command(
    options: Options,
    cold: bool,
    strict: bool,
    allow_shrink: bool,
    retry_refused: bool,
    workers: int | None,
    max_cost: float | None,
    output: Path | None,
) -> None:
    """Say what the next build would do: documents, parts and vectors to make and why, LLM calls, cost, bytes and time.

    Nothing in the store changes and no lease is taken: plan while a build is running, on a read-only store, or before
    there is one. Exit codes are those that the build would end with before it makes anything: 2 bad input or
    configuration, 3 refused by a gate, 4 above --max-cost.
    """
    run: dict[str, Any] = {"strict": True} if strict else {}
    if workers is not None:
        run["workers"] = workers
    configuration = configured(options, {"run": run})
    progress = progress_of()
    progress.doing("starting")

    from flows.plan import make_plan, write_plan
    from tasks.pipeline.plan.plan import Approved

    plan = make_plan(
        configuration, progress=progress, cold=cold, allow_shrink=allow_shrink, retry_refused=retry_refused
    )
    progress.close()
    if output is not None:
        write_plan(output, plan)
    if options.json:
        options.print_json(plan.to_json())
    else:
        click.echo("\n".join(_lines(plan)))
    Approved(plan, max_cost).check_cost()


def _lines(plan: Plan) -> list[str]:
    documents = plan.documents
    found = (
        f"{documents.added} added, {documents.changed} changed, {documents.removed} removed, {documents.moved} moved"
    )
    start = f"version {plan.parent.version}" if plan.parent else "nothing: no version is there yet"
    lines = [f"from {start}", f"documents: {found}, {documents.unchanged} unchanged"]
    if plan.refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in plan.refused.items())
        lines.append(f"refused rows: {sum(plan.refused.values())} ({reasons})")
    if not plan.publishes:
        return [*lines, f"nothing to do: {start} is up to date"]
    lines += _table(plan)
    if plan.changes:
        lines.append("differs from the parent: " + ", ".join(one_line(str(change)) for change in plan.changes))
    cost = plan.cost
    calls = f"LLM calls: {_range(plan.llm_calls)}"
    if plan.llm_calls.high:
        calls += f"; tokens: {_range(plan.llm_tokens.input)} in, {_range(plan.llm_tokens.output)} out"
    lines.append(f"{calls}; cost: {_cost(cost)}")
    if cost.unpriced:
        lines.append(f"without {', '.join(cost.unpriced)}, for which `prices:` has no price")
    return [*lines, _bytes(plan), _time(plan)]


def _table(plan: Plan) -> list[str]:
    rows: list[list[object]] = []
    for name, stage in plan.stages.items():
        if stage.made or stage.reused:
            why = ", ".join(f"{_CAUSES[cause]} ({count})" for cause, count in stage.causes.items())
            vectors = stage.vectors_made if stage.vectors_made + stage.vectors_reused else ""
            kept = stage.vectors_reused if stage.vectors_made + stage.vectors_reused else ""
            rows.append([name, str(stage.made), str(stage.reused), str(vectors), str(kept), why])
    parts = plan.parts
    rows.append(["all", str(parts.made), str(parts.reused), str(parts.vectors_made), str(parts.vectors_reused), ""])
    return [table(["stage", "parts to make", "reused", "vectors to make", "reused", "why (parts)"], rows)]


def _bytes(plan: Plan) -> str:
    if plan.bytes is None:
        return "new bytes: no version to judge from"
    size = plan.bytes
    told = f"new bytes: about {_size(size.snapshot)} in the snapshot, about {_size(size.work)} for later builds"
    return told + (f"; without {', '.join(size.unjudged)}, which the last version lacks" if size.unjudged else "")


def _time(plan: Plan) -> str:
    if plan.seconds is None:
        return "time: no past run to judge from"
    seconds = plan.seconds
    runs = f"{len(seconds.runs)} run{'s' if seconds.runs[1:] else ''}"
    told = f"time: {seconds.low:.0f} to {seconds.high:.0f} s, judged from {runs}"
    return told + (f"; without {', '.join(seconds.unjudged)}, which no run has made" if seconds.unjudged else "")


def _range(number: Range) -> str:
    return f"{number.low}" if number.low == number.high else f"{number.low} to {number.high}"


def _cost(cost: Cost) -> str:
    from tasks.pipeline.plan.plan import money

    bounds = money(cost.low) if cost.low == cost.high else f"{money(cost.low)} to {money(cost.high)}"
    if cost.expected is None or cost.likely is None or cost.low == cost.high:
        return f"{bounds} {cost.currency}"
    return (
        f"about {money(cost.expected)} {cost.currency}, hardly more than {money(cost.likely)}, judged from "
        f"{cost.answers:,} answers; at the very worst {money(cost.high)}"
    )


def _size(number: Range) -> str:
    def told(size: int) -> str:
        return f"{size / 1e6:.1f} MB"

    low, high = told(number.low), told(number.high)
    return low if low == high else f"{low} to {high}"
