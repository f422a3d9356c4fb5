"""Rendering the facts of a report with a template that escapes all values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from indexmill.report import charts, figures, numbers
from indexmill.report.facts import Facts
from indexmill.report.headline import headline
from indexmill.report.missed import missed_by_method
from indexmill.store.pages import inline_digest, page_environment
from indexmill.text.counted import byte_size, counted
from indexmill.text.printable import one_line

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = "indexmill report"
"""The content of the page's ``<meta name="generator">``; only files that contain it are overwritten."""


def rendered(facts: Facts) -> str:
    """Render the report as one HTML page. Raises ModelUnavailable if the package for it is not installed."""
    template = _environment().from_string(_read("report.html.jinja"))
    from markupsafe import Markup

    style = _read("report.css").strip() + "\n"
    run = facts.tonight.run
    page: str = template.render(
        facts=facts,
        generator=GENERATOR,
        style=Markup(style),  # noqa: S704 - our own text
        policy=f"default-src 'none'; style-src {inline_digest(style)}; base-uri 'none'; form-action 'none'",
        name="An exported version" if facts.version is None else f"Version {facts.version}",
        cards=headline(facts),
        missed=() if run is None or run.quality is None else missed_by_method(run.quality),
        tones={} if run is None else figures.stage_tones(run.stages),
        timeline=None if run is None else figures.timeline(run),
        over_time=figures.over_time(facts.history) if facts.history else None,
        histograms=[
            (distribution, figures.histogram(f"h{number}", distribution))
            for number, distribution in enumerate(facts.inside.histograms)
        ],
    )
    return page.strip() + "\n"


def _environment() -> Environment:
    environment = page_environment("a report", "print its facts with --json", finalize=_plain)
    environment.filters.update(
        amount=numbers.amount,
        bytes=byte_size,
        clip=numbers.clipped,
        counted=counted,
        duration=numbers.duration,
        moment=numbers.moment,
        money=numbers.money,
        share=numbers.share,
        signed=numbers.signed,
        largest=_largest,
    )
    environment.globals.update(
        bar=charts.bar,
        bytes_of=(byte_size, partial(numbers.signed, shown=byte_size)),
        counts_of=(numbers.amount, numbers.signed),
    )
    return environment


def _plain(value: Any) -> Any:
    """Replace control characters and direction marks in strings; markup is returned unchanged."""
    return one_line(value) if type(value) is str else value


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _read(name: str) -> str:
    return resources.files("indexmill.report").joinpath(name).read_text(encoding="utf-8")
