"""The result of a method for each question of an evaluation: the lines of ``evaluate --output``.

Other tables can be computed from the lines without retrieving again: at other depths, within a token budget, or for
some of the questions. The lines contain the questions, but no text of the corpus.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from indexmill.errors import BadInput, DiskFull
from indexmill.hits import Hit
from indexmill.store.whole_files import write_whole

NO_EVIDENCE = frozenset({"summary", "entity", "community", "attribute", "high-level", "relation"})
"""Kinds of hits that do not count as evidence of their documents."""


class HitReference(NamedTuple):
    """A hit without its text: see ``Hit``."""

    kind: str
    id: str
    document_ids: tuple[str, ...]
    score: float
    tokens: int | None


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one method for one question.

    ranks: the rank of each gold document among the distinct documents of the hits, from 1; None if it is absent.
    recall: the recall at each k. milliseconds: the question's share of the time that its batch took, without encoding.
    """

    method: str
    id: str
    question: str
    type: str | None
    gold_ids: tuple[str, ...]
    ranks: tuple[int | None, ...]
    recall: Mapping[int, float]
    hits: tuple[HitReference, ...]
    milliseconds: float

    @property
    def documents(self) -> list[str]:
        """The distinct documents of the hits, in order of rank."""
        return evidence_documents(self.hits)

    def missed(self, k: int) -> list[tuple[str, int | None]]:
        """Return the gold documents that are not among the first k documents, each with its rank."""
        pairs = zip(self.gold_ids, self.ranks, strict=True)
        return [(gold, rank) for gold, rank in pairs if rank is None or rank > k]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a line's JSON object."""
        return {
            "method": self.method,
            "id": self.id,
            "question": self.question,
            "type": self.type,
            "gold_ids": list(self.gold_ids),
            "ranks": list(self.ranks),
            **{f"recall@{k}": value for k, value in self.recall.items()},
            "hits": [{**hit._asdict(), "document_ids": list(hit.document_ids)} for hit in self.hits],
            "milliseconds": self.milliseconds,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> QuestionResult:
        """Parse a line's JSON object; raises KeyError, TypeError or ValueError if it is invalid."""
        return cls(
            method=record["method"],
            id=record["id"],
            question=record["question"],
            type=record["type"],
            gold_ids=tuple(record["gold_ids"]),
            ranks=tuple(record["ranks"]),
            recall={int(name[7:]): float(value) for name, value in record.items() if name.startswith("recall@")},
            hits=tuple(HitReference(**{**hit, "document_ids": tuple(hit["document_ids"])}) for hit in record["hits"]),
            milliseconds=float(record["milliseconds"]),
        )


def evidence_documents(hits: Iterable[Hit | HitReference]) -> list[str]:
    """Return the distinct documents that hits are evidence of, in order of first occurrence."""
    return list(dict.fromkeys(one for hit in hits if hit.kind not in NO_EVIDENCE for one in hit.document_ids))


def ranks_of(gold_ids: Sequence[str], documents: Sequence[str]) -> tuple[int | None, ...]:
    """Return the rank of each gold document among distinct documents, from 1; None if it is absent."""
    rank = {document: place for place, document in enumerate(documents, start=1)}
    return tuple(rank.get(gold) for gold in gold_ids)


def recall(gold_ids: Sequence[str], documents: Sequence[str], k: int) -> float:
    """Return the fraction of the gold documents that are among the first k of ``documents``, which are distinct."""
    return len(set(gold_ids).intersection(documents[:k])) / len(set(gold_ids))


def write_results(path: str | Path, results: Iterable[QuestionResult]) -> None:
    """Write a line for each result, atomically. Raises BadInput if the file cannot be written."""
    target = Path(path)
    try:
        write_whole(
            target,
            (json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False) + "\n" for result in results),
        )
    except OSError as error:
        bad = BadInput(f"{path}: cannot write the results: {error.strerror or error}")
        raise DiskFull.of(error, target) or bad from error


def read_results(path: str | Path) -> list[QuestionResult]:
    """Read a file that ``write_results`` wrote; raises BadInput, naming the first line that is not a result."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: cannot read the results: {error.strerror or error}") from error
    results = []
    for number, line in enumerate(lines, start=1):
        try:
            results.append(QuestionResult.from_dict(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path}:{number}: not a line of `evaluate --output`: {error!r}") from error
    return results
