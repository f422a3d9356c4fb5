"""A run that asks by batches dies at every boundary of a durable write and before and after every call that matters."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import batches
from tests.deep import share
from tests.flows.children import Forks
from tests.llm_batches import Plan
from tests.llm_server import CANARY, LlmServer
from tests.storage.quick import quick_folder
from tests.tasks.batching import Bench, questions

COUNT = 6
START = 1_800_000_000.0
ASK = "tests.tasks.batching:ask_here"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", CANARY)
        with Forks(modules=("openai", "httpx2", "tests.tasks.batching")) as server:
            yield server


def killed_at(forks: Forks, folder: Path, at: int, plan: Plan) -> tuple[str, ...]:
    """Kill a run at a crossing and let another finish; returns what the run crossed that was not killed."""
    root = folder / str(at)
    with LlmServer() as server:
        server.batches.plan = plan
        first = forks.call(ASK, str(root), server.base_url, COUNT, START, at=at)
        assert first.code == (-signal.SIGKILL if at else 0), first
        bench = Bench.at(root, server.base_url)
        for later in (30.0, 3600.0):  # before the lists are complete, and after
            ended = forks.call(ASK, str(root), server.base_url, COUNT, START + later)
            assert (ended.code, ended.message) == (0, "")
            assert bench.answered(questions(COUNT)) == COUNT
        assert server.batches.wrong == []
        asked_directly = {received.prompt for received in server.chats}
        assert set(server.billed.paid_twice()) <= asked_directly  # the call in flight, and no batch
        assert len(asked_directly) <= 4
        answered = [batch.answered for batch in server.batches.batches.values()]
        assert sum(map(len, answered)) == len(set().union(*answered)) >= COUNT - 4
        assert batches.begun(bench.store) == []
        assert server.batches.files == {}
        assert [name for name in bench.store.list("batches/") if not name.endswith("/closed.json")] == []
    return first.crossed


PLANS = {
    "quick": Plan(looks=3),
    "lists that lag": Plan(looks=3, lag=2),
    "partial": Plan(looks=2, fates={1: "expired"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_run_killed_at_a_step_submits_nothing_twice(forks: Forks, name: str) -> None:
    with quick_folder() as folder:
        crossed = killed_at(forks, folder, 0, PLANS[name])
        steps = [at for at, crossing in enumerate(crossed, 1) if crossing.startswith("batch-")]
        assert len({crossed[at - 1] for at in steps}) == 5
        for at in steps:
            killed_at(forks, folder, at, PLANS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_run_killed_at_any_boundary_submits_nothing_twice(forks: Forks, name: str) -> None:
    with quick_folder() as folder:
        crossed = killed_at(forks, folder, 0, PLANS[name])
        for at in share(range(1, len(crossed) + 1), 2 * len(PLANS), list(PLANS).index(name)):
            killed_at(forks, folder, at, PLANS[name])
