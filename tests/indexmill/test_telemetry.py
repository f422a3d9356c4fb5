"""Spans and metrics of the reader: what they say, what they never say, and nothing without an SDK."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk")

import indexmill
from indexmill import telemetry
from indexmill.errors import BadInput
from indexmill.snapshot import Snapshot
from tests.llm_server import CANARY, Faults, LlmServer
from tests.otlp import Recording, recording
from tests.paths import ROOT

QUESTION = "Who funded the Marrow Bridge?"


def said(recorded: Recording) -> str:
    """Everything that was reported, as one text."""
    return repr(recorded.spans) + repr(recorded.metrics)


def test_a_retrieval_says_method_counts_and_milliseconds_of_its_stages(snapshot: Snapshot) -> None:
    with recording() as recorded:
        hits = snapshot.retrieve(QUESTION, method="dense", k=3)
    (span,) = recorded.spans
    assert span.name == "indexmill.retrieve"
    stages = {name for name in span.attributes if name.endswith("_ms")}
    assert stages == {
        f"indexmill.retrieve.{one}_ms" for one in ("select", "encode", "search", "rank", "explain", "read")
    }
    assert all(span.attributes[name] >= 0 for name in stages)
    assert {name: value for name, value in span.attributes.items() if name not in stages} == {
        "indexmill.method": "dense",
        "indexmill.retrieve.k": 3,
        "indexmill.retrieve.questions": 1,
        "indexmill.retrieve.hits": len(hits),
        "indexmill.version": 1,
    }
    (took,) = recorded.metrics["indexmill.retrieve.duration"]
    assert (took.count, dict(took.attributes)) == (1, {"indexmill.method": "dense"})
    (found,) = recorded.metrics["indexmill.retrieve.hits"]
    assert (found.count, found.sum) == (1, 3)
    assert "Marrow" not in said(recorded)


def test_a_batch_is_one_span_and_counts_the_hits_of_each_question(snapshot: Snapshot) -> None:
    with recording() as recorded:
        snapshot.retrieve_batch([QUESTION, "Tallow", ""], method="dense", k=2)
    (span,) = recorded.spans
    assert (span.attributes["indexmill.retrieve.questions"], span.attributes["indexmill.retrieve.hits"]) == (3, 4)
    (found,) = recorded.metrics["indexmill.retrieve.hits"]
    assert (found.count, found.sum, found.min) == (3, 4, 0)


def test_a_failed_retrieval_says_the_name_of_the_error_and_not_its_message(snapshot: Snapshot) -> None:
    with recording() as recorded, pytest.raises(BadInput):
        snapshot.retrieve(QUESTION, method="dense", where={"Marrow": "Bridge"})
    (span,) = recorded.spans
    assert (span.failed, span.message, span.events) == (True, "", 0)
    assert span.attributes["error.type"] == "BadInput"
    (took,) = recorded.metrics["indexmill.retrieve.duration"]
    assert dict(took.attributes) == {"error.type": "BadInput"}
    assert "Marrow" not in said(recorded)


def test_every_thread_has_the_span_of_its_own_question(snapshot: Snapshot) -> None:
    """Also if another thread answers it in its batch."""
    together = threading.Barrier(8)

    def ask() -> None:
        with telemetry.span("mine"):
            together.wait()
            snapshot.retrieve(QUESTION, method="dense", k=1)

    with recording() as recorded:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    asked = recorded.named("indexmill.retrieve")
    assert {one.parent for one in asked} == {one.id for one in recorded.named("mine")}
    assert [one.attributes["indexmill.retrieve.hits"] for one in asked] == [1] * 8


@pytest.mark.slow
@pytest.mark.usefixtures("endpoint")
def test_an_answer_shows_its_calls_with_tokens_and_no_text(snapshot: Snapshot) -> None:
    with LlmServer() as server:
        llm = indexmill.open_llm("tester", base_url=server.base_url)
        with recording() as recorded:
            answer = snapshot.answer(QUESTION, method="dense", llm=llm)
        sent = [message["content"] for one in server.requests if one.number for message in one.json()["messages"]]
    (asked,) = recorded.named("indexmill.answer")
    (call,) = recorded.named("chat tester")
    (found,) = recorded.named("indexmill.retrieve")
    assert (call.parent, found.parent, call.kind) == (asked.id, asked.id, "CLIENT")
    assert call.attributes["gen_ai.request.model"] == "tester"
    tokens = {f"gen_ai.usage.{kind}_tokens": getattr(answer, f"{kind}_tokens") for kind in ("input", "output")}
    assert answer.input_tokens > 0
    assert tokens.items() <= call.attributes.items()
    assert tokens.items() <= asked.attributes.items()
    used = {point.attributes["gen_ai.token.type"]: point.sum for point in recorded.metrics["gen_ai.client.token.usage"]}
    assert used == {"input": answer.input_tokens, "output": answer.output_tokens}
    sentences = [line for text in sent for line in text.split("\n") if len(line) > 12]
    assert any("Marrow" in line for line in sentences)
    for text in (
        QUESTION,
        answer.text,
        CANARY,
        "Marrow",
        *sentences,
        *(one for hit in answer.hits for one in hit.document_ids),
    ):
        assert f"{text}" not in said(recorded), text


@pytest.mark.slow
@pytest.mark.usefixtures("endpoint")
def test_a_call_that_fails_says_how_and_what_was_billed(snapshot: Snapshot) -> None:
    with LlmServer(faults=Faults(by_number={1: "429", 2: "content-filter"})) as server:
        llm = indexmill.open_llm("tester", base_url=server.base_url)
        with recording() as recorded:
            (answer,) = snapshot.answer_batch([QUESTION], method="dense", llm=llm)
    assert answer.error is not None
    busy, *_ = calls = recorded.named("chat tester")
    assert (busy.failed, busy.attributes["error.type"], busy.message) == (True, "LlmBusy", "")
    assert len(calls) == server.billed.calls + 1
    assert sum(one.attributes.get("gen_ai.usage.output_tokens", 0) for one in calls) == answer.output_tokens


def test_a_call_of_a_model_alone_begins_no_trace() -> None:
    with recording() as recorded:
        with telemetry.span("chat x", inner=True) as told:
            assert not told.recorded
        with telemetry.span("outer"), telemetry.span("chat x", inner=True) as told:
            assert told.recorded
        with telemetry.span("outer"), telemetry.muted(), telemetry.span("chat x") as told:
            assert not told.recorded
    assert [one.name for one in recorded.spans] == ["chat x", "outer", "outer"]


def test_a_trace_goes_on_from_its_headers() -> None:
    with recording() as recorded:
        assert telemetry.carried() == {}
        with telemetry.span("first"):
            headers = telemetry.carried()
        with telemetry.joined(headers), telemetry.span("second"):
            pass
        with telemetry.joined({"traceparent": "00-zzz"}), telemetry.span("third"):
            pass
        with telemetry.joined({}), telemetry.span("fourth"):
            pass
    first, second, third, fourth = recorded.spans
    assert set(headers) == {"traceparent"}
    assert (second.trace, second.parent) == (first.trace, first.id)
    assert third.parent == fourth.parent == ""


def test_a_trace_that_the_sampler_leaves_out_has_no_parts() -> None:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    with recording(ParentBased(ALWAYS_OFF)) as recorded, telemetry.span("outer") as outer:
        assert not outer.recorded
        assert not telemetry.is_traced()
        with telemetry.span("inner"):
            pass
    assert recorded.spans == []


@pytest.mark.slow
@pytest.mark.parametrize("api", ["", "import opentelemetry.trace, opentelemetry.metrics"], ids=["no API", "no SDK"])
def test_without_an_sdk_nothing_is_imported_and_nothing_recorded(published: Path, api: str) -> None:
    program = f"""
import sys
{api}
import indexmill
from indexmill import telemetry
before = {{name for name in sys.modules if name.startswith("opentelemetry")}}
with indexmill.open({str(published)!r}) as snapshot:
    assert snapshot.retrieve("Who funded the Marrow Bridge?", method="dense")
with telemetry.span("x") as told, telemetry.joined({{"traceparent": "00-{"a" * 32}-{"b" * 16}-01"}}):
    assert not told.recorded and telemetry.carried() == {{}} and not telemetry.is_traced()
    with telemetry.retrieval() as report:
        assert report is None
assert before == {{name for name in sys.modules if name.startswith("opentelemetry")}}
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
