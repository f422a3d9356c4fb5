"""What the real command built, and all that could be seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Built:
    """A finished `indexmill build --json`. Copy the store before damaging it: others read it, too."""

    folder: Path
    code: int
    out: str
    err: str
    left_behind: tuple[str, ...]  # processes
    files: tuple[str, ...]  # in its home, its temporary folder and its current folder

    @classmethod
    def of(cls, folder: Path, record: dict[str, Any]) -> Self:
        """What a record says."""
        lists = {name: tuple(record[name]) for name in ("left_behind", "files")}
        return cls(folder, record["code"], record["out"], record["err"], **lists)

    @property
    def store(self) -> Path:
        """The store, at version 1."""
        return self.folder / "store"

    @property
    def corpus(self) -> Path:
        """Its corpus: 24 documents, and two rows that were refused."""
        return self.folder / "corpus.jsonl"
