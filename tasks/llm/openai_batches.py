"""The Batch API of an endpoint of OpenAI's protocol: files of requests that are answered within a day.

Each method makes one call, or one listing, without retries, and raises the errors of ``indexmill.models.llm_errors``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from indexmill.models.http_failures import HttpFailure
from indexmill.models.llm_errors import LlmBusy, LlmError, LlmForbidden, LlmUnreachable
from indexmill.models.openai_llm import OpenAiLlm

if TYPE_CHECKING:
    import openai
    from openai.types import Batch

CHAT: Final = "/v1/chat/completions"
"""The path that the protocol requires for a batch, whatever the base URL."""

LARGEST_QUESTIONS, LARGEST_BYTES = 50_000, 200_000_000
"""The protocol's limits for one file."""

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_MARK = "indexmill"
_LACKING = frozenset({404, 405, 501})
_PAGE = 100
_LONG = 900.0
"""The timeout of transfers and listings, in seconds."""

_T = TypeVar("_T")
_Send = Callable[["openai.AsyncOpenAI"], Awaitable[_T]]


class NotStarted(LlmBusy):
    """The endpoint is busy and has certainly not started the batch."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a batch at the endpoint. codes: its error codes, without messages, which may repeat the prompt."""

    batch_id: str
    status: str
    done: int
    output_file_id: str | None
    error_file_id: str | None
    codes: tuple[str, ...]

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


@dataclass(frozen=True)
class OpenAiBatches:
    """The batches of a language model's endpoint."""

    llm: OpenAiLlm

    @property
    def where(self) -> str:
        return self.llm.where

    def upload(self, path: Path, name: str) -> str:
        """Send a file of questions; returns its id."""

        async def send(client: openai.AsyncOpenAI) -> str:
            with path.open("rb") as file:
                return (await client.files.create(file=(name, file), purpose="batch")).id

        return self._call(self._there(send), seconds=_LONG)

    def files(self, name: str) -> list[str]:
        """List the ids of the files of questions with this name."""

        async def send(client: openai.AsyncOpenAI) -> list[str]:
            listed = client.files.list(purpose="batch", limit=_PAGE)
            return [file.id async for file in listed if file.filename == name]

        return self._call(_or_none(send), seconds=_LONG) or []

    def start(self, file_id: str, mark: str) -> str:
        """Start the batch of a file, with `mark` in its metadata; returns the endpoint's id.

        After NotStarted or LlmRejected there is no batch; after any other error there may be one.
        """

        async def send(client: openai.AsyncOpenAI) -> str:
            batch = await client.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h", metadata={_MARK: mark}
            )
            return batch.id

        return self._call(self._there(send))

    def find(self, file_id: str, mark: str) -> list[str]:
        """List the ids of the batches that have the given file or mark, oldest first."""

        async def send(client: openai.AsyncOpenAI) -> list[str]:
            batches = [
                (batch.created_at, batch.id)
                async for batch in client.batches.list(limit=_PAGE)
                if batch.input_file_id == file_id or (batch.metadata or {}).get(_MARK) == mark
            ]
            return [batch_id for _, batch_id in sorted(batches)]

        return self._call(send, seconds=_LONG)

    def retrieve(self, batch_id: str) -> BatchState | None:
        """Return the state of a batch; None if the endpoint does not know it."""
        return self._state(lambda client: client.batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> BatchState | None:
        """Cancel a batch, which keeps its answers; returns its state, or None if the endpoint does not know it."""
        return self._state(lambda client: client.batches.cancel(batch_id))

    def _state(self, send: _Send[Batch]) -> BatchState | None:
        async def shown(client: openai.AsyncOpenAI) -> BatchState:
            return _shown(await send(client))

        return self._call(_or_none(shown))

    def download(self, file_id: str, path: Path, most: int) -> bool:
        """Write a file of answers to a path; returns False if there is none. Raises LlmUnusable above `most` bytes."""

        async def send(client: openai.AsyncOpenAI) -> bool:
            from indexmill.models.bounded_http import too_large

            room = most
            async with client.files.with_streaming_response.content(file_id) as content:
                with path.open("wb") as file:
                    async for chunk in content.iter_bytes():
                        file.write(chunk[:room])
                        if len(chunk) > room:
                            raise too_large(content.http_response, most)
                        room -= len(chunk)
            return True

        return self._call(_or_none(send), seconds=_LONG) or False

    def delete(self, file_id: str) -> None:
        """Delete a file, if it still exists."""
        self._call(_or_none(lambda client: client.files.delete(file_id)))

    def _call(self, send: _Send[_T], seconds: float = 0.0) -> _T:
        patient = dataclasses.replace(self.llm, timeout_seconds=max(seconds, self.llm.timeout_seconds))
        return asyncio.run(patient.call(self._read(send)))

    def _read(self, send: _Send[_T]) -> _Send[_T]:
        """Wrap a call to raise LlmUnreachable for a successful response that does not follow the protocol."""

        async def read(client: openai.AsyncOpenAI) -> _T:
            try:
                return await send(client)
            except (AttributeError, TypeError, ValueError):  # the library does not validate responses
                malformed = LlmUnreachable(f"{self.where}: the response is not a batch or file", retry=True)
            raise malformed

        return read

    def _there(self, send: _Send[_T]) -> _Send[_T]:
        """Wrap a call to raise status errors as LlmErrors with their meaning for batches."""

        async def sent(client: openai.AsyncOpenAI) -> _T:
            import openai

            refused: LlmError | None = None
            try:
                return await send(client)
            except openai.APIStatusError as error:
                response = error.response
                failure = HttpFailure.of(response.status_code, response.headers, response.content, time.time())
                converted = failure.error(self.where, self.llm.model)
                if response.status_code in _LACKING:
                    refused = LlmForbidden(
                        f"{self.where} answered {response.status_code}: it has no Batch API: set llm.batch to false"
                    )
                elif response.status_code == 429 and isinstance(converted, LlmBusy):
                    refused = NotStarted(str(converted), retry=True, retry_after=converted.retry_after)
                else:
                    refused = converted
            raise refused

        return sent


def _or_none(send: _Send[_T]) -> _Send[_T | None]:
    """Wrap a call to return None if the endpoint lacks the object, or does not support the operation."""

    async def sent(client: openai.AsyncOpenAI) -> _T | None:
        import openai

        try:
            return await send(client)
        except openai.APIStatusError as error:
            if error.status_code not in _LACKING:
                raise
        return None

    return sent


def _shown(batch: Batch) -> BatchState:
    errors = batch.errors.data if batch.errors is not None and batch.errors.data is not None else []
    return BatchState(
        batch_id=batch.id,
        status=batch.status,
        done=batch.request_counts.completed if batch.request_counts is not None else 0,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        codes=tuple(sorted({error.code for error in errors if error.code})),
    )
