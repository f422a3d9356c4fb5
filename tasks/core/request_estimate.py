"""What some questions will cost, told before they are asked."""

from __future__ import annotations

from collections.abc import Iterable

from indexmill.models.llm import Request
from indexmill.store.canonical import canonical_json
from storage.ledger import key_of
from storage.protocol import Store
from tasks.core.estimate import LlmUse, Range
from tasks.llm.ask import Asking, known

__all__ = ["foreseen"]


def foreseen(store: Store, asking: Asking, requests: Iterable[Request]) -> LlmUse:
    """What is asked for some requests, those that the ledger has left out, equal ones once.

    An answer may need a repair. A token is at least a byte, and of the prompt at most six.
    """
    unknown = {}
    for request in requests:
        key = key_of(asking.settings.shaping(), request)
        if known(store, key, request, retry_refused=asking.retry_refused) is None:
            unknown[key] = request
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
