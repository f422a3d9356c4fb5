"""A store with two versions for the tests of going back and handing over, and a clock that jumps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.readers import Answers, answers


@dataclass(frozen=True)
class Versions:
    """Two versions of an index: documents were edited, removed and added in between."""

    root: Path
    corpus: Path
    manifests: tuple[str, str]
    answered: tuple[Answers, Answers]

    def settings(self, root: Path) -> dict[str, Any]:
        """The settings of a build of the second corpus in another store."""
        return settings(root, self.corpus)


def make_versions(folder: Path) -> Versions:
    """Build both versions with the deterministic encoder."""
    rows = documents(16, words=110)
    root = folder / "versions"
    first = build(settings(root, write_corpus(folder / "first.jsonl", rows)))
    title, text = rows["doc-0003"]
    rows["doc-0003"] = (title, text.replace("bridge of", "lighthouse of Saint Corvin near"))
    rows["doc-0099"] = rows.pop("doc-0005")
    rows.pop("doc-0007")
    rows["doc-0100"] = ("Zed Omar", "Zed Omar built the tower of Quillon in 1888 with Ada Marl.")
    corpus = write_corpus(folder / "second.jsonl", rows)
    second = build(settings(root, corpus))
    return Versions(root, corpus, (first.manifest, second.manifest), (bare(root, 1), bare(root, 2)))


def bare(root: Path, version: int | None = None) -> Answers:
    """What every method answers, without the version that each hit names."""
    return [
        [{name: value for name, value in hit.items() if name != "version"} for hit in hits]
        for hits in answers(root, version)
    ]


class Jumping:
    """A clock that shows the given times one after the other, then the last one for good."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def __call__(self) -> float:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]
