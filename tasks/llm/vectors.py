"""Vectors from an endpoint: each text is paid for once, and its vector is stored before it is used.

An answer of the ledger is the vector of one text, whatever request it came with, so that a text is found in any other
company: in a later night, another part, a cold build. Endpoints do not give the same bits twice; the vector that was
recorded first is the one that counts, for all.

For some texts: look in the ledger, make batches of the others, and for each batch wait for the quota, send it under one
layer of retries, check the answer, write the vectors to the ledger, then use them. A batch that the endpoint rejects is
halved until the text is found that it does not take.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from indexmill.models.headway import Items, headway
from indexmill.models.llm import Request, key_of
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected
from indexmill.models.openai_embeddings import Embedded, OpenAiEmbeddings, most_tokens, open_embeddings
from indexmill.store.layout import refusal_name, refusal_prefix
from indexmill.text.counted import counted
from schemas.config import EmbedSettings
from storage import ledger, refusals
from storage.clock import Clock, timestamp
from storage.ledger import LedgerEntry
from storage.protocol import Store
from tasks.llm.calls import Bill, PaidCalls, Sleep, Stopped
from tasks.llm.quota import NoQuota, Quota
from tasks.llm.refusals import quarantine

__all__ = [
    "PREFIX",
    "PROBE",
    "TASK",
    "EncoderAccess",
    "TextsRefused",
    "batches_of",
    "keys_of",
    "known_keys",
    "probe",
    "recorded_dimension",
    "vectors_of",
]

TASK = "vector"
"""The task of these answers in the ledger."""

PREFIX = "embed_"
"""The prefix of the counts for the report."""

_VERSION = "1"

PROBE = ("The bridge over the river is closed.", "Zwölf", "The bridge over the river is closed.")
"""Two texts, one of them twice: what an endpoint is asked first."""

_SAME, _OTHER = 0.98, 0.9999
"""Cosines: a text is at least so close to itself, and at most so close to another."""

_LOOKED_UP = 64
"""The keys that one thread looks up at a time."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class EncoderAccess:
    """The settings and quota by which a stage's workers ask an encoder: picklable, and not part of any key.

    retry_refused: send the texts again that earlier runs have quarantined.
    """

    settings: EmbedSettings
    run_id: str
    quota: Quota = field(default_factory=NoQuota)
    retry_refused: bool = False

    @property
    def client(self) -> OpenAiEmbeddings:
        """The endpoint; nothing is looked up before the first request."""
        return open_embeddings(self.settings, self.settings.dimensions)


class TextsRefused(Exception):
    """The endpoint takes some texts for no vector; all others are in the ledger. The documents are to blame.

    counts: those of the calls until then, for the report.
    """

    def __init__(self, refused: Mapping[str, str], texts: int, counts: Counter[str] | None = None) -> None:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in sorted(Counter(refused.values()).items()))
        super().__init__(f"the encoder's endpoint refuses {len(refused)} of {counted(texts, 'text')} ({reasons})")
        self._given = dict(refused), texts
        self.counts = counts or Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self._given, self.counts)


def keys_of(shaping: Mapping[str, Any], texts: Iterable[str]) -> list[str]:
    """The keys of the vectors of texts as they are sent. shaping: of the client (`OpenAiEmbeddings.shaping`)."""
    return [key_of(shaping, _request(text)) for text in texts]


def known_keys(store: Store, keys: Sequence[str], dimension: int) -> list[bool]:
    """For each key, whether the ledger has a vector of this dimension."""
    return [_recorded(store, key, dimension) is not None for key in keys]


def batches_of(tokens: Sequence[int], settings: EmbedSettings) -> Iterator[range]:
    """The positions of each batch of texts with so many tokens, in order, within the endpoint's limits."""
    first = total = 0
    for at, count in enumerate(tokens):
        if at > first and (at - first >= settings.batch_texts or total + count > settings.batch_tokens):
            yield range(first, at)
            first, total = at, 0
        total += count
    if first < len(tokens):
        yield range(first, len(tokens))


def recorded_dimension(store: Store, access: EncoderAccess) -> int | None:
    """The dimension of the vectors that an endpoint gave when it was first asked; None if it never was."""
    (key,) = keys_of(access.client.shaping, PROBE[:1])
    found = _recorded(store, key, access.settings.dimensions)
    return None if found is None else len(found)


def probe(
    store: Store, access: EncoderAccess, *, clock: Clock = time.time, sleep: Sleep = asyncio.sleep
) -> tuple[int, Counter[str]]:
    """The dimension of an endpoint's vectors, from the ledger or by one tiny request; and the counts for the report.

    Raises LlmForbidden if the endpoint cannot be the encoder of an index, else what the client raises.
    """
    dimension = recorded_dimension(store, access)
    if dimension is not None:
        return dimension, Counter()
    calls = _Embedding.of(store, access, None, clock, sleep)
    return asyncio.run(calls.probed()), calls.counts


def vectors_of(
    store: Store,
    access: EncoderAccess,
    texts: Sequence[str],
    tokens: Sequence[int],
    dimension: int,
    *,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> tuple[Floats, Counter[str]]:
    """The unit vectors (n, d) float32 of texts as they are sent, and the counts for the stage's report.

    tokens: of each text, about. Equal texts are sent once. The counts: `embed_calls`, `embed_tokens` and
    `embed_input_tokens` of calls that were or may have been billed (`embed_maybe_billed`), `embed_ledger` texts found
    in the ledger, `embed_retries`, `embed_refused`.

    Raises TextsRefused once all other texts have their vectors. When the budget is reached, the endpoint forbids
    everything, or does not answer before the deadline, no further call starts, calls in flight finish and their vectors
    are stored, and BudgetReached or the LlmError is raised; its attribute `counts` holds the counts until then.
    """
    calls = _Embedding.of(store, access, dimension, clock, sleep)
    return asyncio.run(calls.all(texts, tokens)), +calls.counts


def _request(text: str) -> Request:
    return Request(TASK, "", _VERSION, text, {}, 0)


def _recorded(store: Store, key: str, dimension: int | None) -> Floats | None:
    """The vector of a key in the ledger; None if there is none of this dimension."""
    entry = ledger.find(store, key)
    return None if entry is None else _vector(entry, dimension)


def _vector(entry: LedgerEntry, dimension: int | None) -> Floats | None:
    """The vector that an entry holds; None unless it has this dimension and unit length."""
    value = entry.value.get("vector")
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        return None
    if not data or len(data) % 4 or (dimension is not None and len(data) != 4 * dimension):
        return None
    found = np.frombuffer(data, "<f4").astype(np.float32)
    return found if abs(float(np.square(found, dtype=np.float64).sum()) - 1.0) < 1e-3 else None


def _shares(total: int, tokens: Sequence[int]) -> list[int]:
    """A number divided among texts by their tokens; the shares add up to it."""
    ends = np.cumsum(np.maximum(tokens, 1))
    shares: list[int] = np.diff(total * ends // ends[-1], prepend=0).tolist()
    return shares


@dataclass(kw_only=True)
class _Embedding(PaidCalls):
    """The state of one call of `vectors_of`, in one event loop."""

    store: Store
    access: EncoderAccess
    client: OpenAiEmbeddings
    dimension: int | None
    clock: Clock
    texts: dict[str, tuple[str, int]] = field(default_factory=dict)  # and tokens, by key
    found: dict[str, Floats] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # the reason, by key
    rejected: list[tuple[str, LlmError]] = field(default_factory=list)
    controlled: bool = False  # the endpoint takes texts

    @classmethod
    def of(cls, store: Store, access: EncoderAccess, dimension: int | None, clock: Clock, sleep: Sleep) -> _Embedding:
        return cls(
            quota=access.quota,
            deadline_seconds=access.settings.deadline_seconds,
            sleep=sleep,
            section="embed",
            prefix=PREFIX,
            store=store,
            access=access,
            client=access.client,
            dimension=dimension,
            clock=clock,
        )

    async def all(self, texts: Sequence[str], tokens: Sequence[int]) -> Floats:
        keys = keys_of(self.client.shaping, texts)
        for key, text, count in zip(keys, texts, tokens, strict=True):
            self.texts.setdefault(key, (text, count))
        names = await asyncio.to_thread(lambda: frozenset(self.store.list(refusal_prefix())))
        await self._look_up(list(self.texts), names)
        self.counts[PREFIX + "ledger"] += len(self.found)
        missing = [key for key in self.texts if key not in self.found and key not in self.refused]
        sizes = [self.texts[key][1] for key in missing]
        waiting = iter([missing[places.start : places.stop] for places in batches_of(sizes, self.access.settings)])
        await asyncio.gather(*(self._work(waiting) for _ in range(min(self.access.settings.concurrency, len(missing)))))
        if self.failure is None and self.rejected:
            await asyncio.to_thread(self._quarantine_rejected)
        if self.failure is not None:
            self.failure.counts = self.counts  # type: ignore[attr-defined]
            raise self.failure
        if self.refused:
            self.counts[PREFIX + "refused"] += len(self.refused)
            raise TextsRefused(self.refused, len(self.texts), +self.counts)
        return np.stack([self.found[key] for key in keys]) if keys else np.empty((0, self.dimension or 0), np.float32)

    async def probed(self) -> int:
        """The dimension of the endpoint's vectors; raises LlmForbidden if they cannot be those of an index."""
        try:
            came = await self._sent(PROBE, Bill())
        except LlmError as error:
            if isinstance(error, LlmForbidden) or not (error.answered or isinstance(error, LlmRejected)):
                raise
            raise LlmForbidden(f"{error}: see embed.model and embed.base_url") from None
        first, other, again = came.vectors.astype(np.float64)
        if first @ again < _SAME or first @ other > _OTHER:
            raise LlmForbidden(
                f"{self.client.where} gives one text different vectors, or different texts one: it answers in another "
                f"order than it is asked, or {self.client.model!r} is no encoder of texts: see embed.model"
            )
        (key,) = keys_of(self.client.shaping, PROBE[:1])
        # Of no text of the corpus: whatever is forgotten, this stays.
        await asyncio.to_thread(self._keep, key, came.vectors[0], came.input_tokens, ())
        return int(came.vectors.shape[1])

    async def _look_up(self, keys: Sequence[str], refusal_names: Collection[str] = ()) -> None:
        """Find what the ledger and the quarantine know, several at a time."""
        parts = [keys[at : at + _LOOKED_UP] for at in range(0, len(keys), _LOOKED_UP)]
        await asyncio.gather(*(asyncio.to_thread(self._find, part, refusal_names) for part in parts))

    def _find(self, keys: Sequence[str], refusal_names: Collection[str]) -> None:
        for key in keys:
            vector = _recorded(self.store, key, self.dimension)
            if vector is not None:
                self.found[key] = vector
            elif refusal_name(key) in refusal_names:
                record = refusals.find(self.store, key)
                if record is not None and (not self.access.retry_refused or record.run_id == self.access.run_id):
                    self.refused[key] = record.reason

    async def _work(self, waiting: Iterator[list[str]]) -> None:
        for keys in waiting:
            if self.failure is not None:
                return
            try:
                await self._held(keys)
                done = len(self.found)
                headway(done, len(self.texts), Items(done, len(self.texts), "text"))
            except Stopped:
                return
            except Exception as error:
                self.fail(error)
                return

    async def _held(self, keys: Sequence[str]) -> None:
        """Get the vectors of a batch, unless another worker is getting them."""
        await self.unless_stopped(self.quota.hold(*keys))
        try:
            await self._look_up(keys)
            missing = [key for key in keys if key not in self.found and key not in self.refused]
            if missing:
                await self._got(missing)
        finally:
            with contextlib.suppress(IndexmillError):  # the quota is gone, and the waiting workers with it
                await self.quota.release(*keys)

    async def _got(self, keys: Sequence[str]) -> None:
        """Ask for the vectors of some texts, and store them; a text that is refused is told apart."""
        texts = [self.texts[key][0] for key in keys]
        try:
            came = await self._sent(texts, Bill())
        except LlmError as error:
            if isinstance(error, LlmForbidden) or not (isinstance(error, LlmRejected) or error.answered):
                raise
            if len(keys) > 1:
                for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                    await self._got(half)
                return
            await self._control(error)
            self.rejected.append((keys[0], error))
            return
        self.controlled = True
        shares = _shares(came.input_tokens, [self.texts[key][1] for key in keys])
        await asyncio.to_thread(self._keep_all, keys, came.vectors, shares)

    async def _control(self, error: LlmError) -> None:
        """Raise the error that a text met if the endpoint takes no other text, either: then no text is to blame."""
        if not self.controlled:
            try:
                await self._sent(PROBE[:1], Bill())
            except LlmError:
                raise error from None
            self.controlled = True

    async def _sent(self, texts: Sequence[str], bill: Bill) -> Embedded:
        """Send texts until the endpoint answers, within the deadline and the limit of useless answers."""
        most = most_tokens(texts), 0

        async def attempt() -> Embedded:
            await self.client.ready()
            return await self.paid(
                lambda: self.client.embed(texts, TASK, self.dimension), self.client.model, most, bill
            )

        return await self.patiently(attempt, bill)

    def _keep_all(self, keys: Sequence[str], vectors: Floats, tokens: Sequence[int]) -> None:
        for key, vector, share in zip(keys, vectors, tokens, strict=True):
            # About nothing but itself: no document accounts for it, so that it goes whenever one is forgotten.
            self.found[key] = self._keep(key, vector, share, (key,))

    def _keep(self, key: str, vector: Floats, tokens: int, about: tuple[str, ...]) -> Floats:
        """Put a vector into the ledger; returns the one recorded there, which may be another process's."""
        dimension = len(vector)
        entry = LedgerEntry(
            key=key,
            task=TASK,
            model=self.client.model,
            prompt_version=_VERSION,
            value={"vector": base64.b64encode(vector.astype("<f4").tobytes()).decode()},
            input_tokens=tokens,
            output_tokens=0,
            about=about,
            run_id=self.access.run_id,
            created=timestamp(self.clock()),
        )
        stands = ledger.record(self.store, entry, lambda earlier: _vector(earlier, dimension) is not None)
        if self.access.retry_refused:
            refusals.remove(self.store, key)
        found = _vector(stands, dimension)
        return vector if found is None else found

    def _quarantine_rejected(self) -> None:
        for key, error in self.rejected:
            reason = _reason(error)
            self.refused[key] = reason
            quarantine(
                self.store,
                _request(self.texts[key][0]),
                key=key,
                model=self.client.model,
                reason=reason,
                run_id=self.access.run_id,
                created=timestamp(self.clock()),
            )


def _reason(error: LlmError) -> str:
    """The reason why a text has no vector, in one word."""
    if isinstance(error, LlmRejected):
        return "filtered" if error.filtered else "rejected"
    return "no-vector"
