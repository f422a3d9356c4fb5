"""The spans of a server: each request in the trace that its caller names, its retrieval within."""

from __future__ import annotations

import concurrent.futures
import os
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.sdk")

from indexmill.serve.batching import QuestionBatcher
from tests.indexmill.serve.serving import publish, serving
from tests.otlp import Collector, recording

QUESTION = "This is the version"


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


@pytest.mark.slow
def test_a_request_continues_the_trace_of_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "store", 1)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        with serving(tmp_path / "store") as server:
            asked = {"question": QUESTION, "method": "bm25"}

            def ask(number: int) -> int:
                headers = {"traceparent": traceparent(number)}
                return server.client.post("/retrieve", json=asked, headers=headers).status_code

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                assert set(threads.map(ask, range(1, 33))) == {200}
            assert (
                server.client.post("/answer", json=asked, headers={"traceparent": traceparent(99)}).status_code == 200
            )
            explored = server.client.get("/explore", params=asked, headers={"traceparent": traceparent(98)})
            assert explored.status_code == 200
            refused = server.client.post("/retrieve", json={}, headers={"traceparent": "nonsense"})
            assert refused.status_code == 400
            assert server.client.get("/metrics").status_code == 200
    by_id = {one.id: one for one in collector.spans}
    served = [one for one in collector.spans if one.name == "POST /retrieve"]
    assert {(one.trace, one.parent, one.kind) for one in served if one.trace <= f"{32:032x}"} == {
        (f"{number:032x}", f"{number:016x}", "SERVER") for number in range(1, 33)
    }
    assert sorted(one.attributes["http.response.status_code"] for one in served) == [200] * 32 + [400]
    (answered,) = [one for one in collector.spans if one.name == "POST /answer"]
    (answer,) = [one for one in collector.spans if one.name == "indexmill.answer"]
    assert (answer.trace, answer.parent) == (f"{99:032x}", answered.id)
    found = [one for one in collector.spans if one.name == "indexmill.retrieve" and one.parent]
    assert sum(one.attributes["indexmill.retrieve.questions"] for one in found) == 34
    for one in found:
        above = by_id[one.parent]
        if above.name == "indexmill.batch":  # its questions, but the first, are linked
            assert len(above.links) == above.attributes["indexmill.retrieve.questions"] - 1
            above = by_id[above.parent]
        assert above.name in {"POST /retrieve", "GET /explore", "indexmill.answer"}
    assert not any(one.name.endswith("/metrics") for one in collector.spans)
    assert not any(QUESTION.encode() in body for body in collector.bodies)


def test_questions_that_go_together_are_linked_to_the_first() -> None:
    import asyncio

    from indexmill import telemetry

    def find(way: str, questions: object) -> list[str]:
        with telemetry.span("work"):
            return [way] * len(list(questions))  # type: ignore[call-overload]

    async def ask() -> None:
        batcher: QuestionBatcher[str, str] = QuestionBatcher(find, most=4, at_once=1, waiting=10)

        async def one(number: int) -> None:
            with telemetry.span(f"request {number}"):
                await batcher.ask("way", "question")

        await asyncio.gather(*(one(number) for number in range(3)))
        batcher.close()

    with recording() as recorded:
        asyncio.run(ask())
    (batch,), (work,) = recorded.named("indexmill.batch"), recorded.named("work")
    first, *others = (recorded.named(f"request {number}")[0] for number in range(3))
    assert (batch.parent, work.parent) == (first.id, batch.id)
    assert batch.links == tuple(one.trace for one in others)
