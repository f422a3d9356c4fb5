"""Files of prompts for the Batch API, within its limits: one line per question, identified by its ledger key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json
from storage.batches import BatchQuestion, Kind
from tasks.llm.openai_batches import CHAT, LARGEST_BYTES


class BatchDraft:
    """A local file that becomes a batch, and its questions."""

    def __init__(self, path: Path, largest: int, largest_bytes: int = LARGEST_BYTES) -> None:
        self.path = path
        self.questions: list[BatchQuestion] = []
        self._largest, self._largest_bytes = largest, largest_bytes
        self._kinds: dict[bytes, tuple[int, Kind]] = {}
        self._ends: list[int] = []  # bytes up to the end of each line
        self._input_tokens: list[int] = []
        self._output_tokens: list[int] = []
        self._file = path.open("wb")

    def add(self, key: str, request: Request, body: dict[str, Any], input_tokens: int) -> bool:
        """Write a question to the file; returns False if the file is full."""
        line = canonical_json({"custom_id": key, "method": "POST", "url": CHAT, "body": body})
        if self.questions and (len(self.questions) == self._largest or self.bytes + len(line) > self._largest_bytes):
            return False
        kind = Kind(
            task=request.task,
            prompt_version=request.prompt_version,
            answers=dict(request.schema),
            max_output_tokens=request.max_output_tokens,
        )
        number, _ = self._kinds.setdefault(kind.to_bytes(), (len(self._kinds), kind))
        self.questions.append(BatchQuestion(key=key, kind=number, about=request.about, makes=request.makes))
        self._input_tokens.append(input_tokens)
        self._output_tokens.append(request.max_output_tokens)
        self._file.write(line)
        self._ends.append(self.bytes + len(line))
        return True

    def keep(self, count: int) -> None:
        for column in (self.questions, self._ends, self._input_tokens, self._output_tokens):
            del column[count:]
        self._file.truncate(self.bytes)

    def close(self) -> None:
        """Close the file; no more questions may be added."""
        self._file.close()

    def drop(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def bytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    def tokens(self, start: int = 0, stop: int | None = None) -> tuple[int, int]:
        """Return the maximum input and output tokens of a range of questions."""
        return sum(self._input_tokens[start:stop]), sum(self._output_tokens[start:stop])

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that the questions' `kind` numbers refer to."""
        return tuple(kind for _, kind in self._kinds.values())


def request_of(question: BatchQuestion, kind: Kind) -> Request:
    """Return the request of a question with the fields needed to check its answer: no prompt and no text."""
    return Request(
        task=kind.task,
        instructions="",
        prompt_version=kind.prompt_version,
        content="",
        schema=kind.answers,
        max_output_tokens=kind.max_output_tokens,
        about=question.about,
        makes=question.makes,
    )
