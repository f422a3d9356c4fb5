"""Concurrent calls to a language model: each prompt is paid for once, and answers are stored before they are used.

For every prompt: check the ledger, wait for the quota, call the model under one layer of retries, check the answer
with one attempt to repair it, write it to the ledger, then use it. A prompt without a usable answer is quarantined.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from indexmill.models.llm import LLM, Completion, Request, key_of, object_schema
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected, LlmUnreachable, LlmUnusable
from indexmill.models.openai_llm import open_llm
from indexmill.models.progress import Items, report_progress
from indexmill.models.readable import BadAnswer
from schemas.config import LlmSettings
from storage.clock import Clock, timestamp
from storage.protocol import Store
from tasks.llm.answer_parsing import read, repeats_items, salvaged
from tasks.llm.calls import USELESS, PaidCalls, RequestCost, Sleep
from tasks.llm.prompt_results import NO_ANSWER, AskResult, ModelAnswer, PromptRefusal, RequestRecord, stored_result
from tasks.llm.quota import Quota

_HOPELESS = 20  # rejected requests, without any answer, after which the run stops calling

_SENT_IN_VAIN = 3
"""The number of calls without an answer after which a prompt is given up if the endpoint answers others."""

_PROBE = Request(
    "probe", "Answer with the JSON object.", "1", '{"ok": true}', object_schema(ok={"type": "boolean"}), 32
)
"""A prompt that every model answers, to tell a prompt that is never answered from an endpoint that is down."""


class _Unanswered(Exception):
    """The endpoint answers other prompts, but not this one. last: the error of the last call."""

    def __init__(self, last: LlmUnreachable) -> None:
        super().__init__(str(last))
        self.last = last


@dataclass(frozen=True)
class LlmAccess:
    """The settings and quota of a run's calls; picklable, and not part of any key."""

    settings: LlmSettings
    quota: Quota
    retry_refused: bool = False
    """Whether to repeat the prompts that earlier runs have quarantined."""


def ask(
    store: Store,
    asking: LlmAccess,
    requests: Sequence[Request],
    *,
    run_id: str,
    counts: Counter[str],
    llm: LLM | None = None,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> list[AskResult]:
    """Answer every request, keeping `settings.concurrency` calls in flight; equal prompts are sent once.

    Returns the results in the order of the requests.

    counts: updated for the stage's report, even if the calls fail: `llm_calls` that were or may have been billed, their
    `llm_tokens`, `llm_input_tokens` and `llm_output_tokens`; `llm_maybe_billed`, calls that may have been billed;
    `llm_ledger`, prompts answered from the ledger; `llm_repairs` and `llm_retries`, additional calls; `llm_salvaged`,
    answers that were cut off and used as far as they are complete; `llm_refused`, prompts without an answer. llm:
    overrides the back-end of the settings. sleep: waits the given seconds before a retry.

    When the budget is reached, the endpoint forbids everything, or a request gets no answer before its deadline, no
    more calls start, calls in flight finish and their answers are stored, and BudgetReached or the LlmError is raised.
    """
    backend = open_llm(asking.settings) if llm is None else llm
    calls = _Asking(
        quota=asking.quota,
        timeout_seconds=asking.settings.timeout_seconds,
        deadline_seconds=asking.settings.deadline_seconds,
        sleep=sleep,
        counts=counts,
        store=store,
        asking=asking,
        llm=backend,
        run_id=run_id,
        clock=clock,
    )
    return asyncio.run(calls.all(requests))


@dataclass(kw_only=True)
class _Asking(PaidCalls):
    """The state of one call of `ask`, in one event loop."""

    store: Store
    asking: LlmAccess
    llm: LLM
    run_id: str
    clock: Clock
    rejected: list[tuple[str, Request, LlmError]] = field(default_factory=list)
    results: dict[str, AskResult] = field(default_factory=dict)
    prompt_count: int = 0
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    probe_answered: bool = False

    @property
    def model(self) -> str:
        """The name of the model in prices, quotas and the ledger."""
        return self.asking.settings.model or str(self.llm.fingerprint.get("model", self.asking.settings.backend))

    async def all(self, requests: Sequence[Request]) -> list[AskResult]:
        fingerprint = self.llm.fingerprint
        keys = [key_of(fingerprint, request) for request in requests]
        distinct: dict[str, Request] = {}
        for key, request in zip(keys, requests, strict=True):
            distinct.setdefault(key, request)
        results = self.results
        self.prompt_count = len(distinct)

        async def answer(prompt: tuple[str, Request]) -> None:
            results[prompt[0]] = await self._process(*prompt)
            self.report()

        await self.each(distinct.items(), answer, min(self.asking.settings.concurrency, len(distinct)))
        if self.failure is None and self.rejected:
            await asyncio.to_thread(self._quarantine_rejected)
        if self.failure is not None:
            raise self.failure
        self.counts["llm_refused"] += sum(isinstance(result, PromptRefusal) for result in results.values())
        return [results[key] for key in keys]

    def report(self) -> None:
        done, total = len(self.results), self.prompt_count
        report_progress(done, total, Items(done, total, "prompt", self.in_flight, self.retrying, self.reason))

    async def _process(self, key: str, request: Request) -> AskResult:
        earlier = await self._stored(key, request)
        if earlier is not None:
            return earlier
        async with self.holding(key):
            return await self._stored(key, request) or await self._paid(key, request)

    async def _stored(self, key: str, request: Request) -> AskResult | None:
        again = self.asking.retry_refused
        result = await asyncio.to_thread(
            stored_result, self.store, key, request, retry_refused=again, run_id=self.run_id
        )
        self.counts["llm_ledger"] += isinstance(result, ModelAnswer)
        return result

    async def _paid(self, key: str, request: Request) -> AskResult:
        bill = RequestCost()
        try:
            value = await self._value(request, bill)
        except BadAnswer as bad:
            return await asyncio.to_thread(self._record(key, request).refuse, bad.reason)
        except _Unanswered as unanswered:
            return self._reject(key, request, unanswered.last)
        except LlmError as error:
            if isinstance(error, LlmRejected) and error.of_prompt:
                return await asyncio.to_thread(self._record(key, request).refuse, _reason(error))
            if isinstance(error, LlmRejected) or error.useless_response:
                return self._reject(key, request, error)
            raise
        keep = self._record(key, request).keep
        return await asyncio.to_thread(keep, value, bill.input_tokens, bill.output_tokens)

    async def _value(self, request: Request, bill: RequestCost) -> dict[str, Any]:
        """Return the checked value of the answer or of its one repair; raises BadAnswer or the model's error.

        Of an answer that was cut off while it repeated the items of a list, what is complete counts at once: the repair
        would end the same way. Of another one, it counts if the repair is of no use.
        """
        first = await self._complete(request, None, bill)
        try:
            return read(first, request.schema)
        except BadAnswer as bad:
            bill.useless += 1
            rest = salvaged(first, request.schema)
            if rest is not None and repeats_items(rest):
                return self._use_rest(rest)
            if bad.is_final or bill.useless >= USELESS:
                raise
            self.counts["llm_repairs"] += 1
            # The model does not see an answer that was cut off, since it would continue it.
            correction = ("" if bad.is_cut else first.text, bad.advice) if first.text.strip() else None
            try:
                second = await self._complete(request, correction, bill)
            except (LlmError, _Unanswered) as error:
                if isinstance(error, LlmForbidden) or (rest is None and not isinstance(error, LlmRejected)):
                    raise
                if rest is None:
                    raise bad from None
                return self._use_rest(rest)
        try:
            return read(second, request.schema)
        except BadAnswer:
            rest = salvaged(second, request.schema) or rest
            if rest is None:
                raise
            return self._use_rest(rest)

    def _use_rest(self, value: dict[str, Any]) -> dict[str, Any]:
        self.counts["llm_salvaged"] += 1
        return value

    async def _complete(self, request: Request, correction: tuple[str, str] | None, bill: RequestCost) -> Completion:
        """Send a request until the endpoint answers, within its deadline and its limit of useless answers.

        Raises _Unanswered if some calls get no answer while others do, or a probe does.
        """
        answers, in_vain = self.answer_count, 0

        async def attempt() -> Completion:
            nonlocal in_vain
            try:
                return await self._send(request, correction, bill)
            except LlmUnreachable as error:
                in_vain += error.billed == "maybe" and not error.useless_response
                if in_vain >= _SENT_IN_VAIN and (self.answer_count > answers or await self._answers_a_probe()):
                    raise _Unanswered(error) from None
                raise

        return await self.patiently(attempt, bill)

    async def _send(self, request: Request, correction: tuple[str, str] | None, bill: RequestCost) -> Completion:
        await self.llm.ready()
        most = self.llm.input_tokens(request, correction), request.max_output_tokens
        return await self.paid(lambda: self.llm.complete(request, correction), self.model, most, bill)

    async def _answers_a_probe(self) -> bool:
        """Send one probe for all prompts that get no answer; a probe that was answered is not repeated."""
        async with self.probing:
            if not self.probe_answered:
                answers = self.answer_count
                try:
                    await self._send(_PROBE, None, RequestCost())
                    self.probe_answered = True
                except LlmForbidden:
                    raise
                except LlmError:
                    pass
                self.answer_count = answers  # a probe says nothing of real prompts
            return self.probe_answered

    def _record(self, key: str, request: Request) -> RequestRecord:
        return RequestRecord(self.store, key, request, self.model, self.run_id, timestamp(self.clock()))

    def _reject(self, key: str, request: Request, error: LlmError) -> PromptRefusal:
        """Defer the quarantine of a rejected or unanswered prompt: if all fail this way, no prompt is to blame."""
        self.rejected.append((key, request, error))
        useless = sum(_tells_nothing(error) for _, _, error in self.rejected)
        if not self.answer_count and (len(self.rejected) >= _HOPELESS or useless >= USELESS):
            self.fail(error)
        return PromptRefusal(key, _reason(error))

    def _quarantine_rejected(self) -> None:
        last = self.rejected[-1][2]
        useless = sum(_tells_nothing(error) for _, _, error in self.rejected)
        unanswered = useless == len(self.rejected) < USELESS and not last.useless_response
        if not self.answer_count and not unanswered and (len(self.rejected) > 1 or last.useless_response):
            self.failure = last
            return
        for key, request, error in self.rejected:
            self._record(key, request).refuse(_reason(error))


def _tells_nothing(error: LlmError) -> bool:
    """Return True for an error that does not say whether the prompt is to blame."""
    return error.useless_response or isinstance(error, LlmUnreachable)


def _reason(error: LlmError) -> str:
    """Return the reason why a prompt has no answer, in one word."""
    if isinstance(error, LlmUnreachable) and not error.useless_response:
        return NO_ANSWER
    if isinstance(error, LlmRejected):
        return "filtered" if error.filtered else "rejected"
    return "endless" if isinstance(error, LlmUnusable) else "no-completion"
