"""Comparison of two answers by a language model (after ArchRAG, figure 9).

It is for questions without a right answer, such as those about the theme of a collection. The model compares two
answers by the paper's criteria and names an overall winner. Two things are added: directness, which the paper's prompt
explains but its answer format omits, is judged too; and each pair is judged twice, in both orders, because models
favour a position. An answer wins a criterion if both verdicts name it; otherwise the criterion is a tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from indexmill.answer.answer_prompts import prompt
from indexmill.answer.answer_types import Answer, Bill, prompt_tokens, text_tokens
from indexmill.answer.asking import Ask, answer_or_error
from indexmill.answer.turns import Turns, all_of
from indexmill.evaluate.recall import Question
from indexmill.models.llm import LLM, Request, data_block, object_schema
from indexmill.models.llm_errors import LlmError
from indexmill.models.retries import RetryLimits, run_coroutine

CRITERIA = ("comprehensiveness", "diversity", "empowerment", "directness", "overall")
"""The criteria of the comparison; the last combines the others."""

Winner = Literal["first", "second", "tie"]

_WINNER = object_schema(explanation={"type": "string"}, winner={"type": "integer", "enum": [1, 2]})
VERDICT: Mapping[str, Any] = object_schema(**dict.fromkeys(CRITERIA, _WINNER))
"""The JSON schema of one verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of two methods' answers to one question.

    winners: the winner by criterion; empty if an answer is missing or the model gave no verdict (``error``).
    explanations: the two verdicts' explanations by criterion, starting with the verdict for which the model read the
    first method's answer first; empty if the model was not called, as for equal answers. calls, input_tokens,
    output_tokens: the cost of judging alone.
    """

    winners: Mapping[str, Winner]
    explanations: Mapping[str, tuple[str, str]]
    error: str | None = None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The comparison of two methods on a set of questions."""

    first: str
    second: str
    questions: tuple[Question, ...]
    verdicts: tuple[Verdict, ...]

    def won(self, criterion: str) -> dict[Winner, int]:
        """Count the wins of each method and the ties, by a criterion."""
        named = [verdict.winners[criterion] for verdict in self.verdicts if verdict.winners]
        return {"first": named.count("first"), "second": named.count("second"), "tie": named.count("tie")}

    @property
    def billed(self) -> Bill:
        """The cost of the judging alone."""
        return Bill(*(sum(getattr(verdict, name) for verdict in self.verdicts) for name in Bill._fields))

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as ``evaluate --judge --json`` prints it: wins by the methods' names."""
        names = {"first": self.first, "second": self.second, "tie": "tie"}
        return {
            "first": self.first,
            "second": self.second,
            "judged": sum(bool(verdict.winners) for verdict in self.verdicts),
            "unjudged": sum(not verdict.winners for verdict in self.verdicts),
            "wins": {
                criterion: {names[who]: count for who, count in self.won(criterion).items()} for criterion in CRITERIA
            },
            **self.billed._asdict(),
            "verdicts": [
                {
                    "id": question.id,
                    "winners": {criterion: names[who] for criterion, who in verdict.winners.items()},
                    "explanations": {criterion: list(both) for criterion, both in verdict.explanations.items()},
                    **({} if verdict.error is None else {"error": verdict.error}),
                }
                for question, verdict in zip(self.questions, self.verdicts, strict=True)
            ],
        }


def judge(
    questions: Sequence[Question],
    first: tuple[str, Sequence[Answer]],
    second: tuple[str, Sequence[Answer]],
    llm: LLM,
    *,
    concurrency: int = 8,
    max_output_tokens: int = 1024,
    deadline_seconds: float = 60.0,
    prompts: Path | None = None,
) -> Judgement:
    """Compare two methods' answers, each passed as (name, answers by question). Raises LlmForbidden."""
    judge_prompt = prompt("judge", prompts)

    async def compare(question: Question, pair: tuple[Answer, Answer], turns: Turns) -> Verdict:
        missing = [name for (name, _), answer in zip((first, second), pair, strict=True) if answer.error is not None]
        if missing:
            return Verdict({}, {}, f"{' and '.join(missing)} did not answer")
        texts = (pair[0].text, pair[1].text)
        if texts[0].strip() == texts[1].strip():
            return Verdict(dict.fromkeys(CRITERIA, "tie"), {})
        ask = Ask(llm, turns, max_output_tokens, RetryLimits(deadline_seconds=deadline_seconds))
        requests = (_request(judge_prompt, question.question, two, max_output_tokens) for two in (texts, texts[::-1]))
        there, back = await all_of(answer_or_error(ask, request) for request in requests)
        spent = (ask.calls, ask.input_tokens, ask.output_tokens)
        if isinstance(there, LlmError) or isinstance(back, LlmError):
            return Verdict({}, {}, str(there if isinstance(there, LlmError) else back), *spent)
        return Verdict(*combine_verdicts(there, back), None, *spent)

    async def compare_all() -> list[Verdict]:
        turns = Turns(concurrency)
        pairs = zip(questions, zip(first[1], second[1], strict=True), strict=True)
        return await all_of(compare(question, pair, turns) for question, pair in pairs)

    return Judgement(first[0], second[0], tuple(questions), tuple(run_coroutine(compare_all())))


def bill_of_judging(questions: Sequence[Question], max_output_tokens: int = 1024, prompts: Path | None = None) -> Bill:
    """Return an upper bound of the cost of comparing two methods, without repairs and lost calls."""
    judge_prompt = prompt("judge", prompts)
    empty = prompt_tokens(_request(judge_prompt, "", ("", ""), max_output_tokens)) + 2 * max_output_tokens
    read = sum(empty + text_tokens(question.question) for question in questions)
    return Bill(2 * len(questions), 2 * read, 2 * len(questions) * max_output_tokens)


def combine_verdicts(
    there: Mapping[str, Any], back: Mapping[str, Any]
) -> tuple[dict[str, Winner], dict[str, tuple[str, str]]]:
    """Combine the verdicts on two answers and on the reversed pair; return winners and explanations by criterion."""
    winners: dict[str, Winner] = {}
    for criterion in CRITERIA:
        places = (there[criterion]["winner"], back[criterion]["winner"])
        winners[criterion] = "first" if places == (1, 2) else "second" if places == (2, 1) else "tie"
    return winners, {
        criterion: (there[criterion]["explanation"].strip(), back[criterion]["explanation"].strip())
        for criterion in CRITERIA
    }


def _request(judge_prompt: tuple[str, str], question: str, texts: tuple[str, ...], max_output_tokens: int) -> Request:
    return Request(
        task="judge",
        instructions=judge_prompt[0],
        prompt_version=judge_prompt[1],
        content=f"{data_block(texts)}\n\nQuestion: {question.strip()}",
        schema=VERDICT,
        max_output_tokens=max_output_tokens,
    )
