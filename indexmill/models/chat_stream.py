"""Streamed chat completions, put together as the body of one that is not streamed.

A stream shows that the model is writing, so the timeout of a call can be one for silence: an answer may take as long as
its tokens need, and a call that waits in the endpoint's queue is known from one that is being answered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from indexmill.models.bounded_http import whole_body
from indexmill.store.canonical import canonical_json

if TYPE_CHECKING:
    import openai

_CHUNKS_PER_TOKEN = 4
_MORE_CHUNKS = 256
"""A stream of more chunks than this many for each token, and as many more, ignores the limit of the answer."""


class ChatStream:
    """One streamed call. body: the request. seconds: the maximum time of the stream, after which it is cut off."""

    def __init__(self, body: Mapping[str, Any], seconds: float) -> None:
        self._body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)
        self._most = _CHUNKS_PER_TOKEN * limit + _MORE_CHUNKS
        self._seconds = seconds
        self.waited = 0.0
        """The seconds until the first token came; 0 if the endpoint does not stream."""

    async def send(self, client: openai.AsyncOpenAI) -> bytes:
        """Send the request, and return the body of a completion; an answer that is cut off has the reason `length`.

        An endpoint that does not stream may answer with the whole body.
        """
        began = time.monotonic()
        creating = client.chat.completions.with_streaming_response.create(**self._body)
        async with creating as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                return await whole_body(response.http_response)
            return await self._whole(await response.parse(), began)

    async def _whole(self, stream: openai.AsyncStream[Any], began: float) -> bytes:
        texts = {"content": "", "refusal": ""}
        reason = usage = model = None
        chunks = 0
        async for chunk in stream:
            usage, model = chunk.usage or usage, chunk.model or model
            for choice in (chunk.choices or ())[:1]:
                chunks += 1
                reason = choice.finish_reason or reason
                for name in texts:
                    texts[name] += getattr(choice.delta, name, None) or ""
            self.waited = self.waited or time.monotonic() - began
            if chunks > self._most or time.monotonic() > began + self._seconds:
                reason = "length"
                break
        message = {"role": "assistant", "content": texts["content"], "refusal": texts["refusal"] or None}
        choices = [{"message": message, "finish_reason": reason}] if chunks else []
        counts = {} if usage is None else {"usage": usage.model_dump(mode="json", exclude_unset=True)}
        return canonical_json({"choices": choices, "model": model, **counts})
