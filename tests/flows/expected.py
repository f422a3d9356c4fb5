"""What an undisturbed build makes of a corpus that builds by the real command are disturbed over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import write_settings


@dataclass(frozen=True)
class Expected:
    """A corpus, and what an undisturbed build makes of it."""

    folder: Path
    corpus: Path
    manifest: str
    parts: int

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Build a corpus of sixty documents in a folder."""
        corpus = write_corpus(folder / "corpus.jsonl", documents(60, words=110))
        outcome = build(settings(folder / "undisturbed", corpus))
        return cls(folder, corpus, outcome.manifest, outcome.parts_made)

    def argv(self, folder: Path, *more: object, workers: int = 2) -> list[object]:
        """The arguments of a build into `folder/store`."""
        chosen = settings(folder / "store", self.corpus, run={"workers": workers})
        return ["build", "-c", write_settings(folder / "indexmill.yaml", chosen), "--json", *more]
