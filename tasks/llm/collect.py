"""Collect the answers of a batch: lines in any order, each checked against its question and stored in the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexmill.models.chat import LARGEST_ANSWER
from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmError
from indexmill.models.openai_llm import OpenAiLlm
from indexmill.models.readable import BadAnswer
from indexmill.store.canonical import strict_json
from storage.batches import Batch
from storage.protocol import Store
from storage.tombstones import forgotten
from tasks.llm.answer_parsing import read, repeats_items, salvaged
from tasks.llm.drafts import request_of
from tasks.llm.prompt_results import RequestRecord


@dataclass
class BatchResults:
    """The results of a batch.

    good_answers: questions with a good answer, in the ledger. salvaged: those whose answer was cut off. unusable:
    questions with an invalid answer. unanswered: the other questions. ignored: lines that match no open question.
    input_tokens, output_tokens: the cost of all answers, good or bad. aside: the keys of questions that a new batch
    would not answer either.
    """

    good_answers: int = 0
    unusable: int = 0
    unanswered: int = 0
    ignored: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    salvaged: int = 0
    aside: set[str] = field(default_factory=set)

    @property
    def counts(self) -> Counter[str]:
        return Counter(
            {
                "llm_batches": 1,
                "llm_calls": self.good_answers + self.unusable,
                "llm_input_tokens": self.input_tokens,
                "llm_output_tokens": self.output_tokens,
                "llm_salvaged": self.salvaged,
                "llm_tokens": self.input_tokens + self.output_tokens,
                "llm_batch_input_tokens": self.input_tokens,
                "llm_batch_output_tokens": self.output_tokens,
                "llm_batch_answers": self.good_answers,
                "llm_batch_unusable": self.unusable,
                "llm_batch_unanswered": self.unanswered,
                "llm_batch_ignored": self.ignored,
            }
        )


def collect(
    store: Store, llm: OpenAiLlm, batch: Batch, files: Iterable[Path], run_id: str, created: str
) -> BatchResults:
    """Store the good answers of answer files in the ledger; the first line for a question counts.

    Filtered or refused questions are quarantined immediately, since a retry would end the same way. Answers about
    documents that the store must forget are ignored. If a line is longer than any valid answer, questions without a
    line are not put into a new batch.
    """
    came, endless = BatchResults(), False
    tombstones = forgotten(store)
    questions = {
        question.key: question
        for question in batch.request.questions
        if not tombstones.names((*question.about, question.makes))
    }
    for line in _lines(files):
        if line is None:
            came.ignored, endless = came.ignored + 1, True
            continue
        key = line.get("custom_id")
        question = questions.pop(key, None) if isinstance(key, str) else None
        if question is None:
            came.ignored += 1
            continue
        body = _body(line)
        if body is None:
            came.unanswered += 1
            came.aside |= set() if _may_work_later(line) else {question.key}
            continue
        request = request_of(question, batch.request.kinds[question.kind])
        record = RequestRecord(store, question.key, request, batch.request.model, run_id, created)
        try:
            completion = llm.completion(request, body)
        except LlmError:  # no chat completion
            came.unusable += 1
            came.aside.add(question.key)
            continue
        came.input_tokens += completion.input_tokens
        came.output_tokens += completion.output_tokens
        try:
            value = _value(completion, request, came)
        except BadAnswer as bad:
            came.unusable += 1
            came.aside.add(question.key)
            if bad.is_final:
                record.refuse(bad.reason)
            continue
        record.keep(value, completion.input_tokens, completion.output_tokens)
        came.good_answers += 1
    came.unanswered += len(questions)
    came.aside |= set(questions) if endless else set()
    return came


def _value(completion: Completion, request: Request, came: BatchResults) -> dict[str, Any]:
    """Return the value of an answer, or what is complete of one that was cut off in a loop; raises BadAnswer.

    A direct call would repair other answers that were cut off; a loop would end the same way.
    """
    try:
        return read(completion, request.schema)
    except BadAnswer:
        rest = salvaged(completion, request.schema)
        if rest is None or not repeats_items(rest):
            raise
        came.salvaged += 1
        return rest


def _lines(files: Iterable[Path]) -> Iterator[Mapping[str, Any] | None]:
    """Yield the lines of files: an empty mapping for an invalid line, None for one longer than any valid answer."""
    for path in files:
        with path.open("rb") as file:
            endless = False
            while line := file.readline(LARGEST_ANSWER):
                whole = len(line) < LARGEST_ANSWER or line.endswith(b"\n")
                if whole and not endless:
                    yield _object(line)
                elif not endless:
                    yield None
                endless = not whole


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        value = strict_json(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _body(line: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the chat completion in a line; None if the line is an error."""
    response = line.get("response")
    if line.get("error") or not isinstance(response, dict) or response.get("status_code") != 200:
        return None
    body = response.get("body")
    return body if isinstance(body, dict) else {}


def _may_work_later(line: Mapping[str, Any]) -> bool:
    """Return True if a line has no answer to its question, but a new batch may have one."""
    response = line.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    return not isinstance(status, int) or status in (408, 409, 429) or status >= 500
