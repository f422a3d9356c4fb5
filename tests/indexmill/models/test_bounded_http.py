"""What an endpoint sends is read up to a bound, however well it is compressed: real clients, a real server."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from indexmill.models.chat import LARGEST_ANSWER
from tests.llm_server import LlmServer, Reply
from tests.paths import ROOT

MEGABYTES = 400

CHILD = """
import asyncio, json, resource, sys
from pathlib import Path
from indexmill.models.llm import Request
from tasks.llm.openai_batches import OpenAiBatches
from indexmill.models.openai_llm import OpenAiLlm
from indexmill.models.rerank_endpoint import RerankEndpoint
from indexmill.models.secrets import KeySource
from indexmill.errors import IndexmillError

kind, url, path = sys.argv[1:]
llm = OpenAiLlm("small", url, KeySource("NO_KEY", required=False), timeout_seconds=60)
batches = OpenAiBatches(llm)
reranker = RerankEndpoint(url + "/rerank")
calls = {
    "chat": lambda: asyncio.run(llm.complete(Request("t", "i", "1", "c", {"type": "object"}, 9))),
    "failed chat": lambda: asyncio.run(llm.complete(Request("t", "i", "1", "fail", {"type": "object"}, 9))),
    "batch": lambda: batches.retrieve("b"),
    "file": lambda: batches.download("f", Path(path), 30_000_000),
    "failed file": lambda: batches.download("fail", Path(path), 30_000_000),
    "scores": lambda: reranker.scores("q", ["text"]),
}
asyncio.run(llm.ready())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    calls[kind]()
    said = ["nothing"]
except IndexmillError as error:
    said = [type(error).__name__, str(error), error.retry, error.billed]
print(json.dumps([said, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024]))
"""


@functools.cache
def bomb() -> bytes:
    """Zeros in gzip, of which a thousandth is sent."""
    packer = zlib.compressobj(9, wbits=31)
    piece = bytes(1_000_000)
    return b"".join([*(packer.compress(piece) for _ in range(MEGABYTES)), packer.flush()])


class Bombing(LlmServer):
    """Answers everything with the bomb; what asks for a failure gets it with a status of 400."""

    def reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        status = 400 if b"fail" in body or "fail" in target else 200
        return Reply(status, bomb(), {"content-type": "application/json", "content-encoding": "gzip"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("chat", "LlmUnusable", "answered 200 with more than 8.0 MB, sent as "),
        ("failed chat", "LlmRejected", "answered 400: the request was rejected"),
        ("batch", "LlmUnusable", "answered 200 with more than 8.0 MB"),
        ("file", "LlmUnusable", "answered 200 with more than 30.0 MB"),
        ("failed file", "LlmRejected", "answered 400"),
        ("scores", "LlmUnusable", "answered 200 with more than 8.0 MB"),
    ],
)
def test_an_answer_without_end_is_cut_off_and_takes_no_memory(tmp_path: Path, kind: str, error: str, says: str) -> None:
    path = tmp_path / "answers"
    with Bombing() as server:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, kind, server.base_url, path],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    (name, message, retry, billed), megabytes = json.loads(done.stdout)
    assert (name, retry) == (error, False)
    assert says in message
    assert server.url.rpartition("/")[2] in message
    assert billed == ("maybe" if error == "LlmUnusable" else "no")
    assert megabytes < 120
    if kind == "file":
        assert path.stat().st_size == 30_000_000


def test_an_answer_that_is_just_not_too_long_is_read_whole() -> None:
    import httpx2

    from indexmill.models.bounded_http import BoundedClient

    packed = zlib.compress(b"x" * LARGEST_ANSWER, wbits=31)
    headers = {"content-encoding": "gzip", "x-request-id": "7"}
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, headers=headers, content=packed))

    async def read() -> httpx2.Response:
        async with BoundedClient(transport=transport) as client:
            return await client.get("http://endpoint/")

    response = asyncio.run(read())
    assert response.content == b"x" * LARGEST_ANSWER
    assert response.headers["x-request-id"] == "7"
