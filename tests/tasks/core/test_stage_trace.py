"""The spans of stages and parts: a fixed sample, wherever the parts are made."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk")

from indexmill import telemetry
from tasks.core.call_traces import CallTrace, run_traced
from tasks.core.executor import Call, Failed, InlineExecutor
from tasks.core.stage_trace import EACH, FIRST, StageTrace
from tests.otlp import Recording, recording


@pytest.fixture
def recorded() -> Iterator[Recording]:
    with recording() as found:
        yield found


def traced(number: int, trace: StageTrace) -> CallTrace | None:
    return trace.of_call(number, f"key{number}", "p0")


def inner(text: str) -> str:
    with telemetry.span("chat x", inner=True):
        return text


def broken() -> None:
    raise ValueError("of the text of a document")


def test_the_first_parts_of_a_stage_have_spans_and_then_every_so_manieth(recorded: Recording) -> None:
    with telemetry.span("run"), StageTrace("embed") as trace:
        numbers = [number for number in range(300) if traced(number, trace) is not None]
    assert numbers == [*range(FIRST), *range(EACH, 300, EACH)]


@pytest.mark.usefixtures("recorded")
def test_outside_of_a_run_there_are_no_spans() -> None:
    with StageTrace("embed") as trace:
        assert traced(0, trace) is None


def test_without_a_trace_a_call_carries_nothing() -> None:
    with StageTrace("embed") as trace:
        call = Call("key", inner, ("a",), trace=traced(0, trace))
    assert call.trace is None
    assert call.called == (inner, "a")


def test_a_part_on_a_worker_belongs_to_its_stage_and_its_calls_to_the_part(recorded: Recording) -> None:
    with telemetry.span("run"), StageTrace("embed") as trace:
        called = pickle.dumps(Call("key", inner, ("a",), trace=traced(0, trace)).called)
    function, *arguments = pickle.loads(called)  # noqa: S301
    assert function is run_traced
    assert function(*arguments) == "a"
    ((stage,), (part,), (call,)) = (recorded.named(name) for name in ("stage embed", "part embed", "chat x"))
    assert (part.parent, call.parent) == (stage.id, part.id)
    assert part.attributes["indexmill.part.shard"] == "p0"


def test_a_part_without_a_span_hides_its_calls(recorded: Recording) -> None:
    with telemetry.span("run"), StageTrace("embed") as trace:
        calls = [Call(str(number), inner, ("a",), trace=traced(number, trace)) for number in range(FIRST + 2)]
        assert len(list(InlineExecutor().run(calls))) == FIRST + 2
    assert len(recorded.named("part embed")) == len(recorded.named("chat x")) == FIRST
    assert {one.parent for one in recorded.named("chat x")} == {one.id for one in recorded.named("part embed")}


def test_a_part_that_fails_says_the_name_of_its_error_alone(recorded: Recording) -> None:
    with telemetry.span("run"), StageTrace("embed") as trace:
        ((_, failed),) = InlineExecutor().run([Call("0", broken, (), trace=traced(0, trace))], keep_going=True)
    assert isinstance(failed, Failed)
    (part,) = recorded.named("part embed")
    assert (part.failed, part.attributes["error.type"], part.message, part.events) == (True, "ValueError", "", 0)
