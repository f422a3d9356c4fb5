"""Rights over HTTP and MCP: a token reads as its groups, and one without groups reads what is for everyone."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

import indexmill
from indexmill import BadInput, ConfigurationError, GateRefused
from indexmill.serve.callers import CallerTokens, add_token
from indexmill.serve.served_index import IndexChoice, open_index
from indexmill.snapshot import Snapshot
from storage.folder import open_folder
from tests.indexmill.rights.world import DOCUMENTS, PUBLIC, group, ids, leaks, readable, republish, word
from tests.indexmill.running import Run
from tests.indexmill.serve.serving import Serving, serving
from tests.indexmill.small_snapshot import publish
from tests.paths import ROOT

CALLERS = {"some": ("half 1",), "few": (group(0), group(5)), "none": ()}
QUESTION = "Who built Marrow Bridge with Ada Marl?"


class Served(NamedTuple):
    """A server of version 1, and the header of each caller."""

    server: Serving
    headers: dict[str, dict[str, str]]

    def post(self, caller: str, path: str, **asked: Any) -> Any:
        body = {"question": QUESTION, "k": 60, "explain": True, **asked}
        return self.server.client.post(path, json=body, headers=self.headers[caller])


@pytest.fixture(scope="module")
def served(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.json"
    headers = {name: {"authorization": f"Bearer {add_token(tokens, name, groups)}"} for name, groups in CALLERS.items()}
    with serving(store, "--snapshot", 1, "--tokens", tokens, "--demand-rights") as server:
        yield Served(server, headers)


@pytest.mark.parametrize("caller", CALLERS)
def test_a_token_reads_as_its_groups(served: Served, snapshot: Snapshot, caller: str) -> None:
    groups, may = CALLERS[caller], readable(CALLERS[caller])
    for method in snapshot.methods:
        response = served.post(caller, "/retrieve", method=method)
        assert response.status_code == 200
        expected = snapshot.retrieve(QUESTION, method=method, k=60, principals=groups)
        assert response.json()["hits"] == json.loads(json.dumps([hit.to_dict() for hit in expected]))
        assert leaks(response.text, may) == set()
        answer = served.post(caller, "/answer", method=method)
        assert leaks(answer.text, may) == set()
        assert answer.json()["hits"]
    stream = served.post(caller, "/answer", stream=True)
    assert leaks(stream.text, may) == set()
    hidden = next(number for number in range(len(DOCUMENTS)) if number not in may)
    for field in (word(hidden, "key"), "nothing"):
        wrong = served.post(caller, "/retrieve", where={field: 1})
        assert wrong.status_code == 400
        assert leaks(wrong.text.replace(field, ""), may) == set()


def test_questions_of_several_callers_at_once_never_share_what_they_may_read(served: Served) -> None:
    def ask(caller: str) -> tuple[str, set[str]]:
        hits = served.post(caller, "/retrieve", method="dense", explain=False).json()["hits"]
        return caller, {one for hit in hits for one in hit["document_ids"]}

    with ThreadPoolExecutor(12) as pool:
        for caller, documents in pool.map(ask, [*CALLERS] * 8):
            assert documents == set(ids(readable(CALLERS[caller])))


def test_what_is_not_about_documents_says_nothing_of_them(served: Served) -> None:
    client = served.server.client
    for path in ("/versions", "/metrics", "/health", "/ready", "/openapi.json"):
        texts = {client.get(path, headers=headers).text for headers in served.headers.values()}
        assert all(leaks(text, ()) == set() for text in texts)
    assert client.get("/versions", headers=served.headers["none"]).json()["served"]["version"] == 1
    assert leaks(json.dumps(served.server.log), ()) == set()


async def use(client: Client, may: set[int]) -> None:
    """Search and read as one caller."""

    async def call(name: str, **arguments: Any) -> tuple[bool, str]:
        result = await client.call_tool(name, arguments)
        return result.is_error, json.dumps(result.structured_content) + str(result.content)

    for method in ("fused", "heterograph", "community_tree"):
        failed, told = await call("search", question=QUESTION, k=60, method=method)
        assert not failed
        assert leaks(told, may) == set()
        assert all(one in told for one in ids(may))
    hidden = next(number for number in range(len(DOCUMENTS)) if number not in may)
    failed, told = await call("search", question=QUESTION, where={"nothing": 1})
    assert failed
    assert leaks(told, may) == set()
    refusals = []
    for document in (DOCUMENTS[hidden]["id"], "idqnobodyx"):
        failed, told = await call("read_document", document_id=document)
        assert failed
        refusals.append(told.replace(document, "it"))
    assert refusals[0] == refusals[1]
    failed, told = await call("read_document", document_id=DOCUMENTS[min(may)]["id"])
    assert not failed
    failed, told = await call("list_versions")
    assert leaks(told, ()) == set()


@pytest.mark.slow
def test_tools_over_http_read_as_the_token(served: Served) -> None:
    async def play(caller: str) -> None:
        async with (
            httpx2.AsyncClient(headers=served.headers[caller], trust_env=False) as http,
            Client(streamable_http_client(f"{served.server.url}/mcp", http_client=http)) as client,
        ):
            await use(client, readable(CALLERS[caller]))

    for caller in ("some", "none"):
        asyncio.run(play(caller))


@pytest.mark.slow
def test_tools_over_stdio_read_as_the_command_says(store: Path) -> None:
    arguments = ["-m", "indexmill", "mcp", str(store), "--snapshot", "1", "--as", group(0), "--as", group(5)]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)

    async def play() -> None:
        async with Client(stdio_client(server)) as client:
            await use(client, readable(CALLERS["few"]))

    asyncio.run(play())


# Which versions


def test_an_index_that_demands_rights_is_served_and_smoke_questions_are_asked_of_all_of_it(store: Path) -> None:
    for version in (None, 2):
        index = open_index(IndexChoice(str(store), version, methods=("bm25",), smoke=("Marrow",) * (version is None)))
        with index.snapshot() as snapshot:
            assert snapshot.version == 2
        index.close()


def test_a_version_that_lets_everyone_read_everything_is_not_taken_after_one_that_does_not(tmp_path: Path) -> None:
    path = tmp_path / "store"
    publish(path)
    store = open_folder(path)
    republish(store, 2, {"field": "groups", "required": False})
    with indexmill.follow(path, poll=None, methods=["dense"]) as index:
        assert index.version == 2
        republish(store, 3, None)
        assert not index.look()
        assert (index.version, index.refusal and index.refusal.version) == (2, 3)
        assert "has no access control" in str(index.refusal)
        republish(store, 4, {"field": "groups", "required": True})
        assert index.look()
        assert (index.version, index.refusal) == (4, None)
    open_index(IndexChoice(str(path), methods=("dense",), demand_rights=True)).close()
    with pytest.raises(GateRefused, match="has no access control"):
        open_index(IndexChoice(str(path), 3, methods=("dense",), demand_rights=True))


# Tokens


def test_a_token_is_made_with_groups(tmp_path: Path, run: Run) -> None:
    tokens = tmp_path / "tokens.json"
    arguments = ("serve", "--tokens", tokens, "--new-token", "team", "--as", "staff", "--as", "legal")
    token = run.text(*arguments).strip()
    assert CallerTokens(tokens).caller(f"Bearer {token}").principals == ("staff", "legal")
    other = run.text("serve", "--tokens", tokens, "--new-token", "other").strip()
    assert CallerTokens(tokens).caller(f"Bearer {other}").principals is None
    with pytest.raises(BadInput, match="principals="):
        add_token(tokens, "third", [""])
    assert run("serve", "--as", "staff") == 2
    assert "--as applies only with --new-token" in run.err
    tokens.write_text('{"tokens": [{"name": "x", "sha256": "%s", "principals": "staff"}]}' % ("0" * 64))
    with pytest.raises(ConfigurationError, match="principals"):
        CallerTokens(tokens)


@pytest.mark.slow
def test_commands_read_as_they_are_told(store: Path, run: Run) -> None:
    def found(*more: str) -> set[str]:
        run("query", "Marrow", "--store", store, "--snapshot", 1, "-m", "bm25", "-k", 60, "--json", *more)
        return {one for hit in json.loads(run.out)["hits"] for one in hit["document_ids"]}

    assert found() == set(ids(PUBLIC))
    assert "pass --as GROUP" in run.err
    assert found("--as", group(0), "--as", group(5)) == set(ids({*PUBLIC, 0, 5}))
    assert run.err == ""
    assert found("--unrestricted") == set(ids(range(len(DOCUMENTS))))
    assert run("query", "x", "--store", store, "--as", "a", "--unrestricted") == 2
    answer = run.json("answer", "Marrow", "--store", store, "-m", "bm25", "--as", "half 1")
    assert leaks(json.dumps(answer), readable(["half 1"]) - set(PUBLIC)) == set()
    assert run("answer", "Marrow", "--store", store, "-m", "bm25") == 0
    assert run.out == "Nothing was found.\n"


@pytest.mark.slow
def test_an_evaluation_reads_everything_unless_told_as_whom(store: Path, tmp_path: Path, run: Run) -> None:
    questions = tmp_path / "questions.jsonl"
    lines = [{"id": one["id"], "question": one["title"], "gold_ids": [one["id"]]} for one in DOCUMENTS]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def recall(*more: str) -> float:
        told = run.json("evaluate", questions, "--store", store, "-m", "bm25", "-k", 14, *more)
        return float(told["methods"]["bm25"]["recall@14"])

    assert recall() == 1.0
    assert recall("--as", "half 1") == pytest.approx(len(readable(["half 1"]) - set(PUBLIC)) / len(DOCUMENTS))
