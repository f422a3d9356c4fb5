"""Small cuts of real corpora: the first state, the state after a night, and questions that the first state answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.sets import cut, read_rows, write_night, write_rows


class CorpusCut(NamedTuple):
    """The files of a cut: two states of the corpus, and the questions."""

    first: Path
    night: Path
    questions: Path


class Source(NamedTuple):
    """A function that makes a cut, and the files of the data folder that it reads."""

    files: tuple[str, ...]
    make: Callable[[Path, Path], CorpusCut]


_ADDED, _EDITED, _REMOVED = 20, 15, 10  # documents of 2WikiMultiHopQA that the night adds, edits and removes

_PAGES, _NIGHT, _CHARACTERS = 150, 15, 30_000
"""The pages of techdocs; the pages that the night edits and adds; the maximum characters of a page, since six pages of
100,000 characters or more have two fifths of the text."""


def wiki(data: Path, folder: Path, documents: int) -> CorpusCut:
    """Cut 2WikiMultiHopQA to a number of documents. The night adds documents and texts that the cut leaves out."""
    source = data / "2wikimultihopqa"
    everything = read_rows(source / "corpus.jsonl")
    first, questions = cut(everything, read_rows(source / "questions.jsonl"), documents)
    names = {row["id"] for row in first}
    evidence = {name for question in questions for name in question["gold_ids"]}
    outside = [row for row in everything if row["id"] not in names]
    removed = {row["id"] for row in [row for row in first if row["id"] not in evidence][:_REMOVED]}
    night = [row for row in first if row["id"] not in removed]
    step = max(len(night) // _EDITED, 1)
    for place, extra in zip(range(0, len(night), step), outside[_ADDED : _ADDED + _EDITED], strict=False):
        night[place] = night[place] | {"text": f"{night[place]['text']} {extra['text']}"}
    files = CorpusCut(folder / "first.jsonl", folder / "night.jsonl", folder / "questions.jsonl")
    for path, rows in zip(files, (first, night + outside[:_ADDED], questions), strict=True):
        write_rows(path, rows)
    return files


def techdocs(data: Path, folder: Path) -> CorpusCut:
    """Cut techdocs to documentation pages with evidence, before and after one night of real changes."""
    program = data / "techdocs" / "state.py"
    states = []
    for night in (_NIGHT - 1, _NIGHT):
        path = write_night(program, night, folder, _PAGES, _NIGHT, "--evidence")
        write_rows(path, [row for row in read_rows(path) if len(row["text"]) <= _CHARACTERS])
        states.append(path)
    names = {row["id"] for row in read_rows(states[0])}
    questions = [row for row in read_rows(data / "techdocs" / "questions.jsonl") if names.issuperset(row["gold_ids"])]
    files = CorpusCut(states[0], states[1], folder / "questions.jsonl")
    write_rows(files.questions, questions)
    return files


def _wiki(documents: int) -> Source:
    files = tuple(f"2wikimultihopqa/{name}.jsonl" for name in ("corpus", "questions"))
    return Source(files, lambda data, folder: wiki(data, folder, documents))


WIKI = {600: _wiki(600), 150: _wiki(150)}

TECHDOCS = Source(
    ("techdocs/state.py", "techdocs/win32.base.jsonl.gz", "techdocs/win32.nights.jsonl.gz", "techdocs/questions.jsonl"),
    techdocs,
)
