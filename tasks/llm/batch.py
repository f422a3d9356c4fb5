"""Calls through the endpoint's Batch API, which fill the ledger before a stage makes its own: cheaper, but slower.

A stage's questions that have no answer in the store are written to files, uploaded, and answered by the endpoint within
a day. The answers go through the same checks into the same ledger. Unanswered questions may go into another batch; the
stage sends the rest directly, including questions with an unusable answer. `tasks.llm.batch_steps` ensures that no
question is in two paid batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from indexmill.errors import BudgetReached
from indexmill.models.llm import Request, key_of
from indexmill.models.llm_errors import LlmForbidden
from indexmill.models.openai_llm import OpenAiLlm
from storage import batches
from storage.batches import Batch, BatchRequest, Outcome
from storage.clock import Clock
from storage.protocol import Store
from tasks.llm.ask import LlmAccess, ask
from tasks.llm.batch_steps import BatchSteps, Rhythm
from tasks.llm.collect import BatchResults
from tasks.llm.drafts import BatchDraft
from tasks.llm.openai_batches import BatchState
from tasks.llm.prompt_results import stored_result

_ROUNDS = 3
"""The number of rounds of batches before unanswered questions are sent directly."""

_QUEUE_FULL = frozenset({"token_limit_exceeded", "request_limit_exceeded"})
"""Error codes of a batch that fails because other batches of the account fill the queue."""


@dataclass
class _Flight:
    """A started batch. tickets: its budget reservations; empty for a batch that an earlier run started.

    reported: the number of answers when progress was last reported. outcome, came, codes: set when the batch is
    collected. lock: held while its state is checked.
    """

    batch: Batch
    tickets: tuple[str, ...] = ()
    reported: int = 0
    outcome: Outcome | None = None
    came: BatchResults = field(default_factory=BatchResults)
    codes: tuple[str, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Job:
    stage: str
    asking: LlmAccess
    questions: Callable[[], Iterable[Request]]
    counts: Counter[str]
    aside: set[str] = field(default_factory=set)  # keys left to direct calls
    again: bool = False  # True if another round may answer more
    blocked: Batch | None = None  # a batch of this round for which the endpoint had no room
    fitted: int = 0  # the size of the largest batch of this round that it accepted
    rounds: int = 0

    @property
    def smallest(self) -> int:
        return self.asking.settings.batch_smallest


class PromptBatcher:
    """Sends the questions of one run's stages in batches. Thread-safe: stages may call it at the same time.

    submit: True to start new batches; existing ones are awaited in any case, since their answers are paid for.
    wait: sleeps for the given seconds, and raises if the run must stop; the batches then continue at the endpoint, and
    the next run collects them. note, warn: show a message to the user.
    """

    def __init__(
        self,
        store: Store,
        llm: OpenAiLlm,
        run_id: str,
        *,
        submit: bool,
        wait: Callable[[float], None],
        note: Callable[[str], None],
        warn: Callable[[str], None],
        clock: Clock = time.time,
        rhythm: Rhythm | None = None,
    ) -> None:
        self._store, self._llm, self._run_id = store, llm, run_id
        self._submit, self._wait, self._note, self._warn = submit, wait, note, warn
        self._rhythm = rhythm or Rhythm()
        self._steps = BatchSteps(store, llm, run_id, wait=wait, warn=warn, clock=clock, rhythm=self._rhythm)
        self._lock, self._taking = threading.Lock(), threading.Lock()
        self._batch_ids: set[str] = set()  # the ids of this run's batches
        self._flights: dict[str, _Flight] = {}  # not collected yet
        self._number = 0
        self._proven = False
        self._largest: int | None = None  # maximum questions per batch, once the endpoint has had no room

    def fill(
        self,
        stage: str,
        asking: LlmAccess,
        questions: Callable[[], Iterable[Request]],
        counts: Counter[str],
    ) -> None:
        """Store the answers to a stage's questions in the ledger, as far as batches can answer them.

        questions: generates all questions again for each round, in any order, including answered ones. counts: updated
        with the counts of `ask` and of the batches that this stage collected: `llm_batches`, and `llm_batch_` with the
        endings `input_tokens`, `output_tokens`, `answers`, `unusable`, `unanswered` and `ignored`.

        Raises the errors of `wait`, LlmForbidden if the endpoint accepts no batches or fails one, LeaseLost, and
        LlmError if it is unreachable for too long.
        """
        job = _Job(stage, asking, questions, counts)
        self._take_over(job)
        while self._submit or self._flying():
            job.again, job.blocked, job.fitted = False, None, 0
            self._await(job, self._round(job))
            if job.blocked is not None:
                self._make_room(job, job.blocked)
            if not job.again or job.rounds >= _ROUNDS:
                return

    def _take_over(self, job: _Job) -> None:
        """Check the batches of earlier runs; collect those that have ended."""
        with self._taking:
            batches.sweep(self._store)
            for batch in batches.begun(self._store):
                if batch.id in self._batch_ids or batch.id in self._flights:
                    continue
                if batch.request.endpoint != self._steps.where:
                    self._warn(f"{batch} is left alone: the configured endpoint is {self._steps.where}")
                elif (there := self._steps.take_over(batch)) is not None:
                    with self._lock:
                        self._flights[there.id] = _Flight(there)
        for flight in self._flying():
            if self._ended(job, flight, waiting=False):
                job.aside |= flight.came.aside if flight.outcome != "cancelled" else flight.batch.keys

    # New batches.

    def _round(self, job: _Job) -> list[_Flight]:
        """Start batches for the missing questions; returns them and running batches that already include some."""
        away = {key: flight for flight in self._flying() for key in flight.batch.keys}
        needed: dict[str, _Flight] = {}
        launched: list[_Flight] = []
        draft: BatchDraft | None = None
        for key, request in self._missing(job):
            if key in away:
                needed[away[key].batch.id] = away[key]
            elif self._submit and not self._proven:
                self._prove(job, request)
            elif self._submit:
                draft = draft or self._draft(job)
                if not self._drafted(draft, key, request):
                    if not self._launch(job, draft, launched):
                        draft = None
                        break
                    draft = self._draft(job)
                    self._drafted(draft, key, request)
        if draft is not None and (launched or len(draft) >= job.smallest):
            self._launch(job, draft, launched)
        elif draft is not None:
            draft.drop()
        return [*needed.values(), *launched]

    def _missing(self, job: _Job) -> Iterator[tuple[str, Request]]:
        seen: set[str] = set()
        fingerprint = self._llm.fingerprint
        for request in job.questions():
            key = key_of(fingerprint, request)
            if key not in seen and key not in job.aside:
                seen.add(key)
                again = job.asking.retry_refused
                if stored_result(self._store, key, request, retry_refused=again, run_id=self._run_id) is None:
                    yield key, request

    def _prove(self, job: _Job, request: Request) -> None:
        """Send one question directly, so that errors common to all questions show now and not in a day.

        The call also detects how the endpoint accepts the answer schema.
        """

        async def sleep(seconds: float) -> None:
            await asyncio.to_thread(self._wait, seconds)

        counts = Counter[str]()
        try:
            ask(self._store, job.asking, [request], run_id=self._run_id, counts=counts, llm=self._llm, sleep=sleep)
        finally:
            job.counts.update(+counts)
        self._proven = True

    def _draft(self, job: _Job) -> BatchDraft:
        path = self._store.scratch(self._run_id) / f"batch-{self._next()}.jsonl"
        most = job.asking.settings.batch_largest
        return BatchDraft(path, most if self._largest is None else min(most, self._largest))

    def _drafted(self, draft: BatchDraft, key: str, request: Request) -> bool:
        return draft.add(key, request, self._llm.body(request), self._llm.input_tokens(request))

    def _launch(self, job: _Job, draft: BatchDraft, launched: list[_Flight]) -> bool:
        """Start a batch of a draft, cut to the budget; returns False if no more batches may follow in this round."""
        whole = len(draft)
        try:
            tickets = self._reserve(job, draft)
            if not tickets:
                job.again = bool(launched)  # budget that these batches do not use becomes free again
                return False
            batch = self._begin(job, draft)
            there = self._steps.start(batch, draft.path)
        finally:
            draft.drop()
        if there is None:
            self._settle(job, tickets)
            job.again, job.rounds = True, job.rounds + 1
        else:
            flight = _Flight(there, tickets)
            with self._lock:
                self._flights[there.id] = flight
            launched.append(flight)
            self._note(f"{there} is at the endpoint; stopping the run does not stop it")
        more = len(draft) == whole and self._largest is None  # with little room, batches are sent one after the other
        job.again |= not more
        return more

    def _reserve(self, job: _Job, draft: BatchDraft) -> tuple[str, ...]:
        """Reserve a draft's cost and cut the draft to the budget; returns no tickets if too few questions fit."""
        tickets: list[str] = []
        fitting, step = 0, len(draft)
        while step and fitting < len(draft):
            most = draft.tokens(fitting, fitting + step)
            try:
                tickets.append(asyncio.run(job.asking.quota.set_aside(self._model(job), *most)))
                fitting = min(fitting + step, len(draft))
            except BudgetReached:
                step //= 2
        if fitting < min(job.smallest, len(draft)):
            self._settle(job, tickets)
            return ()
        draft.keep(fitting)
        return tuple(tickets)

    def _begin(self, job: _Job, draft: BatchDraft) -> Batch:
        draft.close()
        batch_id = batches.id_of(self._run_id, self._next(), (question.key for question in draft.questions))
        with self._lock:
            self._batch_ids.add(batch_id)
        input_tokens, output_tokens = draft.tokens()
        request = BatchRequest(
            run_id=self._run_id,
            stage=job.stage,
            created=self._steps.now(),
            endpoint=self._steps.where,
            model=self._model(job),
            bytes=draft.bytes,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            kinds=draft.kinds,
            questions=tuple(draft.questions),
        )
        return batches.ask(self._store, batch_id, request)

    # Batches at the endpoint.

    def _await(self, job: _Job, needed: list[_Flight]) -> None:
        delay = self._rhythm.first
        waiting = list(needed)
        while waiting:
            ended = [flight for flight in waiting if self._ended(job, flight, waiting=True)]
            waiting = [flight for flight in waiting if flight not in ended]
            for flight in ended:
                self._judge(job, flight)
            if waiting:
                delay = self._rhythm.first if ended else delay
                self._wait(delay)
                delay = min(1.5 * delay, self._rhythm.longest)

    def _ended(self, job: _Job, flight: _Flight, *, waiting: bool) -> bool:
        """Return True if a batch has ended; the first caller to notice that collects the batch."""
        with flight.lock:
            if flight.outcome is None:
                shown = self._steps.retrieve(flight.batch, waiting=waiting)
                if shown is not None and shown.ended:
                    self._collect(job, flight, shown)
                elif shown is not None:
                    self._tell(flight, shown)
            return flight.outcome is not None

    def _tell(self, flight: _Flight, shown: BatchState) -> None:
        """Report the progress of a batch in steps of a tenth."""
        total = len(flight.batch.request.questions)
        if shown.done - flight.reported >= max(1, total // 10):
            self._note(f"batch {flight.batch.id}: {shown.done:,} of {total:,} answered")
            flight.reported = shown.done

    def _collect(self, job: _Job, flight: _Flight, shown: BatchState) -> None:
        batch = flight.batch
        outcome, came = self._steps.collect(batch, shown)
        self._settle(job, flight.tickets, came.input_tokens, came.output_tokens)
        job.counts.update(came.counts)
        files = [file for file in (shown.output_file_id, shown.error_file_id) if file is not None]
        self._steps.end(batch, outcome, ", ".join(shown.codes), came, files)
        flight.outcome, flight.came, flight.codes = outcome, came, shown.codes
        with self._lock:
            self._flights.pop(batch.id, None)
        unanswered = len(batch.keys) - came.good_answers
        rest = f", {unanswered:,} not" if unanswered else ""
        self._note(f"{batch} {outcome}: {came.good_answers:,} answered{rest}")
        if outcome == "cancelled":
            self._warn(f"{batch} was cancelled at the endpoint: its unanswered questions are sent directly")

    def _settle(self, job: _Job, tickets: Iterable[str], input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Settle the cost of a batch; a batch from an earlier run counts against this run's budget, too."""
        quota, spent = job.asking.quota, (input_tokens, output_tokens)
        waiting = list(tickets)
        if not waiting and any(spent):
            with contextlib.suppress(BudgetReached):
                waiting.append(asyncio.run(quota.set_aside(self._model(job), *spent)))
        for ticket in waiting:
            asyncio.run(quota.settle(ticket, *spent))
            spent = 0, 0

    def _judge(self, job: _Job, flight: _Flight) -> None:
        """Decide how to continue with the questions that an ended batch left unanswered."""
        batch, came = flight.batch, flight.came
        job.aside |= came.aside
        if flight.outcome == "failed":  # nothing in it was answered or billed
            if _QUEUE_FULL.isdisjoint(flight.codes):
                raise LlmForbidden(
                    f"{self._steps.where} failed {batch} ({', '.join(flight.codes) or 'no reason given'}); it was not "
                    "billed: look it up there, or set llm.batch to false to send prompts directly"
                )
            job.again, job.blocked = True, batch
            return
        job.fitted = max(job.fitted, len(batch.keys))
        if flight.outcome == "cancelled":
            job.aside |= batch.keys
        elif len(batch.keys) - came.good_answers > len(came.aside):
            job.again, job.rounds = True, job.rounds + 1

    def _make_room(self, job: _Job, blocked: Batch) -> None:
        """Wait for another batch, or reduce the batch size, after the endpoint had no room for a batch."""
        others = self._flying()
        if others:
            self._await(job, others[:1])
            return
        self._largest = job.fitted or len(blocked.keys) // 2
        if self._largest < job.smallest:
            raise LlmForbidden(
                f"{self._steps.where} has no room for {blocked}: wait until other batches of the account have ended, "
                "or ask the provider for a higher limit of queued tokens"
            )
        self._note(f"the endpoint has no room for {blocked}: batches are sent one after the other")

    def _flying(self) -> list[_Flight]:
        with self._lock:
            return list(self._flights.values())

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _model(self, job: _Job) -> str:
        return job.asking.settings.model or self._llm.model
