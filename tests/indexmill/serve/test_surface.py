"""The whole surface of a real server process, and what hostile requests get from it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openapi_spec_validator import validate

import indexmill
from indexmill.serve.messages import AnswerResponse, ErrorResponse, RetrieveResponse, VersionsResponse
from tests.indexmill.serve.serving import Serving, publish, serving

QUESTION = "Who paid for the Marrow Bridge?"
ASKED = {"question": QUESTION, "method": "bm25", "k": 2}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "store"
    publish(path, 1)
    return path


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Serving]:
    with serving(store, "--max-body", 4096, "--max-question", 1000, "--max-k", 20, "--seconds", 2) as found:
        yield found


def failed(response: httpx.Response, status: int, code: str) -> str:
    """The message of an error; it has an id, and no trace of the program."""
    assert response.status_code == status, response.text
    error = ErrorResponse.model_validate_json(response.content).error
    assert error.code == code
    assert error.request_id == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    assert ".py" not in response.text
    return error.message


def test_a_retrieval_is_that_of_the_library_and_names_its_version(server: Serving, store: Path) -> None:
    response = server.client.post("/retrieve", json=ASKED)
    assert response.status_code == 200
    RetrieveResponse.model_validate_json(response.content)
    with indexmill.open(store) as snapshot:
        hits = [hit.to_dict() for hit in snapshot.retrieve(QUESTION, method="bm25", k=2, explain=False)]
        assert snapshot.ref is not None
        assert response.json() == {"version": 1, "manifest": snapshot.ref.manifest, "method": "bm25", "hits": hits}
    explained = server.client.post("/retrieve", json={**ASKED, "explain": True}).json()["hits"]
    assert "explanation" in explained[0]
    assert server.client.post("/retrieve", json={**ASKED, "question": ""}).json()["hits"] == []
    where = {**ASKED, "where": {"document_id": "bridge"}}
    assert {one["document_ids"][0] for one in server.client.post("/retrieve", json=where).json()["hits"]} == {"bridge"}


def test_an_answer_comes_whole_or_after_its_hits(server: Serving) -> None:
    whole = server.client.post("/answer", json=ASKED)
    answer = AnswerResponse.model_validate_json(whole.content)
    assert (answer.version, answer.model) == (1, None)
    with server.client.stream("POST", "/answer", json={**ASKED, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [part.split("\ndata: ", 1) for part in response.read().decode().split("\n\n") if part]
    assert [name for name, _ in events] == ["event: hits", "event: answer"]
    RetrieveResponse.model_validate_json(events[0][1])
    assert json.loads(events[1][1]) == whole.json()
    late = {**ASKED, "stream": True, "method": "nothing"}
    failed(server.client.post("/answer", json=late), 400, "bad_input")


def test_versions_health_and_metrics(server: Serving) -> None:
    server.client.post("/retrieve", json=ASKED)
    versions = VersionsResponse.model_validate_json(server.client.get("/versions").content)
    assert [one.version for one in versions.versions] == [1]
    assert "bm25" in versions.methods
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/ready").json() == {"status": "ready", "version": 1}
    metrics = server.client.get("/metrics").text
    assert 'indexmill_requests_total{path="/retrieve",status="200"}' in metrics
    assert "indexmill_version 1.0" in metrics
    assert "indexmill_batch_questions_count" in metrics


def test_the_openapi_document_is_valid_and_lists_every_path(server: Serving) -> None:
    document = server.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    validate(document)
    for path in document["paths"]:
        assert server.client.get(path).status_code in (200, 405), path
    properties = document["components"]["schemas"]["RetrieveRequest"]["properties"]
    assert set(properties) >= {"question", "k", "where", "method", "parameters", "rerank"}


@pytest.mark.parametrize(
    ("change", "status", "code", "said"),
    [
        ({"question": 3}, 400, "bad_input", "question"),
        ({"k": 0}, 400, "bad_input", "k:"),
        ({"k": 21}, 400, "bad_input", "k is 21; expected 20 at most"),
        ({"k": "2"}, 400, "bad_input", "k:"),
        ({"k": True}, 400, "bad_input", "k:"),
        ({"unknown": 1}, 400, "bad_input", "unknown"),
        ({"question": "x" * 1001}, 400, "bad_input", "1,001 characters; expected 1,000"),
        ({"method": "tri_graph"}, 404, "family_not_found", "tri_graph"),
        ({"method": "nothing"}, 400, "bad_input", "nothing"),
        ({"where": {"colour": "red"}}, 400, "bad_input", "colour"),
        ({"where": ["year >"]}, 400, "bad_input", "where"),
        ({"parameters": {"k9": 1}}, 400, "bad_input", "k9"),
        ({"rerank": True}, 400, "bad_input", "no reranker"),
        ({"rerank_depth": 10_000}, 400, "bad_input", "rerank_depth"),
    ],
)
def test_wrong_requests_are_told_what_to_do(
    server: Serving, change: dict[str, Any], status: int, code: str, said: str
) -> None:
    message = failed(server.client.post("/retrieve", json={**ASKED, **change}), status, code)
    assert said in message
    assert "/served" not in message  # the path of the store


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"question": "\x00"}',
        b'{"question": "\\ud800"}',
        b"[" * 3000,
        b'{"where": ' + b'{"a":' * 600 + b"1" + b"}" * 601,
        b'{"question": "q", "k": 1e999}',
        b'{"question": "q", "k": ' + b"9" * 2000 + b"}",
        b'{"question": "q", "question": 1}',
    ],
)
def test_bodies_that_are_no_request(server: Serving, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    failed(server.client.post("/retrieve", content=body, headers=headers), 400, "bad_input")


def test_a_question_may_hold_any_character(server: Serving) -> None:
    for question in ("\0", "\U0010ffff" * 100, "\u202e" * 50, "e\u0301" * 400, "' OR 1=1 --", "\r\n\r\n"):
        assert server.client.post("/retrieve", json={**ASKED, "question": question}).status_code == 200


@pytest.mark.slow
def test_huge_and_mislabelled_bodies(server: Serving) -> None:
    assert "4,096 bytes" in failed(server.client.post("/retrieve", json={"question": "x" * 5000}), 413, "too_large")
    chunks = iter([b'{"question": "', *[b"x" * 1000] * 8])
    headers = {"content-type": "application/json"}
    failed(server.client.post("/retrieve", content=chunks, headers=headers), 413, "too_large")
    failed(server.client.post("/retrieve", content=json.dumps(ASKED)), 415, "not_json")
    failed(server.client.get("/nothing"), 404, "no_such_page")
    failed(server.client.get("/retrieve"), 405, "wrong_method")


@pytest.mark.slow
def test_a_page_of_another_site_gets_nothing(server: Serving) -> None:
    failed(server.client.post("/retrieve", json=ASKED, headers={"host": "evil.example"}), 421, "wrong_host")
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    response = server.client.options("/retrieve", headers=preflight)
    failed(response, 405, "wrong_method")
    assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.slow
def test_a_slow_body_is_given_up_and_others_are_answered_meanwhile(server: Serving) -> None:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as slow:
        slow.sendall(b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        began = time.monotonic()
        assert server.client.get("/health").status_code == 200
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
        assert 1 < time.monotonic() - began < 20
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"too_slow"' in answer


@pytest.mark.slow
def test_questions_that_come_together_are_retrieved_together_and_the_log_has_no_texts(server: Serving) -> None:
    alone = server.client.post("/retrieve", json=ASKED).json()
    bad = {**ASKED, "parameters": {"k9": 1}}
    bodies = [ASKED, bad, {**ASKED, "k": 1}] * 20
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda body: server.client.post("/retrieve", json=body), bodies))
    assert [one.status_code for one in answers] == [200, 400, 200] * 20
    assert all(one.json() == alone for one in answers[::3])
    assert all(one.json()["hits"] == alone["hits"][:1] for one in answers[2::3])
    given = server.client.get("/health", headers={"x-request-id": "mine-7"})
    assert given.headers["x-request-id"] == "mine-7"
    refused = server.client.get("/health", headers={"x-request-id": "no spaces"})
    assert refused.headers["x-request-id"] != "no spaces"
    lines = [line for line in server.requests("/retrieve") if line["status"] == 200]
    assert {"request_id", "caller", "path", "status", "ms", "batch", "version", "time"} <= lines[-1].keys()
    assert max(line.get("batch", 0) for line in lines) > 1
    assert not any("Marrow" in json.dumps(line) for line in server.log)
