"""Evaluation of a snapshot's methods by the answers of a language model, and the cost of the evaluation.

Every question costs at least one call, unless the model caches its answers (``indexmill.answer.answer_cache``):
``bill`` returns an upper bound of the cost beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indexmill.answer.answer_types import Answer, AnswerOptions, Bill
from indexmill.answer.answers import answering_of, contexts_of
from indexmill.answer.scores import Scores, margin, scores_of
from indexmill.errors import BadInput
from indexmill.evaluate.recall import Question

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

BATCH = 64
"""The number of questions per batch, which bounds memory and what an interrupted run loses."""


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """The results of one method's answers.

    answers: the answers in the order of the questions. each: the answers' scores; None for a question that has no right
    answer. Tokens and calls are totals over all questions.
    """

    answers: tuple[Answer, ...]
    each: tuple[Scores | None, ...]

    @property
    def scored(self) -> int:
        """The number of questions that have a right answer."""
        return sum(scores is not None for scores in self.each)

    @property
    def scores(self) -> Scores | None:
        """The mean scores over the questions with a right answer, None without any; an unanswered question scores 0."""
        rows = [scores for scores in self.each if scores is not None]
        return Scores(*(sum(column) / len(rows) for column in zip(*rows, strict=True))) if rows else None

    @property
    def margins(self) -> Scores | None:
        """Half the widths of the 95 % confidence intervals of ``scores``."""
        rows = [scores for scores in self.each if scores is not None]
        return Scores(*map(margin, zip(*rows, strict=True))) if rows else None

    @property
    def unanswered(self) -> int:
        """The number of questions that the model did not answer."""
        return sum(answer.error is not None for answer in self.answers)

    @property
    def billed(self) -> Bill:
        """The calls to the model, including failed ones, and their tokens."""
        return Bill(*(sum(getattr(answer, name) for answer in self.answers) for name in Bill._fields))

    @property
    def context_tokens(self) -> int:
        """The tokens of the hits that were read."""
        return sum(answer.context_tokens for answer in self.answers)

    def to_dict(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the result as ``evaluate --answer --json`` prints it; ``answers`` in the order of the questions."""
        scores, margins, count, billed = self.scores, self.margins, len(self.answers), self.billed
        return {
            **(dict.fromkeys(Scores._fields) if scores is None else scores._asdict()),
            "margins": None if margins is None else margins._asdict(),
            "questions": count,
            "scored": self.scored,
            "found": sum(answer.found for answer in self.answers),
            "unanswered": self.unanswered,
            "tokens_per_question": self.context_tokens / count,
            "billed_tokens_per_question": (billed.input_tokens + billed.output_tokens) / count,
            "calls_per_question": billed.calls / count,
            **billed._asdict(),
            "answers": [
                _row(question, answer, of_answer)
                for question, answer, of_answer in zip(questions, self.answers, self.each, strict=True)
            ],
        }


@dataclass(frozen=True, slots=True)
class AnswerEvaluation:
    """The results of all methods on the same questions."""

    version: int | None
    model: str
    questions: tuple[Question, ...]
    methods: dict[str, AnswerResult]

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as ``evaluate --answer --json`` prints it."""
        return {
            "version": self.version,
            "model": self.model,
            "methods": {name: result.to_dict(self.questions) for name, result in self.methods.items()},
        }


def evaluate_answers(
    snapshot: Snapshot,
    questions: Sequence[Question],
    methods: Mapping[str, AnswerOptions],
    progress: Callable[[str, int], None] = lambda method, done: None,
) -> AnswerEvaluation:
    """Answer the questions with each method, and score the answers to questions that have right answers.

    methods: the options of each method; all use the same model. progress: called with the method and the number of
    questions answered so far. Raises BadInput if there are no questions or methods, FamilyNotFound for a method that
    the snapshot lacks, LlmForbidden if the model cannot be used at all.
    """
    batches = question_batches(snapshot, questions, methods)
    results = {}
    for name in methods:
        answers: list[Answer] = []
        for batch, options in batches(name):
            answers += snapshot.answer_batch([question.question for question in batch], options=options)
            progress(name, len(answers))
        each = [
            scores_of(answer.text, question.answers) if question.answers else None
            for question, answer in zip(questions, answers, strict=True)
        ]
        results[name] = AnswerResult(tuple(answers), tuple(each))
    model = next(iter(methods.values())).model or ""
    return AnswerEvaluation(snapshot.version, model, tuple(questions), results)


def bill(snapshot: Snapshot, questions: Sequence[Question], methods: Mapping[str, AnswerOptions]) -> dict[str, Bill]:
    """Return an upper bound on each method's cost without repairs and lost calls. Raises like ``evaluate_answers``."""
    batches = question_batches(snapshot, questions, methods)
    bills = {}
    for name, method_options in methods.items():
        answering, total = answering_of(replace(method_options, method=name)), Bill(0, 0, 0)
        for batch, options in batches(name):
            contexts = contexts_of(snapshot, [question.question for question in batch], answering, options)
            for question, hits in zip(batch, contexts, strict=True):
                if hits:
                    more = answering.bill(question.question.strip(), hits, options.max_output_tokens)
                    total = Bill(*map(sum, zip(total, more, strict=True)))
        bills[name] = total
    return bills


def question_batches(
    snapshot: Snapshot, questions: Sequence[Question], methods: Mapping[str, AnswerOptions]
) -> Callable[[str], Iterator[tuple[Sequence[Question], AnswerOptions]]]:
    """Encode the questions once; return a function that yields the batches of a method, each with its options.

    Raises BadInput if there are no questions or methods, FamilyNotFound for a method that the snapshot lacks.
    """
    if not questions:
        raise BadInput("there are no questions to evaluate")
    if not methods:
        raise BadInput("there is no method to evaluate")
    uses = {
        name: snapshot.retriever(name).with_parameters(options.parameters).uses_vectors
        for name, options in methods.items()
    }
    vectors = snapshot.encode([question.question for question in questions]) if any(uses.values()) else None

    def batches(name: str) -> Iterator[tuple[Sequence[Question], AnswerOptions]]:
        for first in range(0, len(questions), BATCH):
            batch = slice(first, first + BATCH)
            batch_vectors = vectors[batch] if uses[name] and vectors is not None else None
            yield questions[batch], replace(methods[name], method=name, vectors=batch_vectors, encode_names=True)

    return batches


def _row(question: Question, answer: Answer, scores: Scores | None) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "answer": answer.text,
        "found": answer.found,
        **({} if scores is None else scores._asdict()),
        "context_tokens": answer.context_tokens,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "calls": answer.calls,
        **({} if answer.error is None else {"error": str(answer.error)}),
        **({"cautions": list(answer.cautions)} if answer.cautions else {}),
    }
