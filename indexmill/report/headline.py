"""The first screen of a report: changes, quality compared with the previous version, cost, and problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.report.facts import Facts
from indexmill.report.numbers import amount, clipped, duration, money, share
from indexmill.report.run_record import CorpusCoverage, GateMeasurement, PlanFigure, RunRecord
from indexmill.text.counted import byte_size, counted

_ENOUGH_WORDS = 100
_UNEXPLAINED = 0.02  # the share of a format's words that may be missing for no known reason
_SAME = 0.0005  # recalls that differ by less count as equal
_PLANNED = ("cost", "llm_calls", "llm_tokens", "embed_calls", "embed_tokens")
"""The figures of a plan that cause an alarm if the run exceeds them."""


@dataclass(frozen=True, slots=True)
class Card:
    """A question, a word or number that answers it, and lines with details. alarm: True if attention is needed."""

    title: str
    answer: str
    lines: tuple[str, ...]
    alarm: bool = False


def headline(facts: Facts) -> tuple[Card, ...]:
    """Return the cards of the first screen."""
    return _changed(facts), _quality(facts), _cost(facts), _attention(facts)


def _whole(facts: Facts) -> RunRecord | None:
    """Return the run's record; None if the record of the run's end, with its measurements and costs, is missing."""
    run = facts.tonight.run
    return run if run is not None and run.is_whole else None


def _changed(facts: Facts) -> Card:
    changes, run = facts.tonight.changes, facts.tonight.run
    title = "What changed"
    if changes is None:
        lines = [facts.tonight.unknown, counted(facts.passages, "passage")]
        return Card(title, counted(facts.documents, "document"), tuple(lines))
    kinds = (("added", changes.added), ("changed", changes.changed), ("moved", changes.moved))
    parts = [f"{amount(number)} {kind}" for kind, number in (*kinds, ("removed", changes.removed)) if number]
    total = changes.added + changes.changed + changes.moved + changes.removed
    lines = [", ".join(parts)] if parts else []
    lines.append(f"{amount(changes.unchanged)} unchanged since version {changes.version}")
    if run is not None and run.command == "rollback":
        lines.append("It is a rollback to an earlier version.")
    lines.append(f"{byte_size(changes.new_bytes)} of new files")
    return Card(title, counted(total, "document") if total else "No document", tuple(lines))


def _quality(facts: Facts) -> Card:
    title, run = "Is it as good as before?", _whole(facts)
    quality = None if run is None else run.quality
    if quality is None or not quality.recall:
        why = "No questions were measured: name a file of questions in gates.questions."
        return Card(title, "Not measured", (why if run is not None else facts.tonight.no_run,))
    before, now = _pairs(quality)
    lines = [f"recall at {quality.k}:"]
    for method in quality.recall:
        line = f"{method} {share(now.get(method, quality.recall[method]))}"
        if method in before:
            line += f", was {share(before[method])}"
        lines.append(line)
    if not before:
        lines.append("There is no earlier version to compare with.")
        return Card(title, share(max(quality.recall.values())), tuple(lines))
    differences = [now[method] - before[method] for method in before]
    compared = quality.compared
    lines.append(f"{counted(compared.questions, 'question')}, beside version {compared.version}" if compared else "")
    if compared and compared.lost_gold:
        lines.append(f"{counted(compared.lost_gold, 'expected document')} of version {compared.version} gone")
    least, most = min(differences), max(differences)
    if least < -_SAME:
        return Card(title, f"Worse by {share(-least)}" if most <= _SAME else "Mixed", tuple(lines), alarm=True)
    return Card(title, f"Better by {share(most)}" if most > _SAME else "As good", tuple(lines))


def _pairs(quality: GateMeasurement) -> tuple[dict[str, float], dict[str, float]]:
    if quality.compared is None:
        return {}, {}
    before, now = quality.compared.before, quality.compared.now
    both = [method for method in before if method in now]
    return {method: before[method] for method in both}, {method: now[method] for method in both}


def _cost(facts: Facts) -> Card:
    title, run = "What did it cost?", _whole(facts)
    if run is None:
        return Card(title, "Not recorded", (facts.tonight.no_run,))
    cost, calls, tokens = run.total("cost"), run.total("calls"), run.total("tokens")
    planned = {figure.name: figure for figure in run.plan}
    lines = []
    if calls or tokens:
        lines.append(f"{counted(int(calls), 'call')}, {counted(int(tokens), 'token')} of a language model")
    else:
        lines.append("No language model was asked.")
    if run.total("embed_calls"):
        calls, tokens = run.total("embed_calls"), run.total("embed_tokens")
        lines.append(f"{counted(int(calls), 'call')}, {counted(int(tokens), 'token')} for vectors")
    if planned_range := _beside(planned.get("cost"), money):
        lines.append(f"money planned: {planned_range}")
    work = run.total("work")
    lines += [duration(run.seconds)] if cost else []
    lines += [f"{duration(work)} of work, summed over workers"] if work else []
    if planned_range := _beside(planned.get("seconds"), duration):
        lines.append(f"time planned: {planned_range}")
    over = any(planned[name].is_over for name in _PLANNED if name in planned)
    if over:
        lines.append("More than planned: see below.")
    answer = f"{money(cost)}" if cost else duration(run.seconds)
    return Card(title, answer, tuple(lines), alarm=over)


def _beside(figure: PlanFigure | None, shown: Callable[[float], str]) -> str:
    if figure is None or figure.low is None or figure.high is None:
        return ""
    low, high = shown(figure.low), shown(figure.high)
    return low if low == high else f"{low} to {high}"


def _uncovered(coverage: CorpusCoverage | None) -> list[str]:
    if coverage is None:
        return []
    unread = coverage.passed_over.get("suffix", 0)
    lines = [f"{counted(unread, 'file')} that no reader takes, more than are read"] if unread > coverage.read else []
    return lines + [
        f"{covered.unexplained:.0%} of the words of {counted(covered.files, f'{covered.name} file')} missing"
        for covered in coverage.formats
        if covered.unexplained > _UNEXPLAINED and covered.words >= _ENOUGH_WORDS
    ]


def _attention(facts: Facts) -> Card:
    title, run = "What needs attention", facts.tonight.run
    if run is None:
        return Card(title, "Not recorded", (facts.tonight.no_run,))
    lines = []
    if facts.tonight.no_run:
        lines.append(facts.tonight.no_run)
    if run.warnings:
        lines.append(counted(len(run.warnings) + run.more_warnings, "warning"))
    if run.allowed:
        lines.append(f"allowed by hand: {', '.join(gate.replace('_', ' ') for gate in run.allowed)}")
    if run.refused_rows:
        lines.append(counted(run.refused_rows, "quarantined row"))
    lines += _uncovered(run.coverage)
    fallbacks = sum(stage.stand_ins for stage in run.stand_ins)
    if fallbacks:
        lines.append(f"{counted(fallbacks, 'fallback text')} where a language model wrote none")
    lines += [f"{amount(number)} {what}" for what, number in run.failures().items()]
    failed = int(run.total("failed"))
    if failed:
        lines.append(counted(failed, "failed part"))
    if run.error:
        lines.append(clipped(run.error, 200))
    if not lines:
        warnings_recorded = run.warnings is not None
        line = (
            "No warning, no quarantined row, no failure of a language model."
            if warnings_recorded
            else ("No quarantined row, no failure of a language model; the run recorded no warnings.")
        )
        return Card(title, "Nothing", (line,))
    return Card(title, counted(len(lines), "thing"), tuple(lines), alarm=True)
