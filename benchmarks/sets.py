"""The question sets of the protocol: the files of each corpus and its questions, or the programs that generate them.

The data folder's own programs generate the sets, so that a name means the same corpus everywhere. `DATA` is that
folder: 2wikimultihopqa, hotpotqa, cranfield and techdocs, `variants.py` and `techdocs/state.py`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from indexmill.results import QuestionResult


class SetFiles(NamedTuple):
    """The files of a set."""

    corpus: Path
    questions: Path


Make = Callable[[Path, Path], SetFiles]  # generates a set from DATA in a folder, or returns its files in DATA


def evidence_recall(result: QuestionResult, k: int) -> float:
    """Return the evidence recall at k documents: the measure of a set whose questions have evidence."""
    return result.recall[k]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A corpus with questions. measure: rates a result at k documents, from 0 to 1."""

    make: Make
    quick: bool = False
    measure: Callable[[QuestionResult, int], float] = evidence_recall


def _whole(folder: str) -> Make:
    return lambda data, out: SetFiles(data / folder / "corpus.jsonl", data / folder / "questions.jsonl")


def _variant(folder: str, *options: str) -> Make:
    def make(data: Path, out: Path) -> SetFiles:
        return _generated(out, [str(data / "variants.py"), str(data / folder)], out, *options)

    return make


def _techdocs(*options: str) -> Make:
    def make(data: Path, out: Path) -> SetFiles:
        program = str(data / "techdocs" / "state.py")
        corpus = _generated(out, [program, "0"], out / "corpus.jsonl", *options).corpus
        return SetFiles(corpus, data / "techdocs" / "questions.jsonl")

    return make


def _cut_of(whole: Make, documents: int) -> Make:
    def make(data: Path, out: Path) -> SetFiles:
        files = SetFiles(out / "corpus.jsonl", out / "questions.jsonl")
        if not files.questions.exists():
            source = whole(data, out / "whole")
            corpus, questions = cut(read_rows(source.corpus), read_rows(source.questions), documents)
            out.mkdir(parents=True, exist_ok=True)
            write_rows(files.corpus, corpus)
            write_rows(files.questions, questions)
        return files

    return make


def cut(
    corpus: Sequence[dict[str, Any]], questions: Sequence[dict[str, Any]], documents: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a part of the corpus, and the questions whose evidence it contains.

    Questions are taken in the order of a hash of their ids until their evidence is half of the documents; other
    documents, in the order of a hash of their ids, fill the rest. Documents stay in the order of the corpus.
    """
    selected: set[str] = set()
    answerable = []
    for question in sorted(questions, key=lambda row: _order(row["id"])):
        more = selected | set(question["gold_ids"])
        if len(more) > documents // 2:
            break
        selected = more
        answerable.append(question)
    others = sorted((row["id"] for row in corpus if row["id"] not in selected), key=_order)
    selected.update(others[: max(documents - len(selected), 0)])
    return [row for row in corpus if row["id"] in selected], answerable


def _order(identity: str) -> str:
    return hashlib.sha1(f"cut{identity}".encode(), usedforsecurity=False).hexdigest()


def _generated(out: Path, command: Sequence[str], target: Path, *options: str) -> SetFiles:
    """Return the files of a generated set; run the data folder's program unless an earlier run of it completed."""
    files = SetFiles(out / "corpus.jsonl", out / "questions.jsonl")
    mark = out / "made"
    if not mark.exists():
        out.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, *command, str(target), *options], check=True, stdout=sys.stderr)
        mark.touch()
    return files


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write objects as JSON Lines, atomically."""
    draft = path.with_suffix(".new")
    draft.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    draft.replace(path)


def write_night(state: Path, night: int, folder: Path, documents: int, nights: int, *options: str) -> Path:
    """Write the corpus as it was after a night, with a program like `techdocs/state.py`; return its path."""
    corpus = folder / f"night-{night}.jsonl"
    command = [sys.executable, str(state), str(night), str(corpus), "--docs", str(documents), "--nights", str(nights)]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    return corpus


_TECH_3000 = _techdocs("--docs", "3000", "--evidence")
_NEUTRAL = ("--titles", "neutral")

SETS: dict[str, QuestionSet] = {
    "techfull": QuestionSet(_techdocs()),
    "tech3000": QuestionSet(_TECH_3000),
    "cranfield": QuestionSet(_whole("cranfield"), quick=True),
    "2wiki": QuestionSet(_whole("2wikimultihopqa")),
    "2wiki-none": QuestionSet(_variant("2wikimultihopqa", "--titles", "none")),
    "2wiki-neutral": QuestionSet(_variant("2wikimultihopqa", *_NEUTRAL)),
    "2wiki-group10": QuestionSet(_variant("2wikimultihopqa", "--group", "10")),
    "hotpot": QuestionSet(_whole("hotpotqa")),
    "hotpot-none": QuestionSet(_variant("hotpotqa", "--titles", "none")),
    "hotpot-neutral": QuestionSet(_variant("hotpotqa", *_NEUTRAL)),
    "hotpot-group10": QuestionSet(_variant("hotpotqa", "--group", "10")),
    "xquad": QuestionSet(_whole("languages/xquad")),
    "cmrc2018": QuestionSet(_whole("languages/cmrc2018")),
    "tech-800": QuestionSet(_cut_of(_TECH_3000, 800), quick=True),
    "2wiki-800": QuestionSet(_cut_of(_whole("2wikimultihopqa"), 800), quick=True),
    "hotpot-800": QuestionSet(_cut_of(_whole("hotpotqa"), 800), quick=True),
}
"""The sets by name; `--quick` uses only the quick ones."""
