"""A batcher for tests: a false clock, a purse in the place of a quota, questions about invented texts."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from indexmill.errors import BudgetReached
from indexmill.models.llm import Request, data_block, key_of
from indexmill.models.openai_llm import open_llm
from schemas.config import LlmSettings
from storage import runs
from storage.folder import FolderStore, init_folder
from storage.lease import acquire
from storage.ledger import find
from tasks.core.executor import StoppedError
from tasks.llm.ask import LlmAccess, ask
from tasks.llm.batch import PromptBatcher
from tasks.llm.batch_steps import Rhythm
from tasks.llm.call_window import Outcome
from tasks.llm.prompt_results import AskResult
from tasks.llm.quota import Quota

SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}


def questions(count: int, word: str = "Vell") -> list[Request]:
    """So many questions about texts that differ."""
    return [
        Request(
            task="summary",
            instructions="Summarise.",
            prompt_version="1",
            content=data_block([f"The bridge of {word} number {number} was built."]),
            schema=SCHEMA,
            max_output_tokens=64,
            about=(f"passage-{number}",),
            makes=f"node-{number}",
        )
        for number in range(count)
    ]


class Purse:
    """A budget of tokens without a rate, for one process. most: what was ever set aside or spent at a time."""

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens = tokens
        self.spent = self.most = 0
        self.open: dict[str, int] = {}
        self._numbers = itertools.count()

    async def reserve(self, model: str, input_tokens: int, output_tokens: int) -> str:
        return await self.set_aside(model, input_tokens, output_tokens)

    async def set_aside(self, model: str, input_tokens: int, output_tokens: int) -> str:
        aside = self.spent + sum(self.open.values()) + input_tokens + output_tokens
        if self.tokens is not None and aside > self.tokens:
            raise BudgetReached("llm.budget.tokens is reached")
        self.most = max(self.most, aside)
        ticket = str(next(self._numbers))
        self.open[ticket] = input_tokens + output_tokens
        return ticket

    async def settle(self, ticket: str, input_tokens: int, output_tokens: int, outcome: Outcome = "other") -> None:
        del self.open[ticket]
        self.spent += input_tokens + output_tokens

    async def hold(self, prompt: str) -> None:
        pass

    async def release(self, prompt: str) -> None:
        pass

    async def ended(self) -> None:
        await asyncio.Future()

    async def pause(self, seconds: float, model: str = "") -> None:
        pass


@dataclass
class Bench:
    """A store and an endpoint. now: the time, which only waiting moves. stop_after: waits before it is told to stop."""

    store: FolderStore
    base_url: str
    quota: Quota = field(default_factory=Purse)
    now: float = 1_800_000_000.0
    stop_after: int | None = None
    waits: int = 0
    told: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, root: Path, base_url: str, **more: Any) -> Bench:
        """A bench with the store at `root`."""
        return cls(init_folder(root), base_url, **more)

    def settings(self, **changes: Any) -> LlmSettings:
        """Batches of two questions at least."""
        chosen = {"backend": "openai", "model": "some-model", "base_url": self.base_url, "batch_smallest": 2}
        return LlmSettings.model_validate({**chosen, "timeout_seconds": 5, **changes})

    def key(self, request: Request) -> str:
        """The ledger's key of a question."""
        return key_of(open_llm(self.settings()).fingerprint, request)

    def answered(self, asked: list[Request]) -> int:
        """How many of some questions have their answer in the ledger."""
        return sum(find(self.store, self.key(request)) is not None for request in asked)

    def fill(
        self,
        asked: list[Request] | Callable[[], list[Request]],
        *,
        submit: bool = True,
        run_id: str | None = None,
        rhythm: Rhythm | None = None,
        **changes: Any,
    ) -> Counter[str]:
        """Ask by batches, as a run of its own; the counts of its report."""
        chosen = self.settings(**changes)
        self.now += 1.0
        batcher = self.batcher(chosen, run_id or runs.make_run_id(lambda: self.now), submit=submit, rhythm=rhythm)
        counts: Counter[str] = Counter()
        made = asked if callable(asked) else lambda: asked
        batcher.fill("summaries", LlmAccess(chosen, self.quota), made, counts)
        return counts

    def batcher(
        self, chosen: LlmSettings, run_id: str, *, submit: bool = True, rhythm: Rhythm | None = None
    ) -> PromptBatcher:
        """What a run asks with."""
        return PromptBatcher(
            self.store,
            open_llm(chosen),
            run_id,
            submit=submit,
            wait=self.wait,
            note=self.told.append,
            warn=self.told.append,
            clock=lambda: self.now,
            rhythm=rhythm,
        )

    def wait(self, seconds: float) -> None:
        """Move the time, unless the run is told to stop."""
        self.waits += 1
        if self.stop_after is not None and self.waits > self.stop_after:
            raise StoppedError
        self.now += seconds


class Answered(NamedTuple):
    """The result of each request, and the counts for the report."""

    results: list[AskResult]
    counts: Counter[str]


def answered(
    store: FolderStore,
    asking: LlmAccess,
    wanted: Sequence[Request],
    counts: Counter[str] | None = None,
    *,
    run_id: str = "run-1",
    **options: Any,
) -> Answered:
    """Ask; counts: to be updated, where a test reads them after a failure."""
    counts = Counter() if counts is None else counts
    return Answered(ask(store, asking, wanted, run_id=run_id, counts=counts, **options), +counts)


def ask_here(root: str, base_url: str, count: int, start: float) -> None:
    """Ask by batches under a lease, from a time on, and the rest directly: for child processes that are killed."""
    bench = Bench.at(Path(root), base_url, now=start)
    run_id = runs.make_run_id(lambda: bench.now)
    with acquire(bench.store, run_id, clock=lambda: bench.now):
        bench.fill(questions(count), run_id=run_id)
        answered(bench.store, LlmAccess(bench.settings(), Purse()), questions(count), run_id=run_id)
