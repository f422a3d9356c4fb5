"""Pages replace pages of their own kind, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexmill.errors import BadInput
from indexmill.store.pages import write_page

PAGE = '<!DOCTYPE html><meta name="generator" content="indexmill report">'


@pytest.mark.parametrize("before", [None, "", PAGE + "an earlier one"])
def test_a_page_is_written_over_nothing_but_a_page_of_its_kind(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "page.html"
    if before is not None:
        path.write_text(before, encoding="utf-8")
    write_page(path, PAGE, "indexmill report")
    assert path.read_text(encoding="utf-8") == PAGE


@pytest.mark.parametrize("before", ["notes", PAGE.replace("report", "explore"), "x" * 4096 + PAGE])
def test_any_other_file_is_left_as_it_is(tmp_path: Path, before: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(before, encoding="utf-8")
    with pytest.raises(BadInput, match="was not written by `indexmill report`"):
        write_page(path, PAGE, "indexmill report")
    assert path.read_text(encoding="utf-8") == before
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "device"):
        with pytest.raises(BadInput, match="left as it is"):
            write_page(path, PAGE, "indexmill report")
    assert (tmp_path / "device").is_symlink()
