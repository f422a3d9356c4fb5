"""The gates, which decide whether a corpus and its index may replace the previous version.

Pure functions: each returns the reason for a refusal, or None; the caller raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.retrieve.rights import Access
from indexmill.text.counted import counted
from schemas.config import GateSettings
from tasks.core.report import Fallbacks
from tasks.pipeline.quality import Quality

FEW = 10
"""The number of rows or texts that may fail whatever their share, so that a small corpus can be published."""

_EXACT = 1e-9  # tolerance for rounding in sums of the same recalls


@dataclass(frozen=True, slots=True)
class CorpusChange:
    """The corpus compared with the previous version.

    empty, unreadable: paths without files, and files that cannot be read to the end. lost: the number of that
    version's documents that the corpus lacks; counted only if a source is empty or unreadable, otherwise 0.
    refused_why: the reasons why rows were rejected, and an example.
    """

    version: int
    before: int | None  # documents of that version; None if it is damaged
    now: int
    empty: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    lost: int = 0
    refused_rows: int = 0
    refused_why: str = ""


def refuse_size(change: CorpusChange, max_shrink: float) -> str | None:
    """Return the reason why a corpus has too few documents to follow a version; None if it passes."""
    sources = []
    if change.empty:
        sources.append(f"no file of the corpus is under {first_of(change.empty)} (is a mount missing?)")
    if change.unreadable:
        sources.append(f"{first_of(change.unreadable)} cannot be read to the end")
    before, now = change.before, change.now
    has = "an unknown number (it is damaged)" if before is None else f"{before}"
    if not now and before != 0:
        why = f"the corpus contains no document, and version {change.version} has {has}"
    elif change.lost:
        why = f"version {change.version} has {counted(change.lost, 'document')} that the corpus lacks"
    elif before is not None and before - now > max_shrink * before:
        why = (
            f"the corpus has {counted(now, 'document')} where version {change.version} has {before}: "
            f"{(before - now) / before:.0%} fewer, and gates.max_shrink is {max_shrink:.0%}"
        )
    else:
        return None
    if change.refused_rows:
        why += f" ({counted(change.refused_rows, 'row was', 'rows were')} refused: see `indexmill quarantine`"
        why += f"; {change.refused_why})" if change.refused_why else ")"
    message = "; ".join([*sources, why])
    return f"{message}. Nothing was published: fix the source, or delete the documents with --allow-shrink"


def refuse_unread(unread: int, read: int, most: float, summary: str) -> str | None:
    """Return the reason why too large a share of the corpus' files is not read; None if it passes.

    unread: the number of files that no reader takes, described by `summary`. read: the number of files to read.
    """
    if unread <= FEW or unread <= most * (unread + read):
        return None
    return f"{summary}. Nothing was published: if this is intended, set gates.max_unread_share above {most:g}"


def refuse_rights(version: int, before: Access | None, now: Access | None) -> str | None:
    """Return the reason why a build may open documents to more readers than a version does; None if it passes.

    before, now: the access rules of that version and of the configuration. New rules, and a field that becomes
    required, only exclude readers. Which readers a different field admits cannot be known in advance.
    """
    if before is None or before == now or now == Access(before.field, required=True):
        return None
    rule = f"version {version} controls access by the field {before.field!r}"
    if now is None:
        why = f"{rule}, and the configuration has no corpus.access: everyone could read every document"
    elif now.field != before.field:
        why = f"{rule}, and corpus.access.field is {now.field!r}: others could read the documents"
    else:
        why = f"{rule} and requires it, and corpus.access.required is false: everyone could read documents without it"
    return f"{why}. Nothing was published: fix corpus.access, or, if this is intended, build with --allow-rights-change"


def refuse_fallbacks(counts: Fallbacks, most: float, *, whole: bool = True) -> str | None:
    """Return the reason why a stage's share of fallbacks exceeds `most`; None if it passes.

    Up to FEW texts may always fail, unless all texts of the stage failed. whole: whether `counts` covers all texts of
    the stage.
    """
    many = counts.stand_ins > most * counts.texts + _EXACT
    if not many or (counts.stand_ins <= FEW and not (whole and counts.stand_ins == counts.texts)):
        return None
    return (
        f"the language model gave no usable answer for {counts}, more than run.max_stand_ins allows ({most:g} of "
        "them). Nothing was published; every good answer is kept. `indexmill quarantine` lists the prompts and why "
        "they failed; fix the model or its settings and run `indexmill build --retry-refused`, or raise "
        "run.max_stand_ins"
    )


def refuse_quality(quality: Quality, settings: GateSettings) -> str | None:
    """Return the reason why a candidate's recall is too low to be published; None if it passes."""
    reasons = []
    compared = quality.compared
    if compared is not None:
        for method, now in compared.now.items():
            before = compared.before[method]
            if before - now > settings.tolerance + _EXACT:
                reasons.append(
                    f"{method} has recall@{quality.k} {now:.4f} where version {compared.version} has {before:.4f}, and "
                    f"gates.tolerance is {settings.tolerance:g} ({counted(compared.questions, 'question')}"
                    + (f", {counted(compared.lost, 'gold document')} no longer in the corpus" if compared.lost else "")
                    + ")"
                )
    if settings.minimum is not None:
        for method, recall in quality.recall.items():
            if recall < settings.minimum - _EXACT:
                reasons.append(
                    f"{method} has recall@{quality.k} {recall:.4f}, and gates.minimum is {settings.minimum:g}"
                )
        if not quality.recall:
            reasons.append(
                f"gates.minimum is {settings.minimum:g}, and no question of {settings.questions} has a gold document "
                "in the corpus"
            )
    return "; ".join(reasons) or None


def first_of(names: Sequence[str]) -> str:
    """Return the first name and the number of other names: `a.md and 2 others`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {counted(len(names) - 1, 'other')}"
