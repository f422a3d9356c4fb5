from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import LeaseLost
from indexmill.models.llm_errors import LlmForbidden
from storage import batches, runs
from storage.lease import acquire
from tasks.core.executor import StoppedError
from tasks.llm import batch_steps, collect
from tasks.llm.answer_parsing import list_schema, string
from tasks.llm.ask import LlmAccess
from tasks.llm.batch_steps import Rhythm
from tasks.llm.prompt_results import PromptRefusal
from tests.llm_batches import Plan
from tests.llm_server import CANARY, Faults, LlmServer
from tests.storage.quick import quick_folder
from tests.tasks.batching import Bench, Purse, answered, questions


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with LlmServer(keys={CANARY}) as running:
        yield running


@pytest.fixture
def bench(server: LlmServer) -> Iterator[Bench]:
    with quick_folder() as folder:
        yield Bench.at(folder / "store", server.base_url)


def nothing_paid_twice(server: LlmServer, bench: Bench, asked: int) -> None:
    assert server.batches.wrong == []
    assert server.billed.paid_twice() == {}
    assert bench.answered(questions(asked)) == asked
    assert batches.begun(bench.store) == []
    assert server.batches.files == {}


def test_a_batch_answers_what_a_stage_then_finds_in_the_ledger(server: LlmServer, bench: Bench) -> None:
    asked = questions(20)
    server.batches.plan = Plan(looks=3)
    counts = bench.fill(asked)
    nothing_paid_twice(server, bench, 20)
    assert len(server.batches.batches) == 1
    assert counts["llm_calls"] == 20 == server.billed.calls
    assert counts["llm_tokens"] == server.billed.tokens
    assert counts["llm_batch_answers"] == 19  # one was asked directly, before all others
    assert len(server.chats) == 1
    done = answered(bench.store, LlmAccess(bench.settings(), Purse()), asked, run_id="later")
    assert (done.counts["llm_calls"], done.counts["llm_ledger"]) == (0, 20)
    assert isinstance(bench.quota, Purse)
    assert bench.quota.spent == server.billed.tokens
    assert bench.quota.open == {}


def test_the_bodies_of_a_batch_are_those_of_direct_calls(server: LlmServer, bench: Bench) -> None:
    bench.fill(questions(3))
    (batch,) = server.batches.batches.values()
    direct = server.chats[0].json()
    for line in batch.lines:
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        streamed = {"messages": 0, "stream": True, "stream_options": {"include_usage": True}}
        assert line["body"] | streamed == direct | streamed
    assert batch.asked == {bench.key(request) for request in questions(3)[1:]}


def test_an_endpoint_without_schemas_is_asked_in_a_batch_as_it_takes_it(bench: Bench, server: LlmServer) -> None:
    server.lacks = frozenset({"json_schema"})
    bench.fill(questions(6, "Quillon"))
    (batch,) = server.batches.batches.values()
    assert {line["body"]["response_format"]["type"] for line in batch.lines} == {"json_object"}
    assert bench.answered(questions(6, "Quillon")) == 6


def test_lines_come_in_any_order_and_strange_ones_are_ignored(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(noise=True)
    counts = bench.fill(questions(12))
    assert counts["llm_batch_ignored"] == 5
    nothing_paid_twice(server, bench, 12)


@pytest.mark.slow
def test_questions_are_split_by_the_limits_of_a_file(
    server: LlmServer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(questions(11), batch_largest=4)
    assert [len(batch.lines) for batch in server.batches.batches.values()] == [4, 4, 2]
    nothing_paid_twice(server, bench, 11)
    one = (
        len(
            next(iter(server.batches.batches.values())).shown
            and json.dumps(server.batches.of_ids(bench.key(questions(11)[1]))[0].lines[0], separators=(",", ":"))
        )
        + 1
    )
    monkeypatch.setattr("tasks.llm.drafts.BatchDraft.__init__.__defaults__", (3 * one + 10,))
    bench.fill(questions(10, "Orrin"))
    assert [len(batch.lines) for batch in server.batches.batches.values()][3:] == [3, 3, 3]


@pytest.mark.slow
def test_equal_questions_and_answered_ones_are_in_no_batch(server: LlmServer, bench: Bench) -> None:
    bench.fill(questions(6))
    counts = bench.fill([*questions(10), *questions(10)])
    assert counts["llm_calls"] == 4
    nothing_paid_twice(server, bench, 10)


def test_a_few_questions_are_left_to_direct_calls(server: LlmServer, bench: Bench) -> None:
    counts = bench.fill(questions(5), batch_smallest=5)
    assert counts["llm_calls"] == 1
    assert server.batches.calls["upload"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["expired", "empty"])
def test_an_expired_batch_is_completed_by_another(server: LlmServer, bench: Bench, fate: str) -> None:
    server.batches.plan = Plan(fates={1: fate})
    counts = bench.fill(questions(13))
    assert counts["llm_batches"] == 2
    assert counts["llm_batch_unanswered"] == (6 if fate == "expired" else 12)
    nothing_paid_twice(server, bench, 13)


@pytest.mark.slow
def test_batches_that_keep_expiring_are_given_up_for_direct_calls(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(fates=dict.fromkeys(range(1, 99), "empty"))
    bench.fill(questions(5))
    assert len(server.batches.batches) == 3
    assert bench.answered(questions(5)) == 1


def test_missing_and_failed_lines_go_into_a_further_batch(server: LlmServer, bench: Bench) -> None:
    keys = [bench.key(request) for request in questions(9)]
    bad = {keys[2]: "missing", keys[3]: "error", keys[8]: "missing"}
    server.batches.plan = Plan(
        outcomes=lambda key: bad.get(key) if len(server.batches.of_ids(key)) == 1 else None,
    )
    counts = bench.fill(questions(9))
    assert [len(batch.lines) for batch in server.batches.batches.values()] == [8, 3]
    assert counts["llm_batch_unanswered"] == 3
    nothing_paid_twice(server, bench, 9)


@pytest.mark.parametrize("fault", ["truncated", "whitespace", "not-json", "wrong-schema"])
def test_an_answer_of_no_use_is_paid_and_left_to_a_direct_call(server: LlmServer, bench: Bench, fault: str) -> None:
    spoiled = bench.key(questions(6)[4])
    server.batches.plan = Plan(outcomes=lambda key: fault if key == spoiled else None)
    counts = bench.fill(questions(6))
    assert len(server.batches.batches) == 1
    assert (counts["llm_batch_answers"], counts["llm_batch_unusable"]) == (4, 1)
    assert counts["llm_tokens"] == server.billed.tokens
    assert bench.answered(questions(6)) == 5
    done = answered(bench.store, LlmAccess(bench.settings(), Purse()), questions(6), run_id="later")
    assert done.counts["llm_calls"] == 1
    nothing_paid_twice(server, bench, 6)


def test_what_is_complete_of_an_answer_in_a_loop_is_used_at_once(server: LlmServer, bench: Bench) -> None:
    schema = {"type": "object", "properties": {"names": list_schema(9, string(9))}, "required": ["names"]}
    requests = [dataclasses.replace(request, schema=schema) for request in questions(6)]
    spoiled = bench.key(requests[4])
    server.answer = lambda chat: {"names": ["Vell"] * 40}
    server.batches.plan = Plan(outcomes=lambda key: "truncated" if key == spoiled else None)
    counts = bench.fill(requests)
    assert (counts["llm_batch_answers"], counts["llm_batch_unusable"], counts["llm_salvaged"]) == (5, 0, 1)
    done = answered(bench.store, LlmAccess(bench.settings(), Purse()), requests, run_id="later")
    assert done.counts["llm_calls"] == 0
    assert {*done.results[4].value["names"]} == {"Vell"}
    nothing_paid_twice(server, bench, 0)


@pytest.mark.parametrize(("fault", "reason"), [("refusal", "declined"), ("content-filter", "filtered")])
def test_what_a_batch_withholds_is_not_asked_again(server: LlmServer, bench: Bench, fault: str, reason: str) -> None:
    spoiled = bench.key(questions(6)[4])
    server.batches.plan = Plan(outcomes=lambda key: fault if key == spoiled else None)
    counts = bench.fill(questions(6))
    assert (counts["llm_batch_answers"], counts["llm_batch_unusable"]) == (4, 1)
    done = answered(bench.store, LlmAccess(bench.settings(), Purse()), questions(6), run_id="later")
    assert done.results[4] == PromptRefusal(spoiled, reason)
    assert done.counts["llm_calls"] == 0
    assert max(server.billed.by_prompt.values()) == 1


def test_a_file_of_answers_that_is_too_large_is_read_as_far_as_it_may_be(
    server: LlmServer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_steps, "LARGEST_ANSWER", 1000)
    monkeypatch.setattr(batch_steps, "_PER_QUESTION", 200)
    monkeypatch.setattr(batch_steps, "_PER_TOKEN", 0)
    counts = bench.fill(questions(9))
    assert len(server.batches.batches) == 1
    assert 0 < counts["llm_batch_answers"] < 8
    assert counts["llm_batch_answers"] + counts["llm_batch_unanswered"] == 8
    assert any("answered 200 with more than" in told and "sent directly" in told for told in bench.told)


def test_a_line_that_is_longer_than_any_answer_is_left_out(
    server: LlmServer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = bench.key(questions(9)[4])
    answer = server.complete

    def complete(chat: Mapping[str, Any], fault: str | None = None) -> tuple[dict[str, Any], Any]:
        body, usage = answer(chat, None)
        return (body | {"padding": "x" * 10_000} if fault else body), usage

    monkeypatch.setattr(server, "complete", complete)
    monkeypatch.setattr(collect, "LARGEST_ANSWER", 5000)
    server.batches.plan = Plan(outcomes=lambda key: "fenced" if key == long else None)
    counts = bench.fill(questions(9))
    assert len(server.batches.batches) == 1
    assert (counts["llm_batch_answers"], counts["llm_batch_ignored"], counts["llm_batch_unanswered"]) == (7, 1, 1)


def test_a_page_in_the_place_of_a_batch_is_looked_past(server: LlmServer, bench: Bench) -> None:
    calls = ("upload", "create", "list", "retrieve", "list-files", "delete")
    server.batches.plan = Plan(calls={(call, 1): "page" for call in calls})
    bench.fill(questions(6))
    nothing_paid_twice(server, bench, 6)


def test_a_failed_batch_says_what_to_do_and_leaves_nothing_behind(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(fates={1: "invalid"})
    with pytest.raises(LlmForbidden, match=r"invalid_json_line.*batch to false") as failed:
        bench.fill(questions(6))
    assert "Vell" not in str(failed.value)
    assert server.batches.files == {}
    assert batches.begun(bench.store) == []


@pytest.mark.slow
def test_a_short_queue_gets_smaller_batches_one_after_the_other(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(queue=5, looks=2)
    bench.fill(questions(17))
    assert all(len(batch.lines) <= 5 for batch in server.batches.batches.values() if batch.answered)
    nothing_paid_twice(server, bench, 17)


@pytest.mark.slow
def test_batches_wait_for_each_other_where_the_queue_is_full(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(queue=8, looks=3)
    bench.fill(questions(17), batch_largest=8)
    nothing_paid_twice(server, bench, 17)


def test_a_queue_without_any_room_is_an_error(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(queue=1)
    with pytest.raises(LlmForbidden, match="no room"):
        bench.fill(questions(12))


@pytest.mark.slow
def test_the_budget_cuts_batches_and_is_never_exceeded(server: LlmServer, bench: Bench) -> None:
    bench.quota = purse = Purse()
    bench.fill(questions(4, "Orrin"))
    each = (purse.most - purse.spent) // 3
    bench.quota = purse = Purse(8 * each)
    bench.fill(questions(19))
    assert purse.most <= 8 * each
    assert purse.open == {}
    assert [len(batch.lines) for batch in server.batches.batches.values()][1:] == [7, 6, 5]
    nothing_paid_twice(server, bench, 19)


def test_a_budget_that_is_used_up_leaves_the_rest_unasked(server: LlmServer, bench: Bench) -> None:
    bench.quota = purse = Purse(2200)
    bench.fill(questions(40))
    assert 800 < purse.spent <= purse.most <= 2200
    assert purse.spent == server.billed.tokens
    assert 20 < bench.answered(questions(40)) < 40
    assert server.batches.wrong == []


@pytest.mark.parametrize("lag", [0, 3])
@pytest.mark.parametrize("fault", ["drop-after", "500-after"])
def test_a_lost_answer_to_the_start_starts_no_second_batch(
    server: LlmServer, bench: Bench, fault: str, lag: int
) -> None:
    server.batches.plan = Plan(calls={("create", 1): fault}, lag=lag, page=1)
    bench.fill(questions(7))
    assert len(server.batches.batches) == 1
    nothing_paid_twice(server, bench, 7)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["drop", "500"])
def test_a_start_that_never_arrived_is_made_again(server: LlmServer, bench: Bench, fault: str) -> None:
    server.batches.plan = Plan(calls={("create", 1): fault})
    began = bench.now
    bench.fill(questions(7))
    assert bench.now - began > 600  # the lists may lag
    assert len(server.batches.batches) == 1
    nothing_paid_twice(server, bench, 7)


def test_a_start_that_arrives_late_finds_no_file(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(calls={("create", 1): "late-4"}, looks=9)
    bench.fill(questions(7), rhythm=Rhythm(lag=0.0))
    assert len(server.batches.batches) == 1
    nothing_paid_twice(server, bench, 7)


def test_a_busy_endpoint_is_asked_again(server: LlmServer, bench: Bench) -> None:
    names = ("upload", "create", "retrieve", "content", "delete", "list-files")
    server.batches.plan = Plan(calls={(name, 1): "429" for name in names})
    began = bench.now
    bench.fill(questions(7))
    assert bench.now - began < 60
    nothing_paid_twice(server, bench, 7)


@pytest.mark.parametrize("name", ["upload", "retrieve", "content", "delete", "list-files"])
@pytest.mark.parametrize("fault", ["drop", "drop-after", "500-after", "503"])
def test_lost_calls_are_made_again(server: LlmServer, bench: Bench, name: str, fault: str) -> None:
    server.batches.plan = Plan(calls={(name, 1): fault})
    bench.fill(questions(7))
    assert len(server.batches.batches) == 1
    nothing_paid_twice(server, bench, 7)


def stopped(server: LlmServer, bench: Bench, count: int = 8, looks: int = 50, after: int = 3) -> None:
    """A run is stopped while it waits for its batch."""
    server.batches.plan = Plan(looks=looks)
    bench.stop_after = after
    with pytest.raises(StoppedError):
        bench.fill(questions(count))
    bench.stop_after = None


@pytest.mark.slow
def test_a_stopped_run_leaves_its_batch_to_the_next(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench)
    (pending,) = batches.begun(bench.store)
    assert len(pending.keys) == 7
    counts = bench.fill(questions(8))
    assert len(server.batches.batches) == 1
    assert counts["llm_calls"] == 7
    nothing_paid_twice(server, bench, 8)


@pytest.mark.slow
def test_a_run_without_batch_mode_waits_for_what_is_paid_for(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench)
    counts = bench.fill(questions(4), submit=False)  # the corpus has changed meanwhile
    assert len(server.batches.batches) == 1
    assert counts["llm_batch_answers"] == 7
    nothing_paid_twice(server, bench, 8)


def test_a_run_that_asks_other_things_does_not_wait(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench, looks=5, after=1)
    bench.waits = 0
    bench.stop_after = 0
    bench.fill(questions(3, "Quillon"), submit=False)
    assert len(batches.begun(bench.store)) == 1


def test_a_run_is_stopped_while_the_endpoint_is_down(server: LlmServer, bench: Bench) -> None:
    server.faults = Faults(rule=lambda _: "503")
    bench.stop_after = 2
    with pytest.raises(StoppedError):
        bench.fill(questions(8))
    assert len(server.chats) == 3
    assert server.batches.batches == {}


def test_stages_that_ask_at_the_same_time_wait_for_the_same_batch(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench, count=12, looks=4, after=1)
    batcher = bench.batcher(bench.settings(), "later")
    asked = [questions(12), questions(9), questions(7, "Quillon"), questions(12)]
    counts: list[Counter[str]] = [Counter() for _ in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        asking = LlmAccess(bench.settings(), bench.quota)
        done = [
            pool.submit(batcher.fill, f"stage-{number}", asking, lambda own=own: own, counts[number])
            for number, own in enumerate(asked)
        ]
        for one in done:
            one.result()
    assert sum(own["llm_batch_answers"] for own in counts) == server.billed.calls - len(server.chats)
    assert bench.answered(questions(7, "Quillon")) == 7
    nothing_paid_twice(server, bench, 12)


def test_a_cancelled_batch_leaves_the_rest_to_direct_calls(server: LlmServer, bench: Bench) -> None:
    server.batches.plan = Plan(fates={1: "cancelled"})
    counts = bench.fill(questions(9))
    assert len(server.batches.batches) == 1
    assert (counts["llm_batch_answers"], counts["llm_batch_unanswered"]) == (4, 4)
    assert any("cancelled" in line for line in bench.told)
    assert server.batches.files == {}


def test_the_batches_of_another_endpoint_are_left_alone(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench, looks=5, after=1)
    with LlmServer() as other:
        counts = bench.fill(questions(8), base_url=other.base_url)
    assert counts["llm_calls"] == 7
    assert any("left alone" in line for line in bench.told)
    assert len(batches.begun(bench.store)) == 1


def test_a_key_that_does_not_see_the_batch_is_said(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench)
    server.batches.batches.clear()
    bench.stop_after = None
    bench.now += 3600
    with pytest.raises(LlmForbidden, match="indexmill batches --give-up"):
        bench.fill(questions(8))


def test_a_run_that_lost_its_lease_starts_no_batch(server: LlmServer, bench: Bench) -> None:
    with acquire(bench.store, "another", clock=lambda: bench.now), pytest.raises(LeaseLost):
        bench.fill(questions(8))
    assert server.batches.batches == {}


def test_an_endpoint_without_batches_is_said(bench: Bench, server: LlmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.batches.plan = Plan(calls={("upload", 1): "404", ("list-files", 1): "404"})
    with pytest.raises(LlmForbidden, match=r"no Batch API.*llm\.batch to false"):
        bench.fill(questions(8))
    assert batches.begun(bench.store) == []


def test_what_is_kept_of_a_batch_holds_neither_texts_nor_the_key(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench)
    root = Path(bench.store.root)
    kept = b"".join(path.read_bytes() for path in root.glob("batches/*/*"))
    assert b"passage-3" in kept
    assert b"Vell" not in kept
    whole = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert CANARY.encode() not in whole + "".join(bench.told).encode()


@pytest.mark.slow
def test_questions_about_a_forgotten_passage_leave_the_batch(server: LlmServer, bench: Bench) -> None:
    stopped(server, bench)
    ((_, left),) = batches.naming(bench.store, lambda ids: not {"passage-3", "node-5"}.isdisjoint(ids))
    assert len(left.keys) == 5
    batches.replace(bench.store, left)
    bench.stop_after = None
    bench.fill([], submit=False)
    counts = bench.fill(lambda: questions(2), submit=False)
    assert counts["llm_batch_ignored"] + counts["llm_batch_answers"] == 7
    assert bench.answered(questions(8)) == 6
    assert b"passage-3" not in b"".join(path.read_bytes() for path in Path(bench.store.root).rglob("*.json"))


def test_run_ids_of_the_bench_differ() -> None:
    assert runs.make_run_id(lambda: 1.0) != runs.make_run_id(lambda: 2.0)
