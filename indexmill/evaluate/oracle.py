"""The oracle: a reader that finds the right answer whenever the hits contain it, without a language model.

Its accuracy bounds what a model can extract from the hits (contain-accuracy; LinearRAG, section 5.1,
applied to the retrieved texts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indexmill.answer.answer_types import AnswerOptions
from indexmill.answer.answers import answering_of, contexts_of
from indexmill.answer.scores import contains_answer, margin
from indexmill.errors import BadInput
from indexmill.evaluate.answer_evaluation import question_batches
from indexmill.evaluate.recall import Question

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class OracleResult:
    """Whether the hits of one method contain the right answers.

    each: for every question, True if the text of a hit contains a right answer; None for a question without right
    answers, or with "yes" or "no", which no text contains. context_tokens: the tokens of all hits.
    """

    each: tuple[bool | None, ...]
    context_tokens: int

    @property
    def scored(self) -> tuple[bool, ...]:
        """The results of the questions that have a right answer in words."""
        return tuple(contained for contained in self.each if contained is not None)

    @property
    def accuracy(self) -> float:
        """The share of the scored questions whose answer the hits contain."""
        return sum(self.scored) / len(self.scored)

    def to_dict(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the result as ``evaluate --oracle --json`` prints it."""
        return {
            "accuracy": self.accuracy,
            "margin": margin(self.scored),
            "questions": len(self.each),
            "scored": len(self.scored),
            "tokens_per_question": self.context_tokens / len(self.each),
            "contained": {question.id: contained for question, contained in zip(questions, self.each, strict=True)},
        }


def ask_oracle(
    snapshot: Snapshot, questions: Sequence[Question], methods: Mapping[str, AnswerOptions]
) -> dict[str, OracleResult]:
    """Return, for each method, whether its hits contain the right answers; raises like ``evaluate_answers``.

    Raises BadInput if no question has a right answer that a text can contain.
    """
    if not any(contains_answer("", question.answers) is not None for question in questions):
        raise BadInput('no question has an "answer" that a text can contain: "yes" and "no" do not count')
    batches = question_batches(snapshot, questions, methods)
    results = {}
    for name, method_options in methods.items():
        answering, each, tokens = answering_of(replace(method_options, method=name)), [], 0
        for batch, options in batches(name):
            contexts = contexts_of(snapshot, [question.question for question in batch], answering, options)
            for question, hits in zip(batch, contexts, strict=True):
                each.append(_contained([answering.shown(hit) for hit in hits], question))
                tokens += sum(map(answering.tokens, hits))
        results[name] = OracleResult(tuple(each), tokens)
    return results


def _contained(texts: Sequence[str], question: Question) -> bool | None:
    if contains_answer("", question.answers) is None:
        return None
    return any(contains_answer(text, question.answers) for text in texts)
