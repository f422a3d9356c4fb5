"""The report of a run as Markdown pages and a table, for the page of its flow run in Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.build_run import Order
from flows.observe import message_of
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted, figure_text
from indexmill.text.durations import duration
from indexmill.text.printable import one_line
from storage import runs
from tasks.text.markdown import code, table_of

MOST_ROWS = 100
"""The maximum number of rejected rows shown; the others are counted."""

_LONGEST = 200
"""The maximum length of a cell."""

_MODELS = ("llm", "embed")
"""The prefixes of the counts of models behind endpoints."""


def run_page(order: Order) -> str:
    """Return the page of a run: its outcome, its report file, and the parts and time of each stage."""
    store, run, outcome = redacted(str(order.configuration.store)), order.run, order.outcome
    lines = [f"# {run.record.run_id if run else 'No run'}", "", f"Store: {code(store)}", ""]
    if outcome is not None:
        lines.append(
            f"{'Published' if outcome.published else 'Unchanged'}: version {outcome.version}, "
            f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}, "
            f"{counted(outcome.quarantined, 'row')} refused; {duration(outcome.seconds)}"
        )
    elif order.failure is not None:
        name, _, message = message_of(order.failure).partition(": ")
        lines.append(f"**{name}**" + (f": {code(message)}" if message else ""))
    report_file = order.configuration.run.report
    if report_file is not None and outcome is not None and outcome.published:
        file = report_file.absolute()
        lines += ["", f"Report: [{code(file.name)}](<{file.as_uri()}>) on the machine of the run, {code(str(file))}"]
    if run is None:
        return "\n".join(lines)
    report = run.build.report
    rows = []
    for name, stage in report.stages.items():
        counts = (stage.parts_made, stage.parts_reused, stage.counts["vectors_made"], stage.counts["quarantined"])
        rows.append([name, *map(str, counts), f"{stage.wall_seconds:.1f}"])
    lines += ["", table_of(["stage", "made", "reused", "vectors", "refused", "seconds"], rows)]
    return "\n".join(lines)


def quality_page(order: Order) -> str | None:
    """Return the page of the recall that a gate measured, with the previous version's; None if none was measured."""
    quality = None if order.run is None else order.run.build.report.quality
    if quality is None:
        return None
    compared = quality["compared"] or {"before": {}, "now": {}, "version": None}
    rows = []
    for method, recall in quality["recall"].items():
        before, now = (_share(compared[when].get(method)) for when in ("before", "now"))
        rows.append([code(method), f"{recall:.4f}", now, before])
    header = ["method", f"recall@{quality['k']}", "of common documents", f"version {compared['version']}"]
    width = 4 if compared["version"] is not None else 2
    lines = [f"# Quality: {counted(quality['questions'], 'question')}", ""]
    lines.append(table_of(header[:width], [row[:width] for row in rows]))
    if quality["missing_gold"]:
        lines += [
            "",
            f"{counted(quality['missing_gold'], 'gold document is', 'gold documents are')} not in the corpus.",
        ]
    return "\n".join(lines)


def cost_page(order: Order) -> str | None:
    """Return the page of model costs by stage, and of planned and actual figures; None if the run has neither."""
    if order.run is None:
        return None
    report, plan = order.run.build.report, order.run.record.plan
    model_stages = {
        name: stage
        for name, stage in report.stages.items()
        if any(stage.counts[f"{kind}_{count}"] for kind in _MODELS for count in ("calls", "ledger"))
    }
    if not model_stages and plan is None:
        return None
    lines = [f"# Cost: {report.cost:.4f}", ""]
    rows = []
    for name, stage in model_stages.items():
        counts = [
            sum(stage.counts[f"{kind}_{count}"] for kind in _MODELS)
            for count in ("calls", "ledger", "input_tokens", "output_tokens")
        ]
        rows.append([name, *map(str, counts), f"{stage.cost:.4f}"])
    if rows:
        lines.append(table_of(["stage", "calls", "from the ledger", "tokens in", "tokens out", "cost"], rows))
    if plan is not None:
        compared = [
            [name, figure_text(figure["planned"]), figure_text(figure["actual"])] for name, figure in _figures(plan)
        ]
        lines += ["", "## Against the plan", "", table_of(["", "planned", "actual"], compared)]
    return "\n".join(lines)


def refused_rows(order: Order) -> tuple[list[dict[str, str]], int]:
    """Return the first rows that a run rejected, and the number of all rejected rows.

    Their ids and contents are left out, since `indexmill forget` cannot remove anything from a Prefect server.
    """
    if order.run is None:
        return [], 0
    _, refused = runs.quarantine_of(order.run.record.store, order.run.record.run_id)
    shown = refused.slice(0, MOST_ROWS).select(["file", "line", "reason"]).to_pylist()
    return [{name: _cell(value) for name, value in row.items()} for row in shown], refused.num_rows


def _cell(value: object) -> str:
    text = "" if value is None else one_line(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _figures(plan: Any) -> Sequence[tuple[str, dict[str, Any]]]:
    return [
        (name, figure)
        for name, figure in plan.items()
        if isinstance(figure, dict) and figure.keys() >= {"planned", "actual"}
    ]
