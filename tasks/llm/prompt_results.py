"""The results of prompts: answers in the ledger, and refusals, which no later run pays for again unless requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from indexmill.models.llm import Request
from storage import ledger, refusals
from storage.ledger import LedgerEntry
from storage.protocol import Store
from storage.refusals import RefusedPrompt
from tasks.llm.answer_parsing import fits


@dataclass(frozen=True)
class PromptRefusal:
    """A request without an answer: the key of its prompt, and the reason in fixed wording."""

    key: str
    reason: str


@dataclass(frozen=True)
class ModelAnswer:
    """A good answer: its value fits the request's schema and is in the ledger. Tokens are its original cost."""

    value: Mapping[str, Any]
    input_tokens: int
    output_tokens: int
    from_ledger: bool


NO_ANSWER = "no-answer"
"""The reason of a prompt that an endpoint never answered in a run, while it answered others."""

_MOST_RUNS = 3
"""The number of runs that send a prompt which got no answer."""

AskResult = ModelAnswer | PromptRefusal
"""The result of a request."""


def stored_result(
    store: Store, key: str, request: Request, *, retry_refused: bool = False, run_id: str = ""
) -> AskResult | None:
    """Return the stored answer or refusal of a prompt; None if there is neither.

    A refusal without an answer counts from its third run on. retry_refused: see `LlmAccess`; refusals recorded by this
    run still count.
    """
    entry = ledger.find(store, key)
    if entry is not None and fits(entry.value, request.schema):
        return ModelAnswer(entry.value, entry.input_tokens, entry.output_tokens, from_ledger=True)
    refused = refusals.find(store, key)
    if refused is None:
        return None
    again = retry_refused or (refused.reason == NO_ANSWER and refused.runs < _MOST_RUNS)
    if again and refused.run_id != run_id:
        return None
    return PromptRefusal(key, refused.reason)


@dataclass(frozen=True)
class RequestRecord:
    """A prompt to be recorded in a store. key: the prompt's key. model, run_id, created: fields of the record."""

    store: Store
    key: str
    request: Request
    model: str
    run_id: str
    created: str

    @property
    def _fields(self) -> dict[str, Any]:
        """The fields that both kinds of records have."""
        return {
            "key": self.key,
            "task": self.request.task,
            "model": self.model,
            "prompt_version": self.request.prompt_version,
            "about": self.request.about,
            "makes": self.request.makes,
            "run_id": self.run_id,
            "created": self.created,
        }

    def keep(self, value: Mapping[str, Any], input_tokens: int, output_tokens: int) -> ModelAnswer:
        """Store a checked value in the ledger; returns the answer recorded there, which may be another process's."""
        entry = LedgerEntry(**self._fields, value=dict(value), input_tokens=input_tokens, output_tokens=output_tokens)
        stands = ledger.record(self.store, entry, lambda earlier: fits(earlier.value, self.request.schema))
        refusals.remove(self.store, self.key)
        return ModelAnswer(stands.value, stands.input_tokens, stands.output_tokens, from_ledger=False)

    def refuse(self, reason: str) -> PromptRefusal:
        """Record that the prompt has no answer."""
        earlier = refusals.find(self.store, self.key)
        runs = earlier.runs + 1 if earlier is not None and earlier.reason == reason == NO_ANSWER else 1
        refusals.record(self.store, RefusedPrompt(**self._fields, reason=reason, runs=runs))
        return PromptRefusal(self.key, reason)
