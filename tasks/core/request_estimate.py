"""Helpers of estimates: answers from the ledger, the cost of unanswered questions, and tables that a plan may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from indexmill.models.llm import Request, key_of
from indexmill.store.canonical import canonical_json
from storage.protocol import Store
from storage.table_blobs import put_table
from tasks.core.estimate import Estimate, LlmUse, Range
from tasks.core.stage import Part
from tasks.llm.ask import LlmAccess
from tasks.llm.prompt_results import AskResult, PromptRefusal, stored_result

_USUAL_BYTES, _USUAL_SHARE = 4, 3
"""The UTF-8 bytes per token of a prompt; the ratio of the maximum of an answer to the length of a usual one."""


class LedgerAnswers:
    """Answers requests like `ask`, but only from the ledger.

    `unknown` contains the unanswered requests, by key. shaping: the model's settings that are hashed into the keys of
    answers. retry_refused: as in `LlmAccess`.
    """

    def __init__(self, store: Store, shaping: Mapping[str, Any], *, retry_refused: bool = False) -> None:
        self._store, self._shaping, self._retry_refused = store, shaping, retry_refused
        self.unknown: dict[str, Request] = {}

    def __call__(self, requests: Iterable[Request]) -> list[AskResult]:
        """Return the known answer or refusal of each request; a refusal for an unknown request."""
        results: list[AskResult] = []
        for request in requests:
            key = key_of(self._shaping, request)
            answer = stored_result(self._store, key, request, retry_refused=self._retry_refused)
            if answer is None:
                self.unknown[key] = request
            results.append(answer or PromptRefusal(key, "not-asked"))
        return results


def prompt_bytes(request: Request) -> int:
    """Return the size of a request's instructions, content and schema."""
    return len(request.instructions.encode()) + len(request.content.encode()) + len(canonical_json(request.schema))


def usual_tokens(prompt_size: float, most_output: float) -> tuple[float, float]:
    """Return the input and output tokens that prompts usually take, from their bytes and the maximum of answers."""
    return prompt_size / _USUAL_BYTES, most_output / _USUAL_SHARE


def foreseen(store: Store, asking: LlmAccess, requests: Iterable[Request]) -> LlmUse:
    """Estimate the use of the model for requests that are not in the ledger; equal requests count once.

    The bounds allow for one repair of each answer, and assume that a token of a prompt has one to six bytes.
    """
    look_up = LedgerAnswers(store, asking.settings.shaping(), retry_refused=asking.retry_refused)
    look_up(requests)
    unknown = look_up.unknown
    sizes = [prompt_bytes(request) for request in unknown.values()]
    most = sum(one.max_output_tokens for one in unknown.values())
    return LlmUse(
        model=str(asking.settings.model),
        calls=Range(len(sizes), 2 * len(sizes)),
        input_tokens=Range(sum(size // 6 for size in sizes), sum(sizes) + most),
        output_tokens=Range(len(sizes), 2 * most),
        tasks=tuple(dict.fromkeys(one.task for one in unknown.values())),
        prompts=Range.exactly(len(sizes)),
        usual=usual_tokens(sum(sizes), most),
    )


def holding(
    part: Part[Any],
    tables: Mapping[str, pa.Table],
    *,
    guessed: bool = False,
    counts: Mapping[str, int] | None = None,
    llm: tuple[LlmUse, ...] = (),
) -> Estimate:
    """Store a part's tables in the plan's store; return an estimate with them. guessed: the real ones may differ."""
    if guessed:  # the tables are marked, so that they are not mistaken for the part's real tables
        tables = {
            name: table.append_column("planned", pa.array([part.job.key] * len(table), pa.string()))
            for name, table in tables.items()
        }
    stand_ins = {name: put_table(part.store, table)[0] for name, table in tables.items()}
    return Estimate(counts=counts or {}, llm=llm, stand_ins=stand_ins, guessed=guessed)
