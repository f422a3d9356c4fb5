"""Running commands in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexmill.command import main


def write_lines(path: Path, *records: object) -> Path:
    """A JSON Lines file of some records, such as questions."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


class Run:
    """Runs the command in this process and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *argv: object) -> int:
        code = main([str(word) for word in argv])
        self.out, self.err = self._capsys.readouterr()
        return code

    def text(self, *argv: object) -> str:
        assert self(*argv) == 0
        assert self.err == ""
        return self.out

    def json(self, *argv: object) -> Any:
        out = self.text(*argv, "--json")
        assert out.count("\n") == 1
        return json.loads(out)
