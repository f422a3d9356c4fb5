"""HTTP responses of bounded size: decompressed bytes are counted, and reading stops at a limit.

Decompression can enlarge a body a thousand times, so a response of a few megabytes could fill the memory.
"""

from __future__ import annotations

import contextlib
from typing import Any

import httpx2

from indexmill.models.chat import LARGEST_ANSWER
from indexmill.models.llm_errors import LlmUnusable

LARGEST_ERROR = 1_000_000
"""The maximum number of bytes read from the body of an error response, whose status matters more."""


class BoundedClient(httpx2.AsyncClient):
    """A client that bounds the size of every response, except successful responses that its caller streams."""

    def __init__(self, *, largest: int = LARGEST_ANSWER, **options: Any) -> None:
        super().__init__(**options)
        self._largest = largest

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request. Raises LlmUnusable if a success response exceeds `largest`; an error response is cut off."""
        response = await super().send(request, stream=True, **options)
        if stream and response.is_success:
            return response
        content = await whole_body(response, self._largest)
        headers = httpx2.Headers(response.headers)
        for name in ("content-encoding", "content-length"):  # these describe the compressed body
            headers.pop(name, None)
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)


async def whole_body(response: httpx2.Response, largest: int = LARGEST_ANSWER) -> bytes:
    """Read the body of a streamed response and close it; raises LlmUnusable as `BoundedClient.send` does."""
    whole = _Whole(response, largest)
    try:
        async with contextlib.aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                if not whole.takes(chunk):
                    break
    finally:
        await response.aclose()
    return bytes(whole.content)


def content_of(response: httpx2.Response) -> bytes:
    """Read the body of a streamed response; raises LlmUnusable as `BoundedClient.send` does."""
    whole = _Whole(response)
    for chunk in response.iter_bytes():
        if not whole.takes(chunk):
            break
    return bytes(whole.content)


def too_large(response: httpx2.Response, most: int) -> LlmUnusable:
    """Return the error for a response of more than `most` bytes."""
    host, packed = response.request.url.netloc.decode(), response.num_bytes_downloaded
    size = f"more than {most / 1e6:.1f} MB" + (f", sent as {packed / 1e3:,.0f} kB," if packed < most else "")
    error = LlmUnusable(
        f"{host} answered {response.status_code} with {size} and was cut off: no answer is that long", billed="maybe"
    )
    error.useless_response = True
    return error


class _Whole:
    """The part of a body received so far."""

    def __init__(self, response: httpx2.Response, largest: int = LARGEST_ANSWER) -> None:
        self.content = bytearray()
        self._response, self._largest = response, largest

    def takes(self, chunk: bytes) -> bool:
        """Add the next bytes; return False once an error response is cut off. Raises LlmUnusable for a long answer."""
        self.content += chunk
        if self._response.is_success and len(self.content) > self._largest:
            raise too_large(self._response, self._largest)
        if not self._response.is_success and len(self.content) > LARGEST_ERROR:
            del self.content[LARGEST_ERROR:]
            return False
        return True
