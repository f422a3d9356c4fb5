"""Streamed chat completions, put together as the body of one that is not streamed.

A stream shows that the model is writing, so the timeout of a call can be one for silence: an answer may take as long as
its tokens need, and a call that waits in the endpoint's queue is known from one that is being answered.

Events are read as plain data: endpoints send what the library's types do not allow, and an error of the library would
carry what the endpoint wrote.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from indexmill.models.bounded_http import too_large, whole_body
from indexmill.models.chat import LARGEST_ANSWER
from indexmill.models.http_failures import HttpFailure
from indexmill.store.canonical import json_object

if TYPE_CHECKING:
    import httpx2
    import openai

LONGEST = 15
"""The maximum time of a streamed answer, in timeouts: one that is still being written then is cut off."""

_CHUNKS_PER_TOKEN = 4
_MORE_CHUNKS = 256
"""A stream of more chunks than this many for each token, and as many more, ignores the limit of the answer."""


class ChatStream:
    """One streamed call. body: the request. timeout_seconds: the timeout of silence."""

    def __init__(self, body: Mapping[str, Any], timeout_seconds: float) -> None:
        self._body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)
        self._most = _CHUNKS_PER_TOKEN * limit + _MORE_CHUNKS
        self._seconds = LONGEST * timeout_seconds
        self._texts = {"content": "", "refusal": ""}
        self._reason: str | None = None
        self._done = False
        self._usage: Any = None
        self._model: Any = None
        self.chunks = 0
        """The number of chunks of the answer so far."""
        self.waited = 0.0
        """The seconds until the first token came; 0 if the endpoint does not stream."""

    async def send(self, client: openai.AsyncOpenAI) -> bytes | HttpFailure:
        """Send the request, and return the body of a completion, or the error in the stream.

        An answer that is cut off has the reason `length`. An endpoint that does not stream may answer with the whole
        body.
        """
        began = time.monotonic()
        async with client.chat.completions.with_streaming_response.create(**self._body) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                return await whole_body(response.http_response)
            async for event in _events(response.http_response):
                if event is None:
                    self._done = True
                    break
                error = event.get("error")
                if error:
                    return _failure(error)
                self._add(event)
                self.waited = self.waited or time.monotonic() - began
                if self.chunks > self._most or time.monotonic() > began + self._seconds:
                    self._reason = "length"
                    break
        if self._reason is None and not self._done:
            import httpx2

            raise httpx2.RemoteProtocolError("the stream ended before the answer")
        return self._body_of_completion()

    def _add(self, event: Mapping[str, Any]) -> None:
        self._usage, self._model = event.get("usage") or self._usage, event.get("model") or self._model
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self.chunks += 1
        if isinstance(reason := choice.get("finish_reason"), str):
            self._reason = reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        for name in self._texts:
            if isinstance(text := delta.get(name), str):
                self._texts[name] += text

    def _body_of_completion(self) -> bytes:
        # Two chunks may each have one half of a character.
        content, refusal = (
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in self._texts.values()
        )
        message = {"content": content, "refusal": refusal or None}
        choices = [{"message": message, "finish_reason": self._reason}] if self.chunks else []
        return json.dumps({"choices": choices, "model": self._model, "usage": self._usage}).encode()


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, Any] | None]:
    """Yield the events of a stream that are objects, and None for its declared end; raises LlmUnusable beyond 8 MB."""
    rest, size = b"", 0
    async for data in response.aiter_bytes():
        size += len(data)
        if size > LARGEST_ANSWER:
            raise too_large(response, LARGEST_ANSWER)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            content = line[len(b"data:") :].strip()
            if content == b"[DONE]":
                yield None
                return
            if (event := json_object(content)) is not None:
                yield event


def _failure(error: Any) -> HttpFailure:
    """Convert an error within a stream, whose code may be a status."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return HttpFailure.of(status, {}, json.dumps({"error": error}).encode(), time.time())
