"""Vectors from an endpoint: each batch of texts is paid for once, and its vectors are stored before they are used.

A record in the ledger has the vectors of one batch. With one record per text, a text would be found whatever its batch,
but each record needs a synchronised write: 2.5 million for techdocs, where batches need 40,000. So texts are grouped
into batches by their hashes: the same texts of a part give the same batches in every run, and an added or removed text
changes few of them. Across versions, vectors are copied from earlier parts, even in cold builds.

Endpoints do not return the same bits twice; the vectors recorded first are used.

For each batch: check the ledger, wait for the quota, send it under one layer of retries, check the answer, write it
to the ledger, then use it. A rejected batch is halved until the rejected text is found.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.models.llm import Request, key_of
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected
from indexmill.models.openai_embeddings import EmbeddingResponse, OpenAiEmbeddings, most_tokens, open_embeddings
from indexmill.models.progress import Items, report_progress
from indexmill.store.canonical import digest_of_texts
from indexmill.store.layout import REFUSALS, refusal_name
from indexmill.text.counted import counted
from schemas.config import EmbedSettings
from storage import ledger, refusals
from storage.clock import timestamp
from storage.ledger import LedgerEntry
from storage.protocol import Store
from tasks.llm.calls import PaidCalls, RequestCost
from tasks.llm.prompt_results import RequestRecord
from tasks.llm.quota import NoQuota, Quota

TASK = "vectors"
"""The task of these answers in the ledger."""

PREFIX = "embed_"
"""The prefix of the counts for the report."""

PROBE = ("The bridge over the river is closed.", "Zwölf", "The bridge over the river is closed.")
"""The first request to an endpoint: two texts, one of them twice."""

_VERSION = "1"

_SAME, _DIFFERENT = 0.98, 0.9999
"""The minimum cosine between vectors of the same text, and the maximum between vectors of different texts."""

_RECORD_BYTES = ledger.LONGEST // 2
"""The maximum bytes of a batch's vectors in the ledger."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class EncoderAccess:
    """The settings and quota of calls to an encoder; picklable. retry_refused: whether to send quarantined texts."""

    settings: EmbedSettings
    run_id: str
    quota: Quota = field(default_factory=NoQuota)
    retry_refused: bool = False

    @property
    def client(self) -> OpenAiEmbeddings:
        """The endpoint's client, which makes no lookup before the first request."""
        return open_embeddings(self.settings, self.settings.dimensions)


class TextsRefused(Exception):
    """The endpoint returns no vector for some texts; the vectors of all others are in the ledger.

    refused: the reasons, by the texts' positions.
    """

    def __init__(self, refused: Mapping[int, str], texts: int) -> None:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in sorted(Counter(refused.values()).items()))
        super().__init__(f"the encoder's endpoint refuses {len(refused)} of {counted(texts, 'text')} ({reasons})")
        self.refused, self._texts = dict(refused), texts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refused, self._texts)


def batches_of(
    texts: Sequence[str], tokens: Sequence[int], settings: EmbedSettings, dimension: int
) -> Iterator[Sequence[int]]:
    """Group distinct texts into batches within the endpoint's limits; yields each batch's positions, in order.

    A batch ends after a text whose hash marks an end, or at a limit. An added or removed text changes its own batch and
    the batches that follow, up to the next end that a hash marks.
    """
    most = max(1, min(settings.batch_texts, _RECORD_BYTES * 3 // 4 // (4 * dimension)))
    ends = max(1, most // 2)
    batch: list[int] = []
    total = 0
    for at, (text, count) in enumerate(zip(texts, tokens, strict=True)):
        if batch and (len(batch) == most or total + count > settings.batch_tokens):
            yield batch
            batch, total = [], 0
        batch.append(at)
        total += count
        if int(digest_of_texts(text)[:8], 16) % ends == 0:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def is_known(store: Store, access: EncoderAccess, texts: Sequence[str], dimension: int) -> bool:
    return _recorded(store, _key(access.client, texts), len(texts), dimension) is not None


def recorded_dimension(store: Store, access: EncoderAccess) -> int | None:
    """Return the dimension of the vectors that an endpoint returned to the probe; None if it was never probed."""
    recorded = _recorded(store, _key(access.client, PROBE), len(PROBE), access.settings.dimensions)
    return None if recorded is None else int(recorded.shape[1])


def probe(store: Store, access: EncoderAccess) -> tuple[int, Counter[str]]:
    """Return the dimension of an endpoint's vectors and the counts for the report; sends one tiny request if needed.

    Raises LlmForbidden if the endpoint cannot be the encoder of an index, and any error of the client.
    """
    dimension = recorded_dimension(store, access)
    if dimension is not None:
        return dimension, Counter()
    counts = Counter[str]()
    calls = _Embedding.of(store, access, None, counts)  # keeps the client, which closes at the end of the loop
    return asyncio.run(calls.probed()), counts


def vectors_of(
    store: Store,
    access: EncoderAccess,
    texts: Sequence[str],
    tokens: Sequence[int],
    dimension: int,
    counts: Counter[str],
) -> Floats:
    """Return the unit vectors (n, d) float32 of distinct texts, which are sent unchanged.

    tokens: the texts' approximate token counts. counts: updated for the report, even if the calls fail: `embed_calls`,
    `embed_tokens` and `embed_input_tokens` of calls that were or may have been billed (`embed_maybe_billed`),
    `embed_ledger` texts found in the ledger, `embed_retries`, `embed_refused`.

    Raises TextsRefused once all other texts have their vectors. When the budget is reached, the endpoint forbids
    everything, or does not answer before the deadline, no more calls start, calls in flight finish and their vectors
    are stored, and BudgetReached or the LlmError is raised.
    """
    calls = _Embedding.of(store, access, dimension, counts)  # keeps the client, which closes at the end of the loop
    return asyncio.run(calls.all(texts, tokens))


def _request(texts: Sequence[str]) -> Request:
    return Request(TASK, "", _VERSION, digest_of_texts(*texts), {}, 0)


def _key(client: OpenAiEmbeddings, texts: Sequence[str]) -> str:
    return key_of(client.shaping, _request(texts))


def _recorded(store: Store, key: str, count: int, dimension: int | None) -> Floats | None:
    """Return the vectors of a batch in the ledger; None unless their number and dimension match."""
    entry = ledger.find(store, key)
    return None if entry is None else _vectors(entry, count, dimension)


def _vectors(entry: LedgerEntry, count: int, dimension: int | None) -> Floats | None:
    """Return the vectors of an entry; None unless their number and dimension match and they have unit length."""
    value = entry.value.get("vectors")
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        return None
    if not data or len(data) % (4 * count) or (dimension is not None and len(data) != 4 * count * dimension):
        return None
    vectors = np.frombuffer(data, "<f4").astype(np.float32).reshape(count, -1)
    lengths = np.square(vectors, dtype=np.float64).sum(axis=1)
    return vectors if (np.abs(lengths - 1.0) < 1e-3).all() else None


@dataclass(kw_only=True)
class _Embedding(PaidCalls):
    """The state of one call of `vectors_of`, in one event loop."""

    store: Store
    access: EncoderAccess
    client: OpenAiEmbeddings
    dimension: int | None
    texts: Sequence[str] = ()
    vectors: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    done: int = 0
    refusal_names: frozenset[str] = frozenset()  # names of the texts that earlier runs have quarantined
    refused: dict[int, str] = field(default_factory=dict)  # reasons by position
    rejected: list[tuple[int, LlmError]] = field(default_factory=list)
    controlled: bool = False  # True once the endpoint has accepted a text

    @classmethod
    def of(cls, store: Store, access: EncoderAccess, dimension: int | None, counts: Counter[str]) -> _Embedding:
        return cls(
            quota=access.quota,
            timeout_seconds=access.settings.timeout_seconds,
            deadline_seconds=access.settings.deadline_seconds,
            sleep=asyncio.sleep,
            section="embed",
            prefix=PREFIX,
            counts=counts,
            store=store,
            access=access,
            client=access.client,
            dimension=dimension,
        )

    async def all(self, texts: Sequence[str], tokens: Sequence[int]) -> Floats:
        if self.dimension is None:
            raise ValueError("the dimension is unknown: the encoder was not probed")
        self.texts, self.vectors = texts, np.empty((len(texts), self.dimension), np.float32)
        self.refusal_names = frozenset(await asyncio.to_thread(self.store.list, REFUSALS))
        batches = batches_of(texts, tokens, self.access.settings, self.dimension)

        async def get(batch: Sequence[int]) -> None:
            await self._get(batch)
            self.report()

        await self.each(batches, get, min(self.access.settings.concurrency, len(texts)))
        if self.failure is None and self.rejected:
            await asyncio.to_thread(self._quarantine_rejected)
        if self.failure is not None:
            raise self.failure
        if self.refused:
            self.counts[PREFIX + "refused"] += len(self.refused)
            raise TextsRefused(self.refused, len(texts))
        return self.vectors

    async def probed(self) -> int:
        """Probe the dimension of the endpoint's vectors; raises LlmForbidden if they cannot serve an index."""
        try:
            came = await self._sent(PROBE)
        except LlmError as error:
            if isinstance(error, LlmForbidden) or not (error.useless_response or isinstance(error, LlmRejected)):
                raise
            raise LlmForbidden(f"{error}: see embed.model and embed.base_url") from None
        first, different, again = came.vectors.astype(np.float64)
        if first @ again < _SAME or first @ different > _DIFFERENT:
            raise LlmForbidden(
                f"{self.client.where} returns different vectors for one text, or one vector for different texts: it "
                f"answers in the wrong order, or {self.client.model!r} is not a text encoder: see embed.model"
            )
        # The probe is not a text of the corpus, so no forgotten document removes it.
        await asyncio.to_thread(self._keep, _key(self.client, PROBE), came, ())
        return int(came.vectors.shape[1])

    def report(self) -> None:
        done, total = self.done, len(self.texts)
        report_progress(done, total, Items(done, total, "text", self.in_flight, self.retrying, self.reason))

    async def _get(self, batch: Sequence[int]) -> None:
        """Get the vectors of a batch from the ledger or the endpoint, or by halves if a text is refused."""
        texts = [self.texts[at] for at in batch]
        key = _key(self.client, texts)
        if await self._use_recorded(key, batch):
            return
        if bool(self.refusal_names) and await asyncio.to_thread(self._holds_refused, batch):
            await self._get_halves(batch)
            return
        async with self.holding(key):
            if not await self._use_recorded(key, batch):
                await self._ask(key, batch, texts)

    async def _use_recorded(self, key: str, batch: Sequence[int]) -> bool:
        recorded = await asyncio.to_thread(_recorded, self.store, key, len(batch), self.dimension)
        if recorded is None:
            return False
        self._use(batch, recorded)
        self.counts[PREFIX + "ledger"] += len(batch)
        return True

    def _use(self, batch: Sequence[int], vectors: Floats) -> None:
        self.vectors[list(batch)] = vectors
        self.done += len(batch)

    async def _ask(self, key: str, batch: Sequence[int], texts: Sequence[str]) -> None:
        try:
            came = await self._sent(texts)
        except LlmError as error:
            if isinstance(error, LlmForbidden) or not (isinstance(error, LlmRejected) or error.useless_response):
                raise
            if len(batch) > 1:
                await self._get_halves(batch)
                return
            await self._control(error)
            self.rejected.append((batch[0], error))
            return
        self.controlled = True
        # It is attributed only to itself, not to a document, so it is removed whenever any document is forgotten.
        self._use(batch, await asyncio.to_thread(self._keep, key, came, (key,)))
        if self.refusal_names:
            await asyncio.to_thread(self._forgive, batch)

    async def _get_halves(self, batch: Sequence[int]) -> None:
        if len(batch) == 1:  # refused before
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            await self._get(half)

    def _holds_refused(self, batch: Sequence[int]) -> bool:
        """Return True if an earlier run quarantined a text of a batch, whose halves may then be in the ledger.

        A batch of one such text is refused again, unless refused texts are retried.
        """
        for at in batch:
            key = _key(self.client, self.texts[at : at + 1])
            record = refusals.find(self.store, key) if refusal_name(key) in self.refusal_names else None
            if record is None:
                continue
            if len(batch) > 1:
                return True
            if not self.access.retry_refused or record.run_id == self.access.run_id:
                self.refused[at] = record.reason
                return True
        return False

    def _forgive(self, batch: Sequence[int]) -> None:
        for at in batch:
            key = _key(self.client, self.texts[at : at + 1])
            if refusal_name(key) in self.refusal_names:
                refusals.remove(self.store, key)

    async def _control(self, error: LlmError) -> None:
        """Raise the error of a text if the endpoint accepts no other text either: then no text is to blame."""
        if not self.controlled:
            try:
                await self._sent(PROBE[:1])
            except LlmError:
                raise error from None
            self.controlled = True

    async def _sent(self, texts: Sequence[str]) -> EmbeddingResponse:
        most, bill = (most_tokens(texts), 0), RequestCost()

        async def attempt() -> EmbeddingResponse:
            await self.client.ready()
            return await self.paid(
                lambda: self.client.embed(texts, TASK, self.dimension), self.client.model, most, bill
            )

        return await self.patiently(attempt, bill)

    def _keep(self, key: str, came: EmbeddingResponse, about: tuple[str, ...]) -> Floats:
        """Store vectors in the ledger; returns those recorded there, which may be another process's."""
        count, dimension = came.vectors.shape
        entry = LedgerEntry(
            key=key,
            task=TASK,
            model=self.client.model,
            prompt_version=_VERSION,
            value={"vectors": base64.b64encode(came.vectors.astype("<f4").tobytes()).decode()},
            input_tokens=came.input_tokens,
            output_tokens=0,
            about=about,
            run_id=self.access.run_id,
            created=timestamp(time.time()),
        )
        stands = ledger.record(self.store, entry, lambda earlier: _vectors(earlier, count, dimension) is not None)
        recorded = _vectors(stands, count, dimension)
        return came.vectors if recorded is None else recorded

    def _quarantine_rejected(self) -> None:
        for at, error in self.rejected:
            reason = self.refused[at] = _reason(error)
            texts = self.texts[at : at + 1]
            key, created = _key(self.client, texts), timestamp(time.time())
            record = RequestRecord(self.store, key, _request(texts), self.client.model, self.access.run_id, created)
            record.refuse(reason)


def _reason(error: LlmError) -> str:
    """Return the reason why a text has no vector, in one word."""
    if isinstance(error, LlmRejected):
        return "filtered" if error.filtered else "rejected"
    return "no-vector"
