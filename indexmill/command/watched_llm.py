"""A language model that reports its calls on standard error."""

from __future__ import annotations

from indexmill.command.waiting import Waiting
from indexmill.models.llm import Completion, LlmWrapper, Request
from indexmill.models.llm_errors import LlmError
from indexmill.models.openai_llm import OpenAiLlm


class WatchedLlm(LlmWrapper[OpenAiLlm]):
    """Reports each call and each retry of a model; see ``LLM``."""

    def __init__(self, llm: OpenAiLlm, waiting: Waiting) -> None:
        super().__init__(llm)
        self._waiting = waiting

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """See ``LLM``."""
        self._waiting.say(f"asking {self._llm.model} at {self._llm.where}")
        try:
            return await self._llm.complete(request, correction)
        except LlmError as error:
            if error.retry:
                self._waiting.say(f"waiting to ask {self._llm.model} again: {error}")
            raise
