"""The budget for language models: never exceeded, a clean end, and a next run that goes on; what it cost is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from prefect import flow

import indexmill
from flows.build import TaskRuns
from flows.build_run import BuildOutcome, run_build
from flows.cluster import private_cluster
from flows.dask_executor import DaskExecutor
from flows.plan import make_plan
from indexmill.errors import BudgetReached, ConfigurationError
from indexmill.models.llm_errors import LlmForbidden
from indexmill.store.manifest import Manifest
from schemas.config import Configuration, load_configuration
from storage import ledger, runs
from storage.folder import init_folder, open_folder
from storage.receipts import scan
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tests.corpora import documents, write_corpus
from tests.flows.children import asking, build, settings
from tests.flows.commands import Run, write_settings
from tests.flows.elsewhere import cluster_elsewhere
from tests.llm_server import CANARY, Faults, LlmServer

PRICES = {"tester": {"input_per_million": 1000.0, "output_per_million": 4000.0, "currency": "EUR"}}


def chosen(store: Path, server: LlmServer, budget: dict[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a build whose tree has several layers, asking this server."""
    plain = settings(
        store,
        write_corpus(store.parent / f"{store.name}.jsonl", documents(40)),
        families={"lsh_tree": {"smallest": 2, "largest": 4, "group": 4}},
        llm=asking(server, timeout_seconds=5.0, concurrency=4, budget=budget or {}),
    )
    return {**plain, "prices": PRICES}


def together(build: Build) -> Manifest:
    """The steps as the command runs them, each as a task run."""

    @flow(persist_result=False)
    def steps() -> None:
        TaskRuns(build).together("", build.steps)

    steps()
    return build.manifest()


def last(plain: dict[str, Any]) -> runs.StoredRun:
    return runs.list_runs(open_folder(plain["store"]))[-1]


def answers(plain: dict[str, Any]) -> int:
    """How many answers the ledger holds."""
    return sum(entry is not None for _, _, entry in ledger.scan(open_folder(plain["store"])))


def report(run: runs.StoredRun) -> dict[str, Any]:
    assert run.end is not None
    return dict(run.end.report)


def until_it_is_done(attempt: Callable[[], BuildOutcome]) -> tuple[BuildOutcome, list[BudgetReached]]:
    """Run it again and again; what ended the runs before the last."""
    ended: list[BudgetReached] = []
    while True:
        try:
            return attempt(), ended
        except BudgetReached as error:
            ended.append(error)
            assert len(ended) < 30


@pytest.mark.slow
def test_a_run_ends_at_its_budget_and_the_next_goes_on(quick: Path) -> None:
    with LlmServer() as server:
        expected = build(chosen(quick / "rich", server))
        cost = server.billed.tokens
        before = server.billed.tokens
        plain = chosen(quick / "store", server, {"tokens": cost // 2})
        spent: list[int] = []

        def attempt() -> BuildOutcome:
            nonlocal before
            try:
                return build(plain)
            finally:
                spent.append(server.billed.tokens - before)
                before = server.billed.tokens
                assert answers(plain) == server.billed.calls - expected.llm_calls

        found, ended = until_it_is_done(attempt)
        assert len(ended) >= 2
        assert all(0 < one <= cost // 2 for one in spent)
        assert sum(spent) == cost  # nothing was paid for twice
    assert found.manifest == expected.manifest
    assert "lsh_summaries has" in str(ended[0])
    first = runs.list_runs(open_folder(plain["store"]))[0]
    assert (first.state, first.exit_code) == ("budget", 4)
    totals = report(first)["totals"]
    assert totals["llm_tokens"] == spent[0]
    assert totals["llm_tokens"] == totals["llm_input_tokens"] + totals["llm_output_tokens"]
    assert totals["parts_failed"] == 0
    done = [receipt for receipt in scan(open_folder(plain["store"]), "lsh_summaries") if receipt.run_id == first.run_id]
    assert done  # the parts that were finished are kept


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.usefixtures("prefect_server")
def test_two_workers_end_at_one_budget_and_lose_nothing_that_was_paid_for(quick: Path, where: str) -> None:
    with LlmServer(seconds=0.02) as server:
        cost = build(chosen(quick / "rich", server)).llm_tokens
        before = server.billed.calls, server.billed.tokens
        plain = chosen(quick / "store", server, {"tokens": cost // 2})
        root = build_nothing(plain)
        here = private_cluster(2, root, Configuration.model_validate(plain).endpoints)
        with here if where == "here" else cluster_elsewhere(2, root) as client:
            with pytest.raises(BudgetReached, match=r"lsh_summaries has \d+ of \d+ parts"):
                run_build(Configuration.model_validate(plain), DaskExecutor(client), together, progress=Silent())
            spent = server.billed.tokens - before[1]
            assert cost // 2 - 4_000 < spent <= cost // 2  # no call was bound by more
            assert answers(plain) == server.billed.calls - before[0]
            totals = report(last(plain))["totals"]
            assert (last(plain).state, totals["llm_tokens"]) == ("budget", spent)
            assert totals["cost"] > 0
            plain["llm"]["budget"] = {}
            run_build(Configuration.model_validate(plain), DaskExecutor(client), together, progress=Silent())
        assert server.billed.tokens - before[1] == cost
        assert server.billed.calls == 2 * before[0]


def build_nothing(plain: dict[str, Any]) -> Path:
    """The store of some settings, made if it is not there."""
    return init_folder(Path(plain["store"])).root


@pytest.mark.slow
def test_a_budget_in_money_holds_whatever_goes_wrong(quick: Path) -> None:
    rates = dict.fromkeys(("429-seconds", "500", "drop-billed", "truncated", "not-json", "drop"), 0.07)
    with LlmServer() as server:
        rich = build(chosen(quick / "rich", server))
    assert rich.cost == pytest.approx(
        (server.billed.input_tokens * 1000 + server.billed.output_tokens * 4000) / 1e6, abs=1e-6
    )
    with LlmServer(faults=Faults(rates=rates, seed=5, retry_after=0.01)) as server:
        plain = chosen(quick / "store", server, {"cost": rich.cost / 2})
        told = 0.0

        def attempt() -> BuildOutcome:
            nonlocal told
            before = server.billed.input_tokens, server.billed.output_tokens
            try:
                return build(plain)
            finally:
                spent = [server.billed.input_tokens - before[0], server.billed.output_tokens - before[1]]
                paid = (spent[0] * 1000 + spent[1] * 4000) / 1e6
                assert paid <= rich.cost / 2
                told = report(last(plain))["totals"]["cost"]
                assert paid <= told + 1e-6 <= rich.cost / 2 + 2e-6  # what may have been billed counts

        found, ended = until_it_is_done(attempt)
        assert len(ended) >= 2
        assert "EUR" in str(ended[0])
        assert server.billed.paid_twice() == {}
    assert found.manifest == rich.manifest


def test_a_budget_that_no_call_fits_says_so(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, {"tokens": 10})
        with pytest.raises(BudgetReached, match="not even one such call fits: raise the budget"):
            build(plain)
        assert server.billed.calls == 0


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_an_endpoint_that_lets_nobody_in_ends_the_run_with_2(quick: Path) -> None:
    with LlmServer(keys=["sk-other"]) as server:
        plain = chosen(quick / "store", server)
        root = build_nothing(plain)
        llm = Configuration.model_validate(plain).llm
        with private_cluster(2, root, (llm,)) as client, pytest.raises(LlmForbidden) as raised:
            run_build(Configuration.model_validate(plain), DaskExecutor(client), together, progress=Silent())
        assert raised.value.exit_code == 2
        assert CANARY not in str(raised.value)
        assert len(server.chats) <= 8  # what two workers had in flight
    assert (last(plain).state, last(plain).exit_code) == ("failed", 2)


def test_a_budget_in_money_without_a_price_is_refused(quick: Path) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server, {"cost": 1.0})
    file = write_settings(quick / "i.yaml", {**plain, "prices": {}})
    with pytest.raises(ConfigurationError, match=r"llm\.budget\.cost is set, but `prices` has no price for 'tester'"):
        load_configuration(file)


@pytest.mark.end_to_end
def test_the_command_ends_with_4_says_how_far_it_came_and_shows_what_it_cost(
    quick: Path, run: Run, inline: None
) -> None:
    with LlmServer() as server:
        plain = chosen(quick / "store", server)
        plain["families"]["lsh_tree"]["group"] = 512  # a layer is one part, which the budget cuts in two
        file = write_settings(quick / "i.yaml", plain)
        code, _, err = run.printed("build", "-c", file, "--budget-tokens", 7_000)
        assert code == 4
        assert "7,000 tokens" in err
        assert "Run the command again to continue" in err
        assert "Traceback" not in err
        assert server.billed.tokens <= 7_000
        code, out, err = run.printed("build", "-c", file, "--budget-cost", 0.01)
        assert (code, "0.01 EUR" in err) == (4, True)
        code, out, err = run.printed("build", "-c", file, "--json", "--max-cost", 1_000)
        told = json.loads(out)
        assert (code, told["published"], told["llm_ledger"] > 0) == (0, True, True)
        assert told["cost"] > 0
        _, out, _ = run.printed("runs", "--store", quick / "store", told["run"])
        assert "from ledger" in out
        assert f"{told['cost']:.4f}".rstrip("0") in out
        _, out, _ = run.printed("runs", "--store", quick / "store", told["run"], "--json")
        shown = json.loads(out)
        plan, totals = shown["plan"], shown["totals"]
        for name in ("llm_calls", "llm_tokens", "cost"):
            low, high = plan[name]["planned"]["low"], plan[name]["planned"]["high"]
            assert low <= plan[name]["actual"] <= high
            assert plan[name]["actual"] == totals[name]
        assert totals["llm_ledger"] == told["llm_ledger"]
        assert shown["stages"]["lsh_summaries"]["cost"] == totals["cost"]
        states = [run.state for run in runs.list_runs(open_folder(quick / "store"))]
        assert states == ["budget", "budget", "published"]
    with indexmill.open(quick / "store") as snapshot:
        assert snapshot.version == 1


@pytest.mark.slow
def test_a_plan_knows_what_asking_again_takes(quick: Path) -> None:
    with LlmServer(faults=Faults(rule=lambda received: "refusal")) as server:
        plain = chosen(quick / "store", server)
        plain["families"]["lsh_tree"]["layers"] = 1
        plain["run"] = {"max_stand_ins": 1.0}
        build(plain)
    configuration = Configuration.model_validate(plain)
    assert not make_plan(configuration, progress=Silent()).publishes
    again = make_plan(configuration, progress=Silent(), retry_refused=True)
    assert again.parts.made > 0
    assert again.cost.high > 0
