"""Build a folder of real files of every format, and score the texts that the index publishes of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import indexmill
from benchmarks.acceptance.commands import Programs
from benchmarks.acceptance.floors import DOCUMENT_SCORES, UNEXPLAINED_WORDS
from benchmarks.acceptance.rows import AcceptanceRow, Group, Measure

_FILES = "documents/real/files"
_SCORE = "documents/score.py"


@dataclass
class _RealFiles:
    """The files, the store that indexes them, and the programs that build and score it."""

    data: Path
    folder: Path
    programs: Programs

    @property
    def store(self) -> Path:
        return self.folder / "store"


def _build(subject: _RealFiles) -> Iterator[Measure]:
    settings = subject.folder / "indexmill.yaml"
    disabled = {name: {"enabled": False} for name in ("tri_graph", "zoom_graph", "lsh_tree")}
    settings.write_text(json.dumps({"families": disabled}), encoding="utf-8")
    files = subject.data / _FILES
    outcome = subject.programs.json("build", "--config", settings, "--store", subject.store, "--corpus", files)
    listed = sum(1 for _ in files.iterdir())
    yield Measure(f"{outcome['documents']} documents of {listed} files", "published", outcome["published"])


def _score(subject: _RealFiles) -> Iterator[Measure]:
    """Compare the scores of every kind of file: recall of words, noise, headings, list items and table rows."""
    extracted = subject.folder / "extracted.jsonl"
    with indexmill.open(subject.store) as snapshot, extracted.open("w", encoding="utf-8") as out:
        for row in snapshot.table("documents", ["document_id", "title", "text"]).to_pylist():
            print(json.dumps({"file": row["document_id"], "title": row["title"], "text": row["text"]}), file=out)
    with subject.programs.running(sys.executable, subject.data / _SCORE, extracted) as program:
        if program.wait():
            raise program.failure("failed")
        table = program.out.splitlines()
    names = table[0].split("\t")
    scores = {row[0]: dict(zip(names, row, strict=True)) for row in (line.split("\t") for line in table[1:])}
    for kind, floors in DOCUMENT_SCORES.items():
        values = {name: _number(scores[kind][name]) for name in floors}
        is_met = all(_number(floor) <= values[name] for name, floor in floors.items() if name != "noise")
        is_met &= values.get("noise", 0.0) <= _number(floors.get("noise", "1"))
        shown = ", ".join(f"{name} {scores[kind][name]}" for name in floors)
        yield Measure(shown, ", ".join(floors.values()), is_met, kind)


def _coverage(subject: _RealFiles) -> Iterator[Measure]:
    """Compare the bytes of all outcomes with those on disk, and the words that are missing for no known reason."""
    covered = subject.programs.json("coverage", "--store", subject.store)
    there = sum(path.stat().st_size for path in (subject.data / _FILES).iterdir())
    size = sum(covered["bytes"].values())
    yield Measure(f"{size:,} bytes of {there:,}", "all", size == there)
    for kind, figures in covered["formats"].items():
        if words := figures["words"]:
            share = figures["left_out"].get("unexplained", 0) / words
            floor = f"at most {UNEXPLAINED_WORDS:.1%}"
            yield Measure(f"{share:.2%} of the words unexplained", floor, share <= UNEXPLAINED_WORDS, kind)


def _number(value: str) -> float:
    """Return the number before a slash: 58 of `58/60`."""
    return float(value.partition("/")[0])


DOCUMENTS = Group(
    "documents",
    (
        AcceptanceRow("build", _build),
        AcceptanceRow("score", _score, ("build",)),
        AcceptanceRow("coverage", _coverage, ("build",)),
    ),
    _RealFiles,
    (_FILES, _SCORE, "documents/real/expected.jsonl"),
)
