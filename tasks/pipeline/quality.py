"""Stage `quality`: which gold documents of the gate's questions a snapshot holds, and which of them a method finds.

A measurement is a part like any other, made from a manifest and the bytes of a question file by the code of this
moment. So a version that was the candidate of an earlier run is not measured again, unless questions, methods, k or
code have changed: then both sides of a comparison are measured alike. It is in no lineage, since it follows from the
manifest.

**Which gold documents count.** A snapshot's recall is of the gold documents that it holds; a question none of whose
gold documents it holds is left out. Against the version before it, a snapshot is held to the gold documents that that
version had: one that has gone is missed, unless documents were let go on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from indexmill.evaluate.recall import Question, found_documents, parse_questions
from indexmill.snapshot import open_manifest
from indexmill.store.manifest import Record
from tasks.core.environment import code_digest
from tasks.core.stage import Inputs, Output, Outputs, Stage

__all__ = ["STAGE", "Comparison", "Measured", "Quality", "compare", "shaping"]

_Some = Annotated[tuple[int, ...], Field(strict=False)]
_Places = Annotated[tuple[_Some, ...], Field(strict=False)]
"""For each question, places in its list of gold documents, ascending."""


class Measured(Record):
    """What was found out about one snapshot; `found` is by method."""

    held: _Places
    found: dict[str, _Places]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Recall of a candidate and of the version before it, on the gold documents that count for both."""

    version: int
    questions: int
    before: Mapping[str, float]
    now: Mapping[str, float]
    lost: int  # gold documents of some question that the version has and the candidate lacks
    lost_counts: bool

    def to_json(self) -> dict[str, Any]:
        """The comparison as the run's record keeps it."""
        return {
            "version": self.version,
            "questions": self.questions,
            "before": dict(self.before),
            "now": dict(self.now),
            "lost_gold": self.lost,
            "lost_gold_counts": self.lost_counts,
        }


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a candidate. `recall` is by method, empty where no question has a gold document in the corpus."""

    manifest: str
    k: int
    questions: int
    unanswerable: int  # questions that were left out
    missing: int  # gold documents of some question that the candidate lacks
    recall: Mapping[str, float]
    compared: Comparison | None = None

    @classmethod
    def of(cls, manifest: str, measured: Measured, questions: Sequence[Question], k: int) -> Self:
        """The quality of the snapshot of a manifest, which no other is held against."""
        return cls(
            manifest=manifest,
            k=k,
            questions=len(questions),
            unanswerable=sum(not places for places in measured.held),
            missing=len({gold for one in questions for gold in one.gold_ids} - _held(measured, questions)),
            recall=_recalls(measured, measured.held, measured.found),
        )

    def to_json(self) -> dict[str, Any]:
        """The quality as the run's record and `build --json` tell it."""
        return {
            "manifest": self.manifest,
            "k": self.k,
            "questions": self.questions,
            "unanswerable": self.unanswerable,
            "missing_gold": self.missing,
            "recall": dict(self.recall),
            "compared": None if self.compared is None else self.compared.to_json(),
        }


def shaping(methods: Sequence[str], k: int) -> dict[str, Any]:
    """What a measurement depends on beside the snapshot and the questions; the code, since retrieval is code."""
    return {"methods": sorted(methods), "k": k, "code": code_digest()}


def compare(
    candidate: Measured, before: Measured, questions: Sequence[Question], version: int, *, lost_counts: bool
) -> Comparison:
    """Hold a candidate against the version before it, in the methods that both have."""
    counted = before.held
    if not lost_counts:
        counted = tuple(tuple(sorted({*had} & {*has})) for had, has in zip(before.held, candidate.held, strict=True))
    methods = [method for method in candidate.found if method in before.found]
    return Comparison(
        version=version,
        questions=sum(bool(places) for places in counted),
        before=_recalls(before, counted, methods),
        now=_recalls(candidate, counted, methods),
        lost=len(_held(before, questions) - _held(candidate, questions)),
        lost_counts=lost_counts,
    )


def _held(measured: Measured, questions: Sequence[Question]) -> set[str]:
    """The gold documents that a snapshot holds."""
    return {one.gold_ids[place] for one, held in zip(questions, measured.held, strict=True) for place in held}


def _recalls(measured: Measured, counted: _Places, methods: Collection[str]) -> dict[str, float]:
    answerable = [(number, {*places}) for number, places in enumerate(counted) if places]
    if not answerable:
        return {}
    return {
        method: sum(
            len(places.intersection(measured.found[method][number])) / len(places) for number, places in answerable
        )
        / len(answerable)
        for method in methods
    }


def _compute(inputs: Inputs[Any]) -> Outputs:
    questions = parse_questions(inputs.path(inputs.job.inputs["questions"]).read_bytes(), "gates.questions")
    methods, k = inputs.settings["methods"], inputs.settings["k"]
    with open_manifest(Path(inputs.store.url), inputs.job.inputs["manifest"]) as snapshot:
        known = set(snapshot.table("documents", columns=["document_id"]).column("document_id").to_pylist())
        vectors = None
        if any(snapshot.retriever(method).uses_vectors for method in methods):
            vectors = snapshot.encode([question.question for question in questions])
        found = {
            method: tuple(
                tuple(place for place, gold in enumerate(question.gold_ids) if gold in documents)
                for question, documents in zip(
                    questions, found_documents(snapshot, questions, method, k, vectors), strict=True
                )
            )
            for method in methods
        }
    held = tuple(tuple(place for place, gold in enumerate(one.gold_ids) if gold in known) for one in questions)
    measured = Measured(held=held, found=found)
    return Outputs(files={"measured": measured.to_bytes()}, counts={"questions": len(questions)})


STAGE = Stage(
    "quality",
    1,
    _compute,
    libraries=("numpy",),
    outputs=(Output("measured"),),
)
