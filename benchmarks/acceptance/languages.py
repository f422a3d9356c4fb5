"""Build paragraphs in six languages with the default encoder, which reads English, and answer questions about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.acceptance.commands import Programs
from benchmarks.acceptance.rows import AcceptanceRow, Group, Measure
from benchmarks.machine import differing
from benchmarks.sets import cut, read_rows, write_rows

_SET = "languages/xquad"
_LANGUAGES = ("ar", "de", "en", "es", "ru", "zh")
_PARAGRAPHS = 20  # of each language
_ILLEGIBLE = {"ar", "ru", "zh"}
_BELOW = 0.005  # recall by which the default method may be below bm25


@dataclass
class _Paragraphs:
    """The paragraphs, the store that indexes them, and the programs that build and query it."""

    data: Path
    folder: Path
    programs: Programs

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def questions(self) -> Path:
        return self.folder / "questions.jsonl"

    def build(self, store: Path, corpus: Path) -> Any:
        return self.programs.json("build", "--store", store, "--corpus", corpus)


def _build(subject: _Paragraphs) -> Iterator[Measure]:
    corpus, questions = (read_rows(subject.data / _SET / f"{name}.jsonl") for name in ("corpus", "questions"))
    first: list[dict[str, Any]] = []
    answerable: list[dict[str, Any]] = []
    for language in _LANGUAGES:
        of_language = [row for row in corpus if row["id"].startswith(f"xquad-{language}/")]
        of_questions = [row for row in questions if row["type"] == language]
        for selected, rows in zip((first, answerable), cut(of_language, of_questions, _PARAGRAPHS), strict=True):
            selected += rows
    write_rows(subject.folder / "first.jsonl", first)
    write_rows(subject.questions, answerable)
    outcome = subject.build(subject.store, subject.folder / "first.jsonl")
    status = subject.programs.json("status", "--store", subject.store)
    languages = {name: of["documents"] for name, of in status["languages"].items()}
    yield Measure(
        ", ".join(f"{count} {name or 'unknown'}" for name, count in languages.items()),
        f"{_PARAGRAPHS} of each, but 1",
        outcome["documents"] == len(first) and min(languages.get(name, 0) for name in _LANGUAGES) >= _PARAGRAPHS - 1,
    )
    named = {language for language in _LANGUAGES if f" in {language} (" in status["encoder_warning"]}
    yield Measure(", ".join(sorted(named)), ", ".join(sorted(_ILLEGIBLE)), named == _ILLEGIBLE, "warned of")


def _recall(subject: _Paragraphs) -> Iterator[Measure]:
    """Compare the default method with bm25 in every language."""
    results = subject.programs.json("evaluate", subject.questions, "-k", "5", "--store", subject.store)
    by_method = {name: results["methods"][name]["types"] for name in ("fused", "bm25")}
    for language in _LANGUAGES:
        fused, words = (by_method[name][language]["recall@5"] for name in ("fused", "bm25"))
        yield Measure(f"{fused:.3f}", f"{words:.3f} (bm25)", fused >= words - _BELOW, f"in {language}")


def _rebuild(subject: _Paragraphs) -> Iterator[Measure]:
    """Update the index after each language lost a paragraph and another was translated; compare with a first build."""
    rows = read_rows(subject.folder / "first.jsonl")
    texts = [row["text"] for row in rows]
    changed = [
        row | {"text": texts[place - _PARAGRAPHS]} if place % _PARAGRAPHS == 1 else row
        for place, row in enumerate(rows)
        if place % _PARAGRAPHS
    ]
    update, fresh = subject.folder / "update.jsonl", subject.folder / "fresh"
    write_rows(update, changed)
    subject.build(subject.store, update)
    subject.build(fresh, update)
    differ = differing(subject.store, fresh)
    yield Measure(" ".join((f"{len(differ)} artifacts differ", *differ[:5])), "0", not differ)


LANGUAGES = Group(
    "languages",
    (
        AcceptanceRow("build", _build),
        AcceptanceRow("recall", _recall, ("build",)),
        AcceptanceRow("rebuild", _rebuild, ("build",)),
    ),
    _Paragraphs,
    (f"{_SET}/corpus.jsonl", f"{_SET}/questions.jsonl"),
)
