"""The examples of the page about the adapters: they run as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from storage.folder import open_folder
from tests.indexmill.small_snapshot import point
from tests.paths import ROOT

PAGE = ROOT / "docs" / "operations" / "serve.md"
TITLE = "## Use it from LangChain, LlamaIndex or Haystack"
SECTION = PAGE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"^```python\n(.+?)^```", SECTION, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["langchain", "llamaindex", "haystack"])
def test_an_example_runs(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], example: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(store, "store")
    point(open_folder(tmp_path / "store"), "prod", 1)
    exec(compile(example, str(PAGE), "exec"), {})  # noqa: S102 - the page is ours
    assert "bridge" in capsys.readouterr().out
