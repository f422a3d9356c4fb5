"""``indexmill plan``: the work of the next build; changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.command.shared import FILE, begin, build_options, print_result
from indexmill.command.options import Options, common
from indexmill.text.counted import counted, range_text
from indexmill.text.printable import one_line
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from flows.build_run import PlanOptions
    from schemas.config import Configuration
    from tasks.core.estimate import Forecast, Range
    from tasks.pipeline.plan.plan import Cost, Plan

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
@build_options
@click.option(
    "--max-cost", type=click.FloatRange(min=0), help="Exit with 4 if the build is likely to cost more than this."
)
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write the plan to FILE, for `build --plan FILE`.")
@common
def command(
    options: Options, configuration: Configuration, how: PlanOptions, max_cost: float | None, output: Path | None
) -> None:
    """Show what the next build would do with these options: documents, parts, vectors, LLM calls, cost, bytes and time.

    Nothing in the store changes and no lease is taken: you can plan while a build is running, for a read-only store, or
    before a store exists. The exit code is that of a build that fails before it makes anything: 2 bad input or
    configuration, 3 refused by a gate, 4 above --max-cost.
    """
    progress = begin("plan", configuration)
    from flows.plan import make_plan, write_plan  # takes seconds, so after the first line
    from tasks.pipeline.plan.plan import Approved

    plan = make_plan(configuration, progress=progress, **how)
    progress.close()
    if output is not None:
        write_plan(output, plan)
    print_result(options, plan.to_json(), _lines(plan))
    Approved(plan, max_cost).check_cost()


def _lines(plan: Plan) -> list[str]:
    from tasks.stages.ingest.refused import EMPTY, NO_FAILURES, OLD_FORMAT

    documents = plan.documents
    changes = (
        f"{documents.added} added, {documents.changed} changed, {documents.removed} removed, {documents.moved} moved"
    )
    start = f"version {plan.parent.version}" if plan.parent else "an empty store"
    lines = [f"from {start}", f"documents: {changes}, {documents.unchanged} unchanged"]
    refused = {reason: count for reason, count in plan.refused.items() if reason not in NO_FAILURES}
    if refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in refused.items())
        lines.append(f"refused rows: {sum(refused.values())} ({reasons})")
    if EMPTY in plan.refused:
        lines.append(f"files without text: {plan.refused[EMPTY]}")
    if OLD_FORMAT in plan.refused:
        lines.append(f"Word files of 1997 to 2003, which are not read: {plan.refused[OLD_FORMAT]}")
    if not plan.publishes:
        return [*lines, f"nothing to do: {start} is up to date"]
    lines += _table(plan)
    if plan.changes:
        lines.append("differs from the parent: " + ", ".join(one_line(str(change)) for change in plan.changes))
    cost = plan.cost
    calls = f"LLM calls: {_range(plan.llm_calls)}"
    if plan.llm_calls.high:
        calls += f"; tokens: {_range(plan.llm_tokens.input)} in, {_range(plan.llm_tokens.output)} out"
    if plan.embed_calls.high:
        calls += f"; calls for vectors: {_range(plan.embed_calls)}; tokens: {_range(plan.embed_tokens)}"
    lines.append(f"{calls}; cost: {_cost(cost)}")
    if cost.unpriced:
        lines.append(f"without {', '.join(cost.unpriced)}, for which `prices:` has no price")
    return [*lines, _bytes(plan), _time(plan)]


def _table(plan: Plan) -> list[str]:
    rows: list[list[object]] = []
    for name, stage in plan.stages.items():
        if stage.made or stage.reused:
            causes = ", ".join(f"{_CAUSES[cause]} ({count})" for cause, count in stage.causes.items())
            vectors = stage.vectors_made if stage.vectors_made + stage.vectors_reused else ""
            vectors_reused = stage.vectors_reused if stage.vectors_made + stage.vectors_reused else ""
            rows.append([name, str(stage.made), str(stage.reused), str(vectors), str(vectors_reused), causes])
    parts = plan.parts
    rows.append(["all", str(parts.made), str(parts.reused), str(parts.vectors_made), str(parts.vectors_reused), ""])
    return [table(["stage", "parts to make", "reused", "vectors to make", "reused", "why (parts)"], rows)]


def _bytes(plan: Plan) -> str:
    if plan.bytes is None:
        return "new bytes: no version to estimate from"
    size = plan.bytes
    estimate = f"new bytes: about {_size(size.snapshot)} in the snapshot, about {_size(size.work)} for later builds"
    return estimate + (f"; without {', '.join(size.unjudged)}, which the last version lacks" if size.unjudged else "")


def _time(plan: Plan) -> str:
    if plan.seconds is None:
        return "time: no past run to estimate from"
    seconds = plan.seconds
    estimate = f"time: {seconds.low:.0f} to {seconds.high:.0f} s, estimated from {counted(len(seconds.runs), 'run')}"
    return estimate + (f"; without {', '.join(seconds.unjudged)}, which no run has made" if seconds.unjudged else "")


def _range(number: Forecast) -> str:
    return range_text(number.low, number.high, number.expected)


def _cost(cost: Cost) -> str:
    from tasks.pipeline.plan.plan import money

    if cost.low == cost.high:
        return f"{money(cost.low)} {cost.currency}"
    likely = "" if cost.likely is None else f", likely at most {money(cost.likely)}"
    source = f", estimated from {cost.answers:,} answers" if cost.answers else ""
    return f"about {money(cost.expected)} {cost.currency}{likely}{source}; worst case {money(cost.high)}"


def _size(number: Range) -> str:
    low, high = (f"{size / 1e6:.1f} MB" for size in (number.low, number.high))
    return low if low == high else f"{low} to {high}"
