"""``indexmill report``: where the page goes, and what it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from tests.indexmill.report.records import promote, two_nights
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import export


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "store"
    promote(two_nights(path), "prod", 1)
    return path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("<title>")[2].partition("</title>")[0]


@pytest.mark.parametrize(
    ("words", "name", "about"),
    [
        ([], "report-2.html", "Version 2"),
        (["1"], "report-1.html", "Version 1"),
        (["prod"], "report-1.html", "Version 1"),
        (["--alias", "prod"], "report-1.html", "Version 1"),
        (["newest", "-o", "other.html"], "other.html", "Version 2"),
    ],
)
def test_a_page_about_a_version_is_written_and_its_path_printed(
    run: Run, nights: Path, tmp_path: Path, words: list[str], name: str, about: str
) -> None:
    assert run.text("report", *words, "--store", nights) == f"{name}\n"
    assert title(tmp_path / name).startswith(about)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_a_page_goes_to_standard_output(run: Run, nights: Path, tmp_path: Path) -> None:
    written = run.text("report", "--store", nights, "-o", "-")
    assert written.startswith("<!DOCTYPE html>")
    run("report", "--store", nights)
    assert (tmp_path / "report-2.html").read_text(encoding="utf-8") == written


@pytest.mark.slow
def test_a_later_report_replaces_an_earlier_one_and_nothing_else(run: Run, nights: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run("report", "1", "--store", nights, "-o", page)
    assert run("report", "2", "--store", nights, "-o", page) == 0
    assert title(page).startswith("Version 2")
    page.write_text("my notes", encoding="utf-8")
    assert run("report", "--store", nights, "-o", page) == 2
    assert "exists and was not written by `indexmill report`" in run.err
    assert page.read_text(encoding="utf-8") == "my notes"


@pytest.mark.parametrize("name", ["missing/page.html", "."])
def test_a_file_that_cannot_be_written_is_named(run: Run, nights: Path, name: str) -> None:
    assert run("report", "--store", nights, "-o", name) == 2
    assert run.err.startswith(f"error: {name}")


def test_another_version_is_put_beside_it(run: Run, nights: Path) -> None:
    assert "Version 2 beside version 1" in run.text("report", "--store", nights, "--compare", "prod", "-o", "-")


def test_facts_as_json_write_a_page_only_where_it_is_asked_for(run: Run, nights: Path, tmp_path: Path) -> None:
    found = run.json("report", "--store", nights, "--compare", "1")
    assert (found["version"], found["comparison"]["a"]["version"], found["tonight"]["changes"]["removed"]) == (2, 1, 1)
    assert list(tmp_path.iterdir()) == []
    run.json("report", "--store", nights, "-o", "page.html")
    assert title(tmp_path / "page.html").startswith("Version 2")


def test_an_exported_folder_is_reported_about_and_not_compared(run: Run, nights: Path, tmp_path: Path) -> None:
    with indexmill.open(nights) as snapshot:
        export(snapshot, tmp_path / "e")
    assert run.text("report", "--store", tmp_path / "e") == "report.html\n"
    assert run("report", "--store", tmp_path / "e", "--compare", "1") == 2
    assert "no other to compare it with" in run.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["7"], "no version 7"),
        (["--compare", "2"], "name another version"),
        (["2", "--alias", "prod"], "expected at most one of them"),
        (["nobody"], "no alias 'nobody'"),
    ],
)
def test_what_cannot_be_reported_about_is_refused(run: Run, nights: Path, words: list[str], said: str) -> None:
    assert run("report", *words, "--store", nights) == 2
    assert said in run.err
