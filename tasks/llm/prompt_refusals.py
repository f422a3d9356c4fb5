"""Prompts without an answer, recorded so that no later run pays for them again unless requested."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.models.llm import Request
from storage import refusals
from storage.protocol import Store
from storage.refusals import RefusedPrompt


@dataclass(frozen=True)
class PromptRefusal:
    """A request without an answer: the key of its prompt, and the reason in fixed wording."""

    key: str
    reason: str


def refused_before(store: Store, key: str, run_id: str | None = None) -> PromptRefusal | None:
    """The recorded refusal of a prompt, or None. run_id: only a refusal by this run."""
    refused_prompt = refusals.find(store, key)
    if refused_prompt is None or (run_id is not None and refused_prompt.run_id != run_id):
        return None
    return PromptRefusal(key, refused_prompt.reason)


def quarantine(
    store: Store, request: Request, *, key: str, model: str, reason: str, run_id: str, created: str
) -> PromptRefusal:
    """Record that a prompt has no answer."""
    refusals.record(
        store,
        RefusedPrompt(
            key=key,
            task=request.task,
            model=model,
            prompt_version=request.prompt_version,
            reason=reason,
            about=request.about,
            makes=request.makes,
            run_id=run_id,
            created=created,
        ),
    )
    return PromptRefusal(key, reason)
