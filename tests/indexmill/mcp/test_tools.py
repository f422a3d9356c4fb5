"""The tools of MCP, called by the protocol's own client: over stdio, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from indexmill.serve.callers import add_token
from indexmill.serve.messages import FoundDocument, RetrieveResponse, VersionsResponse
from tests.indexmill.serve.serving import publish, serving
from tests.paths import ROOT


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tools") / "store"
    publish(path, 1)
    publish(path, 2)
    return path


async def use(client: Client) -> None:
    """Call every tool; results are typed, and errors tell the assistant what to do."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"search", "read_document", "list_versions"}
    for tool in tools.values():
        assert tool.description
        assert tool.output_schema is not None
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
    assert tools["search"].input_schema["required"] == ["question"]

    async def call(name: str, **arguments: Any) -> Any:
        result = await client.call_tool(name, arguments)
        assert not result.is_error, result.content
        return result.structured_content

    found = RetrieveResponse.model_validate(
        await call("search", question="Who paid for the bridge?", method="bm25", k=2)
    )
    assert found.version == 2
    assert 0 < len(found.hits) <= 2
    filtered = await call("search", question="bridge", method="bm25", where={"document_id": "bridge"})
    assert {hit["document_ids"][0] for hit in filtered["hits"]} == {"bridge"}
    assert ["Money", "Gifts"] in [hit["section"] for hit in filtered["hits"]]
    hit = found.hits[0]
    document = FoundDocument.model_validate(await call("read_document", document_id=hit.document_ids[0]))
    assert hit.span is not None
    assert document.text[slice(*hit.span)] == hit.text
    part = await call("read_document", document_id="bridge", start=4, characters=6)
    assert (part["text"], part["length"]) == (document.text[4:10], len(document.text))
    versions = VersionsResponse.model_validate(await call("list_versions"))
    assert [one.version for one in versions.versions] == [1, 2]
    for name, arguments, said in (
        ("read_document", {"document_id": "nobody"}, "there is no document 'nobody'"),
        ("search", {"question": "x", "k": 10_000}, "expected 100 at most"),
        ("search", {"question": "x", "method": "nothing"}, "nothing"),
        ("search", {"question": 3}, "question"),
    ):
        result = await client.call_tool(name, arguments)
        assert result.is_error
        text = str(result.content[0])
        assert said in text
        assert "Traceback" not in text


@pytest.mark.slow
def test_tools_over_stdio(store: Path) -> None:
    arguments = ["-m", "indexmill", "mcp", str(store)]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)

    async def play() -> None:
        async with Client(stdio_client(server)) as client:
            await use(client)

    asyncio.run(play())


@pytest.mark.slow
def test_tools_over_http_with_a_token(store: Path, tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens.json", "assistant")
    with serving(store, "--tokens", tmp_path / "tokens.json") as server:

        async def play() -> None:
            headers = {"authorization": f"Bearer {token}"}
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False) as http,
                Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
            ):
                await use(client)

        asyncio.run(play())
        assert server.client.post("/mcp", json={}).status_code == 401
    assert {line["caller"] for line in server.requests("/mcp")} == {"assistant", "anonymous"}
