"""The tools of MCP, as the protocol's own inspector finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indexmill.serve.callers import add_token
from indexmill.serve.messages import RetrieveResponse
from tests.indexmill.serve.serving import publish, serving
from tests.paths import ROOT
from tests.storage.node_services import inspector

pytestmark = pytest.mark.slow

TOOLS = ["search", "read_document", "list_versions"]
SEARCH = ["--method", "tools/call", "--tool-name", "search", "--tool-arg", "question=bridge", "method=bm25", "k=1"]
LIST = ["--method", "tools/list", "--strict"]
"""``--strict``: schemas that not every client understands are an error."""


class Inspector:
    """The inspector's command with a server to ask, which it knows by some words."""

    def __init__(self, home: Path, *server: str) -> None:
        self._start, self._server, self._home = inspector(), server, home

    def ask(self, *words: str) -> Any:
        """What the server answers."""
        command = [*self._start, *self._server, *words, "--format", "json", "--quiet"]
        environment = {**os.environ, "HOME": str(self._home), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]


def use(asked: Inspector) -> None:
    """List the tools by both generations of the protocol, and search."""
    for era in ("legacy", "modern"):
        tools = asked.ask(*LIST, "--protocol-era", era)["tools"]
        assert [tool["name"] for tool in tools] == TOOLS
        assert all(tool["outputSchema"] for tool in tools)
        found = asked.ask(*SEARCH, "--protocol-era", era)["structuredContent"]
        assert [hit.document_ids for hit in RetrieveResponse.model_validate(found).hits] == [["bridge"]]


def test_the_inspector_lists_the_tools_and_searches_over_stdio(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    use(Inspector(tmp_path, sys.executable, "-m", "indexmill", "mcp", str(tmp_path / "store")))


def test_the_inspector_lists_the_tools_and_searches_over_http(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    token = add_token(tmp_path / "tokens.json", "inspector")
    with serving(tmp_path / "store", "--tokens", tmp_path / "tokens.json") as server:
        address = ["--server-url", f"{server.url}/mcp", "--transport", "http"]
        use(Inspector(tmp_path, *address, "--header", f"Authorization: Bearer {token}"))
    assert {line["caller"] for line in server.requests("/mcp")} == {"inspector"}
