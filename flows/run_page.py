"""The report of a run as a Markdown page, which Prefect shows with its flow run."""

from __future__ import annotations

from flows.run import Order
from indexmill.text.counted import counted
from indexmill.text.printable import one_line

__all__ = ["run_page"]


def run_page(order: Order) -> str:
    """The page of a run: its end, the parts made and reused and the time of each stage, and the measured quality."""
    store, run, outcome = order.configuration.store, order.run, order.outcome
    lines = [f"# {run.record.run_id if run else 'No run'}", "", f"Store: `{store}`", ""]
    if outcome is not None:
        lines.append(
            f"{'Published' if outcome.published else 'Unchanged'}: version {outcome.version}, "
            f"{counted(outcome.documents, 'document')}, {counted(outcome.passages, 'passage')}, "
            f"{counted(outcome.quarantined, 'row')} refused; {outcome.seconds:.1f} s"
        )
    elif order.failure is not None:
        lines.append(f"**{type(order.failure).__name__}**: {one_line(str(order.failure))}")
    if run is None:
        return "\n".join(lines)
    report = run.build.report
    lines += [
        "",
        "| stage | made | reused | vectors | refused | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, stage in report.stages.items():
        counts = (stage.parts_made, stage.parts_reused, stage.counts["vectors_made"], stage.counts["quarantined"])
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {stage.wall_seconds:.1f} |")
    if report.total("llm_calls"):
        calls, tokens = report.total("llm_calls"), report.total("llm_tokens")
        lines += ["", f"Language model: {counted(calls, 'call')}, {counted(tokens, 'token')}, cost {report.cost:.4f}"]
    if report.quality is not None:
        lines += ["", *(f"- recall of {name}: {recall:.4f}" for name, recall in report.quality["recall"].items())]
    return "\n".join(lines)
