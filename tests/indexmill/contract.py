"""What holds for every family: called by the families' own tests, on snapshots of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from indexmill.hits import Hit
from indexmill.snapshot import Snapshot

Ask = Callable[[Snapshot, str, int], list[Hit]]


def gives_alone_what_a_batch_gives(snapshot: Snapshot, questions: Sequence[str], times: int = 1, **given: Any) -> None:
    """A question gets the same hits alone, in a batch in any order or ``times`` as long, and in several threads."""
    asked = list(questions)
    alone = [snapshot.retrieve(question, **given) for question in asked]
    assert snapshot.retrieve_batch(asked, **given) == alone
    assert snapshot.retrieve_batch(asked[::-1], **given)[::-1] == alone
    assert snapshot.retrieve_batch(asked * times, **given) == alone * times
    few = asked[:4]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda one: snapshot.retrieve(one, **given), few * 4)) == alone[:4] * 4
