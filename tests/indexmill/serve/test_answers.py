"""Answers by a model: streamed after their hits, and what a caller learns when the model or the server fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from indexmill.errors import CorruptBlob
from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmForbidden
from indexmill.serve.app import make_app
from indexmill.serve.callers import ANONYMOUS
from indexmill.serve.engine import Engine, ServerModels
from indexmill.serve.guard import Guard
from indexmill.serve.limits import ServerLimits
from indexmill.serve.logs import JsonLines, cause
from indexmill.serve.messages import RetrieveRequest
from indexmill.serve.metrics import Metrics
from indexmill.serve.served_index import IndexChoice, open_index

ASKED = {"question": "Who paid for the bridge?", "method": "dense", "k": 2}
PLACE = "/secret/place"


class Model:
    """A model that says what it is given, or fails."""

    fingerprint: Mapping[str, Any] = {"model": "own"}

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        return 0

    async def ready(self) -> None:
        return None

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        return Completion(self._say(), "stop", 7, 3, "own")


def answer() -> str:
    return json.dumps({"reasoning": "", "answer": "Ada Venn", "found": True})


def refuse() -> str:
    raise LlmForbidden(f"the key in {PLACE} is not valid")


@contextmanager
def app(published: Path, say: Callable[[], str] = answer, **limits: Any) -> Iterator[tuple[Guard, Engine]]:
    """An application in this process."""
    wanted = IndexChoice(str(published), version=1)
    engine = Engine(open_index(wanted), wanted, ServerLimits(**limits), ServerModels(llm=Model(say)))
    try:
        yield make_app(engine, Metrics(), tokens=None, hosts=None), engine
    finally:
        engine.close()


def post(guard: Guard, path: str, **body: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost") as client:
            return await client.post(path, json={**ASKED, **body})

    return asyncio.run(send())


def test_a_model_answers_from_the_hits_of_one_version(published: Path) -> None:
    with app(published) as (guard, _):
        found = post(guard, "/answer").json()
        assert (found["answer"], found["model"], found["version"]) == ("Ada Venn", "own", 1)
        assert {hit["version"] for hit in found["hits"]} == {1}
        events = post(guard, "/answer", stream=True).text.split("\n\n")
        assert json.loads(events[0].removeprefix("event: hits\ndata: "))["hits"] == found["hits"]
        assert json.loads(events[1].removeprefix("event: answer\ndata: ")) == found


def test_a_model_that_fails_is_explained_in_the_log_alone(published: Path, caplog: pytest.LogCaptureFixture) -> None:
    with app(published, refuse) as (guard, _), caplog.at_level(logging.INFO, "indexmill.serve"):
        failed = post(guard, "/answer")
        assert (failed.status_code, failed.json()["error"]["code"]) == (502, "model_failed")
        streamed = post(guard, "/answer", stream=True)
        assert streamed.status_code == 200
        hits, error, _ = streamed.text.split("\n\n")
        assert hits.startswith("event: hits\n")
        assert json.loads(error.removeprefix("event: error\ndata: "))["error"]["code"] == "model_failed"
    assert PLACE not in failed.text + streamed.text
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    causes = [line["cause"] for line in lines if line["event"] == "failure"]
    assert len(causes) == 2
    assert all(PLACE in one for one in causes)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (CorruptBlob(f"{PLACE} is damaged"), 503, "index_unavailable"),
        (ZeroDivisionError(f"{PLACE} bridge"), 500, "internal"),
        (MemoryError(), 500, "internal"),
    ],
)
def test_a_failure_of_the_server_names_no_path_and_no_text(
    published: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def fail(*how: object, **more: object) -> None:
        raise error

    with app(published) as (guard, _):
        monkeypatch.setattr("indexmill.snapshot.Snapshot.retrieve_batch", fail)
        failed = post(guard, "/retrieve")
    assert (failed.status_code, failed.json()["error"]["code"]) == (status, code)
    assert PLACE not in failed.text
    assert "bridge" not in cause(error)


def test_questions_of_an_event_loop_are_batched_and_one_that_is_late_is_told(published: Path) -> None:
    with app(published, batch=8) as (_, engine):

        async def play() -> list[int]:
            requests = [RetrieveRequest(question=f"bridge {n}", method="dense") for n in range(20)]
            found = await asyncio.gather(*(engine.retrieve(one, ANONYMOUS) for one in requests))
            return [size for _, size in found]

        assert sorted(asyncio.run(play())) == [4] * 4 + [8] * 16
