"""``indexmill explore``: its files, its JSON, and how it fails."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import indexmill
from indexmill.command import main
from indexmill.explore.neighbourhood import MOST_NODES, NODES, neighbourhood
from tests.indexmill.running import Run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_page_is_written_at_once_with_the_usual_rights(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("explore", "--store", store, "--question", "Who paid for the bridge?") == 0
    assert run.err == ""
    name, said = run.out.split(": ")
    assert name == "explore.html"
    assert "nodes" in said
    page = tmp_path / "explore.html"
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) & 0o077 == 0o044
    before = page.read_bytes()
    assert run("explore", "1", "--store", store, "--question", "Who paid for the bridge?", "-o", page) == 0
    assert page.read_bytes() == before
    assert [path.name for path in tmp_path.glob("*.html*")] == ["explore.html"]
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_later_page_replaces_an_earlier_one_and_nothing_else(run: Run, store: Path, tmp_path: Path) -> None:
    page, pipe = tmp_path / "page.html", tmp_path / "pipe"
    assert run("explore", "--store", store, "-o", page, "--nodes", 1) == 0
    assert run("explore", "--store", store, "-o", page) == 0
    page.write_text("my notes", encoding="utf-8")
    os.mkfifo(pipe)
    for path in (page, pipe):
        assert run("explore", "--store", store, "-o", path) == 2
        assert "exists and was not written by `indexmill explore`" in run.err
    assert page.read_text(encoding="utf-8") == "my notes"
    assert pipe.is_fifo()


def test_the_path_that_is_printed_does_not_control_the_terminal(run: Run, store: Path) -> None:
    assert run("explore", "--store", store, "-o", "a\x1b[31m.html") == 0
    assert run.out.startswith("a\ufffd[31m.html: ")


def test_the_page_goes_to_standard_output_on_request(
    store: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["explore", "--store", str(store), "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"<!doctype html>")
    assert out.rstrip().endswith(b"</html>")
    assert err == b""
    assert not list(tmp_path.glob("*.html"))


def test_json_is_the_graph_and_writes_no_page(run: Run, store: Path, tmp_path: Path) -> None:
    found = run.json("explore", "--store", store, "--question", "Who paid?", "--method", "dense", "--nodes", 3)
    with indexmill.open(store) as snapshot:
        part = neighbourhood(snapshot, question="Who paid?", method="dense", nodes=3)
    assert found == json.loads(json.dumps(part.to_dict()))
    assert len(found["nodes"]) == 3
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--entity", "x", "--question", "y"], "an entity and a question are given"),
        (["--entity", "Ada Venn"], "error: there is no entity 'Ada Venn'\n"),
        (["--community", "x"], "the index has no communities"),
        (["--method", "dense"], "only determines how a question's hits are retrieved"),
        (["--question", "x", "--method", "tri_graph"], "does not contain 'tri_graph'"),
        (["--nodes", "0"], "1<=x<=2000"),
        (["--nodes", "2001"], "1<=x<=2000"),
        (["-o", "nowhere/page.html"], "nowhere/page.html: cannot write the page"),
        (["-o", "."], ".: exists and was not written by `indexmill explore`"),
        (["--as", "staff", "--unrestricted"], "--as and --unrestricted are mutually exclusive"),
        (["nothing"], "nothing"),
    ],
)
def test_mistakes_are_told_in_a_line(run: Run, store: Path, tmp_path: Path, words: list[str], said: str) -> None:
    assert run("explore", "--store", store, *words) == 2
    assert said in run.err
    assert "Traceback" not in run.err
    assert not list(tmp_path.glob("*.html*"))


def test_the_help_says_the_bounds_of_the_library(run: Run) -> None:
    assert run("explore", "--help") == 0
    assert f"[default: {NODES}; 1<=x<={MOST_NODES}]" in " ".join(run.out.split())
