"""Stage `quality`: the gold documents of the gate's questions that a snapshot contains, and those that a method finds.

A measurement is a part like any other, made from a manifest and the bytes of a question file by the current code. So a
version that an earlier run measured is not measured again, unless questions, methods, k or code have changed; then both
versions are measured in the same way. It is in no lineage, since it follows from the manifest.

**Gold documents that count.** A snapshot's recall is over the gold documents that it contains; questions without any
are left out. The comparison with the previous version is over the gold documents of that version: a removed document
counts as missed, unless documents were removed intentionally.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from indexmill.errors import BadInput, CorruptBlob, ModelUnavailable
from indexmill.evaluate.recall import Question, found_documents, parse_questions
from indexmill.opening import open_manifest
from indexmill.retrieve.method_registry import available
from indexmill.snapshot import ENCODER
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Manifest
from indexmill.store.record import Record
from schemas.config import GateSettings
from storage.tombstones import Forgotten
from tasks.core.encoder import question_encoder
from tasks.core.environment import code_digest
from tasks.core.part_runner import PartSpec
from tasks.core.report import Progress
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, worker_arg

_Some = Annotated[tuple[int, ...], Field(strict=False)]
_Places = Annotated[tuple[_Some, ...], Field(strict=False)]
"""For each question, ascending indices into its list of gold documents."""


_Texts = Annotated[tuple[str, ...], Field(strict=False)]

MOST_QUESTIONS = 1_000
MOST_MISSES = 50
"""The maximum numbers of questions with recall, and of missed questions per method, in the record of a run."""

_QUESTION_CHARACTERS = 300


class Miss(Record):
    """A question for which a method misses gold documents: its index in the file, and the documents returned."""

    question: Annotated[int, Field(ge=0)]
    documents: _Texts


class GoldMeasurement(Record):
    """The measurement of one snapshot: the gold documents that it contains (`held`) and those `found`, by method.

    misses: the first questions whose gold documents are not all found, by method.
    """

    held: _Places
    found: dict[str, _Places]
    misses: dict[str, Annotated[tuple[Miss, ...], Field(strict=False)]]


@dataclass(frozen=True, slots=True)
class RecallComparison:
    """The recall of a candidate and of the previous version, on the same gold documents."""

    version: int
    questions: int
    before: Mapping[str, float]
    now: Mapping[str, float]
    lost: int  # distinct gold documents that the version has and the candidate lacks
    lost_counts: bool

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object, for the run's record."""
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
    """The quality of a candidate. recall: the recall by method; empty if the corpus has no gold documents."""

    manifest: str
    k: int
    questions: int
    unanswerable: int  # the number of questions that were left out
    missing: int  # the number of gold documents that the candidate lacks
    recall: Mapping[str, float]
    by_question: Mapping[str, Any]
    missed: Sequence[Mapping[str, Any]]
    compared: RecallComparison | None = None

    @classmethod
    def of(
        cls,
        manifest: str,
        measured: GoldMeasurement,
        questions: Sequence[Question],
        k: int,
        forgotten: Forgotten | Collection[str] = (),
    ) -> Self:
        """Return the quality of a manifest's snapshot, without a comparison. forgotten: documents that never count."""
        gold_ids = {gold for question in questions for gold in question.gold_ids}
        contained = _contained(measured, questions)
        return cls(
            manifest=manifest,
            k=k,
            questions=len(questions),
            unanswerable=sum(not places for places in measured.held),
            missing=sum(gold not in contained and gold not in forgotten for gold in gold_ids),
            recall=_recalls(measured, measured.held, measured.found),
            by_question=_by_question(measured, questions),
            missed=_missed(measured, questions),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the quality as a JSON object, for the run's record and `build --json`."""
        return {
            "manifest": self.manifest,
            "k": self.k,
            "questions": self.questions,
            "unanswerable": self.unanswerable,
            "missing_gold": self.missing,
            "recall": dict(self.recall),
            "compared": None if self.compared is None else self.compared.to_json(),
        }

    def details(self) -> dict[str, Any]:
        """Return the quality by question, which only the run's record contains."""
        return {"by_question": dict(self.by_question), "missed": [dict(miss) for miss in self.missed]}


@dataclass(frozen=True, kw_only=True)
class QualitySettings(StageSettings):
    """The inputs of a measurement besides snapshot and questions. code: the code's digest, as code affects retrieval.

    opening: settings of the run's encoder, which encodes questions if the vectors came from an endpoint.
    """

    methods: Sequence[str]
    k: int
    code: str
    opening: Mapping[str, Any] = worker_arg()


def compare(
    candidate: GoldMeasurement,
    before: GoldMeasurement,
    questions: Sequence[Question],
    version: int,
    *,
    lost_counts: bool,
    forgotten: Forgotten | Collection[str] = (),
) -> RecallComparison:
    """Compare a candidate with the previous version by their common methods.

    forgotten: documents that are excluded, as if the previous version had never had them.
    """
    counted = tuple(
        tuple(place for place in had if question.gold_ids[place] not in forgotten and (lost_counts or place in has))
        for question, had, has in zip(questions, before.held, candidate.held, strict=True)
    )
    methods = [method for method in candidate.found if method in before.found]
    return RecallComparison(
        version=version,
        questions=sum(bool(places) for places in counted),
        before=_recalls(before, counted, methods),
        now=_recalls(candidate, counted, methods),
        lost=sum(gold not in forgotten for gold in _contained(before, questions) - _contained(candidate, questions)),
        lost_counts=lost_counts,
    )


def _contained(measured: GoldMeasurement, questions: Sequence[Question]) -> set[str]:
    pairs = zip(questions, measured.held, strict=True)
    return {question.gold_ids[place] for question, places in pairs for place in places}


def _recalls(measured: GoldMeasurement, counted: _Places, methods: Collection[str]) -> dict[str, float]:
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


def _by_question(measured: GoldMeasurement, questions: Sequence[Question]) -> dict[str, Any]:
    """Return the first questions of the file, and each one's recall by method; None without gold documents."""
    first = range(min(len(questions), MOST_QUESTIONS))
    return {
        "questions": [_text(questions[number]) for number in first],
        "recall": {
            method: [
                round(len(found[number]) / len(measured.held[number]), 6) if measured.held[number] else None
                for number in first
            ]
            for method, found in measured.found.items()
        },
    }


def _missed(measured: GoldMeasurement, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """List the first questions with gold documents that each method misses, with the documents it misses and finds."""
    return [
        {
            "question": _text(questions[miss.question]),
            "method": method,
            "missed": [
                questions[miss.question].gold_ids[place]
                for place in measured.held[miss.question]
                if place not in measured.found[method][miss.question]
            ],
            "found": list(miss.documents),
        }
        for method, misses in measured.misses.items()
        for miss in misses
    ]


def _text(question: Question) -> str:
    text = question.question
    return text if len(text) <= _QUESTION_CHARACTERS else text[: _QUESTION_CHARACTERS - 3] + "..."


class QualityGate:
    """Measures a candidate and the previous version on the questions that the settings name."""

    def __init__(self, settings: GateSettings) -> None:
        self._settings = settings
        self._file: bytes | None = None

    def read(self) -> bytes | None:
        """Read the question file, once; None if the settings name none. Raises BadInput if it cannot be used."""
        path = self._settings.questions
        if path is None or self._file is not None:
            return self._file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"gates.questions: {path} cannot be read: {error.strerror or error}") from error
        parse_questions(data, str(path))
        self._file = data
        return data

    def measure(
        self, run: Run, progress: Progress, candidate: Manifest, forgotten: Forgotten, *, lost_counts: bool
    ) -> Quality | None:
        """Measure the quality of a candidate; None without a question file, or if the index is empty.

        lost_counts: whether a gold document that the parent has and the candidate lacks counts as missed.
        """
        file = self.read()
        if file is None or not candidate.corpus.documents:
            return None
        questions = parse_questions(file, str(self._settings.questions))
        digest = run.store.put_blob(candidate.to_bytes())
        measured = self._measured(run, file, digest, self._settings.methods)
        quality = Quality.of(digest, measured, questions, self._settings.k, forgotten)
        before = self._measured_parent(run, progress, file)
        if before is None or run.parent is None:
            return quality
        version = run.parent.version
        compared = compare(measured, before, questions, version, lost_counts=lost_counts, forgotten=forgotten)
        return replace(quality, compared=compared)

    def _measured(self, run: Run, file: bytes, manifest: str, methods: Sequence[str]) -> GoldMeasurement:
        """Return the measurement of a manifest's snapshot; it is made once, like any part. file: the questions."""
        inputs = {"manifest": manifest, "questions": run.store.put_blob(file)}
        settings = QualitySettings(
            methods=sorted(methods), k=self._settings.k, code=code_digest(), opening=run.opened_encoder.opening
        )
        label = manifest[:12]
        digest = run.make(STAGE, [PartSpec(label, inputs, settings)])[label].outputs["measured"]
        return GoldMeasurement.from_bytes(run.store.get_blob(digest), f"{run.store.url}/{blob_path(digest)}")

    def _measured_parent(self, run: Run, progress: Progress, file: bytes) -> GoldMeasurement | None:
        """Return the measurement of the parent; None if there is no parent or it cannot be read."""
        parent = run.parent
        if parent is None or parent.manifest is None or not parent.manifest.corpus.documents:
            return None
        usable = available(parent.manifest)
        try:
            methods = [method for method in self._settings.methods if method in usable]
            return self._measured(run, file, parent.digest, methods)
        except (CorruptBlob, ModelUnavailable) as error:
            progress.warn(f"the quality of version {parent.version} cannot be measured: {error}")
            return None


def _compute(part: Part[QualitySettings]) -> Outputs:
    questions = parse_questions(part.path(part.digest("questions")).read_bytes(), "gates.questions")
    methods, k = part.settings.methods, part.settings.k
    with open_manifest(Path(part.store.url), part.digest("manifest")) as snapshot:
        if snapshot.asks_endpoint:
            encoder: Any = snapshot.manifest.models["encoder"]
            snapshot.once(ENCODER, lambda: question_encoder(part, encoder))
        document_ids = set(snapshot.table("documents", columns=["document_id"]).column("document_id").to_pylist())
        vectors = None
        if any(snapshot.retriever(method).uses_vectors for method in methods):
            vectors = snapshot.encode([question.question for question in questions])
        returned = {method: [*found_documents(snapshot, questions, method, k, vectors)] for method in methods}
    gold_places = tuple(
        tuple(place for place, gold in enumerate(question.gold_ids) if gold in document_ids) for question in questions
    )
    found_places = {
        method: tuple(
            tuple(place for place, gold in enumerate(question.gold_ids) if gold in documents)
            for question, documents in zip(questions, answers, strict=True)
        )
        for method, answers in returned.items()
    }
    misses = {
        method: tuple(
            Miss(question=number, documents=tuple(answers[number]))
            for number, places in enumerate(gold_places)
            if len(found_places[method][number]) < len(places)
        )[:MOST_MISSES]
        for method, answers in returned.items()
    }
    measured = GoldMeasurement(held=gold_places, found=found_places, misses=misses)
    return Outputs(files={"measured": measured.to_bytes()}, counts={"questions": len(questions)})


STAGE = Stage(
    "quality",
    2,
    _compute,
    libraries=("numpy",),
    inputs=(Input("manifest"), Input("questions")),
    outputs=(Output("measured"),),
    uses_encoder=True,
)
