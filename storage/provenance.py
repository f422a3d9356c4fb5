"""The provenance of answers of language models: which of them still derive from texts in the store.

An answer is about passages, or about texts that other answers made. It stands if all its inputs are accounted for:
passages in a table of the store, and texts made by standing answers, layer by layer. So an answer is invalid if one
of its passages, or a text made from one, is forgotten, or if the link to its passages is lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from indexmill.store.canonical import canonical_json
from indexmill.store.layout import ledger_name, refusal_name
from storage import ledger, refusals
from storage.document_traces import Traces
from storage.prompt_records import PromptRecord
from storage.protocol import Store
from storage.refusals import RefusedPrompt
from storage.tombstones import document_digest

_Ids = NDArray[np.uint64]


def hashed(ids: Iterable[str]) -> _Ids:
    """Return 64-bit hashes of ids, (n,) uint64, ascending and distinct."""
    return np.unique(np.fromiter((_number(document_digest(name)) for name in ids), np.uint64))


class AnswerProvenance:
    """The inputs and outputs of the answers and refused prompts of a store, read once.

    Takes about 80 bytes for a record and 16 for each input id, and three times that during a search. A record that
    does not name its inputs is searched for `traces`, those of the documents to forget.
    """

    def __init__(self, store: Store, traces: Traces) -> None:
        self._lost: list[str] = []
        self._keys, self._makes, self._refused = bytearray(), bytearray(), bytearray()
        rows, ids = array("q"), array("Q")
        answers = ((name, answer) for name, _, answer in ledger.scan(store))
        for name, record in chain[tuple[str, PromptRecord | None]](answers, refusals.scan(store)):
            if record is None or (
                not record.about and traces.in_record(canonical_json(record.model_dump(mode="json")))
            ):
                self._lost.append(name)
                continue
            for input_id in record.about:
                rows.append(len(self._refused))
                ids.append(_number(document_digest(input_id)))
            self._keys += bytes.fromhex(record.key)
            self._makes += bytes.fromhex(document_digest(record.makes))
            self._refused.append(isinstance(record, RefusedPrompt))
        self._rows, self._ids = np.frombuffer(rows, np.int64), np.frombuffer(ids, np.uint64)
        self._output_ids = np.frombuffer(self._makes, ">u8")[::4].astype(np.uint64)

    def unaccounted(self, accounted: Callable[[], _Ids], forgotten: _Ids) -> Iterator[str]:
        """Yield the names of the records that do not stand or cannot be read.

        accounted: returns the ids of the passages and documents in the store, `hashed`; called only if a record has
        inputs. forgotten: ids that always count as missing.
        """
        yield from self._lost
        if not len(self._ids):
            return
        every, ids, outputs = self._numbered()
        barred = np.isin(every, forgotten)
        supported = np.isin(every, accounted()) & ~barred
        while True:
            stands: NDArray[np.bool_] = np.bincount(self._rows[~supported[ids]], minlength=len(outputs)) == 0
            more = supported.copy()
            more[outputs[stands]] = True
            more &= ~barred
            if (more == supported).all():
                break
            supported = more
        for row in np.flatnonzero(~stands):
            key = self._keys[32 * row : 32 * row + 32].hex()
            yield refusal_name(key) if self._refused[row] else ledger_name(key)

    def made_of(self, ids: _Ids, accounted: Callable[[], _Ids]) -> set[str]:
        """Return the SHA-256 of the ids of all texts made, directly or not, from these ids, except `accounted` ids."""
        if not len(self._ids):
            return set()
        every, about, outputs = self._numbered()
        excluded = np.isin(every, np.append(accounted(), hashed([""])))
        derived = np.isin(every, ids)
        while True:
            rows = np.unique(self._rows[derived[about]])
            rows = rows[~excluded[outputs[rows]]]
            if derived[outputs[rows]].all():
                break
            derived[outputs[rows]] = True
        return {self._makes[32 * row : 32 * row + 32].hex() for row in rows}

    def _numbered(self) -> tuple[_Ids, NDArray[np.int64], NDArray[np.int64]]:
        """Return the distinct ids, and the position in them of each entry of `_ids` and of `_output_ids`."""
        every, where = np.unique(np.concatenate([self._ids, self._output_ids]), return_inverse=True)
        return every, where[: len(self._ids)], where[len(self._ids) :]


def _number(digest: str) -> int:
    return int(digest[:16], 16)
