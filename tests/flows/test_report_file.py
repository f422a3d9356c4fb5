"""The report that a build writes where the configuration names a file for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.build_run import BuildOutcome, Order, build_inline
from indexmill.report import render_report
from schemas.config import Configuration
from tests.corpora import documents, write_corpus
from tests.flows.children import NO_FAMILIES, Warnings, settings
from tests.storage.quick import quick_folder


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder for a corpus, a store and a report."""
    with quick_folder() as folder:
        yield folder


def built(place: Path, count: int, said: Warnings) -> BuildOutcome:
    """Build an index of so many documents, and write its report."""
    corpus = write_corpus(place / "corpus.jsonl", documents(count, words=30))
    report = {"report": str(place / "report.html")}
    wanted = settings(place / "store", corpus, run=report, families=NO_FAMILIES)
    return build_inline(Configuration.model_validate(wanted), progress=said)


@pytest.mark.slow
def test_a_build_that_publishes_writes_the_report_of_its_version(place: Path) -> None:
    said = Warnings()
    for version, count in ((1, 3), (2, 4)):
        assert built(place, count, said).version == version
        page = (place / "report.html").read_text(encoding="utf-8")
        assert f"<h1>Version {version}</h1>" in page
        assert page == render_report(place / "store", version)  # that of a run that has ended
    assert said.warnings == []


@pytest.mark.slow
def test_a_build_with_nothing_to_do_leaves_the_report_alone(place: Path) -> None:
    said = Warnings()
    built(place, 3, said)
    (place / "report.html").unlink()
    assert not built(place, 3, said).published
    assert not (place / "report.html").exists()


def test_a_report_that_cannot_be_written_is_a_warning_and_the_version_is_published(place: Path) -> None:
    said = Warnings()
    (place / "report.html").write_text("notes of mine")
    assert built(place, 3, said).published
    (warning,) = said.warnings
    assert warning.startswith(f"the report of version 1 was not written to {place / 'report.html'}: BadInput:")
    assert warning.endswith("`indexmill report 1` writes it by hand")
    assert (place / "report.html").read_text() == "notes of mine"


def test_a_run_that_fails_after_it_has_published_writes_the_report(place: Path) -> None:
    """As a backfill does that publishes on its way."""
    corpus = write_corpus(place / "corpus.jsonl", documents(3, words=30))
    report = place / "report.html"
    wanted = settings(place / "store", corpus, run={"report": str(report)}, families=NO_FAMILIES)
    order = Order(Configuration.model_validate(wanted), Warnings())

    def fail() -> None:
        with order.open() as run:
            run.publish(run.build.run())
            assert not report.exists()  # not while the run is at work
            raise KeyboardInterrupt("SIGTERM")

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert "<h1>Version 1</h1>" in report.read_text(encoding="utf-8")
