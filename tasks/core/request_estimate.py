"""What estimates share: the answers that the ledger holds, what other questions cost, tables that a plan may read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json
from storage.ledger import key_of
from storage.protocol import Store
from storage.tables import put_table
from tasks.core.estimate import Estimate, LlmUse, Range
from tasks.core.stage import Part
from tasks.llm.ask import Answer, Asking, AskResult, Refusal, known

__all__ = ["LedgerAnswers", "foreseen", "holding"]


class LedgerAnswers:
    """Answers requests as `ask` does, from the ledger alone; `unknown`, by key, are those that it has no answer to.

    shaping: of the model, as the keys of its answers hash it. retry_refused: as in `Asking`.
    """

    def __init__(self, store: Store, shaping: Mapping[str, Any], *, retry_refused: bool = False) -> None:
        self._store, self._shaping, self._retry_refused = store, shaping, retry_refused
        self.unknown: dict[str, Request] = {}

    def __call__(self, requests: Iterable[Request]) -> AskResult:
        """What is known of each request; a refusal of those that are unknown."""
        results: list[Answer | Refusal] = []
        for request in requests:
            key = key_of(self._shaping, request)
            answer = known(self._store, key, request, retry_refused=self._retry_refused)
            if answer is None:
                self.unknown[key] = request
            results.append(answer or Refusal(key, "not-asked"))
        return AskResult(results, Counter())


def foreseen(store: Store, asking: Asking, requests: Iterable[Request]) -> LlmUse:
    """What is asked for some requests, those that the ledger has left out, equal ones once.

    An answer may need a repair. A token is at least a byte, and of the prompt at most six.
    """
    look_up = LedgerAnswers(store, asking.settings.shaping(), retry_refused=asking.retry_refused)
    look_up(requests)
    unknown = look_up.unknown
    sizes = [
        len(one.instructions.encode()) + len(one.content.encode()) + len(canonical_json(one.schema))
        for one in unknown.values()
    ]
    most = sum(one.max_output_tokens for one in unknown.values())
    return LlmUse(
        model=str(asking.settings.model),
        calls=Range(len(sizes), 2 * len(sizes)),
        input_tokens=Range(sum(size // 6 for size in sizes), sum(size for size in sizes) + most),
        output_tokens=Range(len(sizes), 2 * most),
        tasks=tuple(dict.fromkeys(one.task for one in unknown.values())),
        prompts=Range.exactly(len(sizes)),
    )


def holding(
    part: Part[Any],
    tables: Mapping[str, pa.Table],
    *,
    guessed: bool = False,
    counts: Mapping[str, int] | None = None,
    llm: tuple[LlmUse, ...] = (),
) -> Estimate:
    """The estimate of a part that holds these tables; they are put in the plan's store for the stages that read them.

    guessed: the part may hold others.
    """
    if guessed:  # not to be taken for what the part will hold
        tables = {
            name: table.append_column("planned", pa.array([part.job.key] * len(table), pa.string()))
            for name, table in tables.items()
        }
    stand_ins = {name: put_table(part.store, table)[0] for name, table in tables.items()}
    return Estimate(counts=counts or {}, llm=llm, stand_ins=stand_ins, guessed=guessed)
