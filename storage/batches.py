"""Batches: questions sent to an endpoint as one file and answered within a day.

    batches/<id>/asked.json       the questions; nothing has been sent yet
    batches/<id>/uploaded.json    the file is at the endpoint
    batches/<id>/starting.json    the batch may exist from now on, even without a response to the request
    batches/<id>/started.json     the batch is known to exist
    batches/<id>/ended.json       its answers are in the ledger; the files at the endpoint are still to be deleted
    batches/<id>/closed.json      the endpoint no longer has any data of the batch

Each record is created before the next step begins, so that a run that takes over knows what may have happened. The id
is in the file's name and in the batch's metadata, so that a batch can be found at the endpoint if a record is missing.
Closing a batch removes its other records. The records contain ids and schemas, no text of the corpus.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from indexmill.errors import NotFound
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.layout import batch_name, batch_prefix
from indexmill.store.record import Digest, Record, Timestamp, Word
from indexmill.text.counted import counted
from storage.protocol import Store
from storage.records import get_record

Outcome = Literal["completed", "expired", "cancelled", "failed", "never-started"]
"""The outcome of a batch: the endpoint's status, or never-started for a batch that can no longer start."""

_T = TypeVar("_T")
_Tuple = Annotated[tuple[_T, ...], Field(strict=False)]
_Count = Annotated[int, Field(ge=0)]


class Kind(Record):
    """The properties that many questions of a batch share; their answers are checked against them."""

    task: str
    prompt_version: str
    answers: dict[str, Any]
    """The JSON schema."""
    max_output_tokens: _Count


class BatchQuestion(Record):
    key: Digest
    """The key of the answer in the ledger, also used as the custom_id."""
    kind: _Count
    """The index of its kind in `BatchRequest.kinds`."""
    about: _Tuple[str]
    makes: str


class BatchRequest(Record):
    """The questions of a batch, with their endpoint, model and run. input_tokens and output_tokens are upper bounds."""

    run_id: Word
    stage: str
    created: Timestamp
    endpoint: str
    model: str
    bytes: _Count
    input_tokens: _Count
    output_tokens: _Count
    kinds: _Tuple[Kind]
    questions: _Tuple[BatchQuestion]


class Uploaded(Record):
    file_id: str
    created: Timestamp


class Starting(Record):
    """The only request to start the batch is about to be sent."""

    created: Timestamp


class Started(Record):
    batch_id: str
    created: Timestamp


class Ended(Record):
    """The result of a batch.

    answered: questions whose answers went into the ledger. unusable: questions whose answers were not valid.
    unanswered: all other questions. ignored: lines that belong to no question of the batch. input_tokens,
    output_tokens: the billed tokens. file_ids: the files that remain at the endpoint.
    """

    outcome: Outcome
    why: str
    answered: _Count
    unusable: _Count
    unanswered: _Count
    ignored: _Count
    input_tokens: _Count
    output_tokens: _Count
    file_ids: _Tuple[str]
    run_id: Word
    created: Timestamp


class Closed(Record):
    """The record that remains of a closed batch."""

    batch_id: str | None
    run_id: Word
    stage: str
    model: str
    questions: _Count
    created: Timestamp
    ended: Ended


@dataclass(frozen=True)
class Batch:
    """An open batch, with the records of the steps it has reached."""

    id: str
    request: BatchRequest
    uploaded: Uploaded | None = None
    starting: Starting | None = None
    started: Started | None = None
    ended: Ended | None = None

    @property
    def file_name(self) -> str:
        return f"indexmill-{self.id}.jsonl"

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(question.key for question in self.request.questions)

    @property
    def state(self) -> str:
        """The last step that the batch reached: asked, uploaded, starting, started or ended."""
        return next((name for name in reversed(_STEPS) if getattr(self, name) is not None), "asked")

    def __str__(self) -> str:
        there = f", {self.started.batch_id} at {self.request.endpoint}" if self.started else ""
        return f"batch {self.id} ({counted(len(self.request.questions), 'question')} of {self.request.stage}{there})"


_STEPS: dict[str, type[Record]] = {
    "uploaded": Uploaded,
    "starting": Starting,
    "started": Started,
    "ended": Ended,
}


def id_of(run_id: str, number: int, keys: Iterable[str]) -> str:
    """Return the id of a batch, 32 hex digits: a hash of its run, its number in the run, and its keys."""
    return digest_of(canonical_json([run_id, number, sorted(keys)]))[:32]


def ask(store: Store, batch: str, request: BatchRequest) -> Batch:
    """Record the questions of a batch before anything is sent."""
    store.create(batch_name(batch, "asked"), request.to_bytes())
    return Batch(batch, request)


def record(store: Store, batch: Batch, step: Uploaded | Starting | Started | Ended) -> Batch:
    """Record a step of a batch, and return the batch with it. An existing record of the step is kept."""
    name = type(step).__name__.lower()
    store.create(batch_name(batch.id, name), step.to_bytes())
    steps: dict[str, Any] = {name: get_record(store, batch_name(batch.id, name), type(step))}
    return dataclasses.replace(batch, **steps)


def close(store: Store, batch: Batch) -> None:
    """Close an ended batch once the endpoint has no data of it: keep the outcome, remove the records of its steps."""
    if batch.ended is None:
        raise ValueError(f"{batch} has not ended")
    closed = Closed(
        batch_id=batch.started.batch_id if batch.started else None,
        run_id=batch.request.run_id,
        stage=batch.request.stage,
        model=batch.request.model,
        questions=len(batch.request.questions),
        created=batch.request.created,
        ended=batch.ended,
    )
    store.create(batch_name(batch.id, "closed"), closed.to_bytes())
    _sweep(store, batch.id)


def begun(store: Store) -> list[Batch]:
    """Return the open batches, oldest first. Raises CorruptBlob if a record cannot be read."""
    batches = []
    for batch, steps in _steps(store).items():
        if "closed" not in steps and "asked" in steps:
            with contextlib.suppress(NotFound):  # another process has closed it
                request = get_record(store, batch_name(batch, "asked"), BatchRequest)
                there: dict[str, Any] = {
                    name: get_record(store, batch_name(batch, name), kind)
                    for name, kind in _STEPS.items()
                    if name in steps
                }
                batches.append(Batch(batch, request, **there))
    return sorted(batches, key=lambda batch: (batch.request.created, batch.id))


def open_states(store: Store) -> dict[str, str]:
    """Return the last step of each open batch, by id; reads no record."""
    return {
        batch: next((name for name in reversed(_STEPS) if name in steps), "asked")
        for batch, steps in sorted(_steps(store).items())
        if "closed" not in steps and "asked" in steps
    }


def sweep(store: Store) -> None:
    """Remove the step records of batches that a killed run was closing."""
    for batch, steps in _steps(store).items():
        if "closed" in steps and steps != {"closed"}:
            _sweep(store, batch)


def naming(store: Store, gone: Callable[[Iterable[str]], bool]) -> Iterator[tuple[Batch, Batch]]:
    """Yield each open batch with questions about, or for, ids that are `gone`, and a copy without these questions."""
    for batch in begun(store):
        remaining = tuple(
            question for question in batch.request.questions if not gone((*question.about, question.makes))
        )
        if len(remaining) < len(batch.request.questions):
            request = batch.request.model_copy(update={"questions": remaining})
            yield batch, dataclasses.replace(batch, request=request)


def replace(store: Store, batch: Batch) -> None:
    """Replace the questions of a batch; later answers to removed questions are ignored."""
    store.replace(batch_name(batch.id, "asked"), batch.request.to_bytes())


def give_up(store: Store, batch: str) -> bool:
    """Forget an open batch and any answers still to come; False if there is no such batch."""
    try:
        names = [name for name in store.list(batch_prefix(batch)) if name != batch_name(batch, "closed")]
    except ValueError:  # not an id
        return False
    for name in sorted(names, key=lambda name: name == batch_name(batch, "asked")):  # remove this record last
        store.delete(name)
    return bool(names)


def _steps(store: Store) -> dict[str, set[str]]:
    steps: dict[str, set[str]] = {}
    for name in store.list(batch_prefix()):
        batch, _, step = name.removeprefix(batch_prefix()).partition("/")
        steps.setdefault(batch, set()).add(step.removesuffix(".json"))
    return steps


def _sweep(store: Store, batch: str) -> None:
    for name in store.list(batch_prefix(batch)):
        if name != batch_name(batch, "closed"):
            store.delete(name)
