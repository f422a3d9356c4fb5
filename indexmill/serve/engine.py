"""Querying an index from an event loop: in batches, within limits, and with each response from one version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from indexmill.answer.answer_types import AnswerKeywords, AnswerOptions
from indexmill.answer.answers import answers
from indexmill.errors import BadInput, FamilyNotFound, NotFound
from indexmill.explore.explorer_page import Page, page_of
from indexmill.explore.neighbourhood import neighbourhood
from indexmill.hits import Hit
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.serve.batching import QuestionBatcher
from indexmill.serve.callers import Caller
from indexmill.serve.limits import ServerLimits
from indexmill.serve.messages import AnswerRequest, ExploreRequest, RetrieveRequest
from indexmill.serve.rejections import Busy, TooLate
from indexmill.serve.served_index import Index, IndexChoice, manifest_digest
from indexmill.serve.whole_documents import ServedDocument, document_of
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from indexmill.answer.answer_types import Answer
    from indexmill.models.llm import LLM
    from indexmill.models.reranker import Reranker
    from indexmill.snapshot import Snapshot
    from indexmill.store.manifest import Ref

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerModels:
    """The models of a server; None for a model that it lacks. prompts: a folder whose prompts replace the defaults."""

    llm: LLM | None = None
    reranker: Reranker | None = None
    prompts: Path | None = None
    max_output_tokens: int = 1024


class VersionedHits(NamedTuple):
    """The hits for a question, and the version they come from."""

    version: int | None
    manifest: str
    method: str
    hits: Sequence[Hit]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of ``RetrieveResponse``."""
        hits = [hit.to_dict() for hit in self.hits]
        return {"version": self.version, "manifest": self.manifest, "method": self.method, "hits": hits}


class VersionedAnswer(NamedTuple):
    """An answer, and the version it comes from."""

    manifest: str
    answer: Answer

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of ``AnswerResponse``."""
        return {"manifest": self.manifest, **self.answer.to_dict()}


class Engine:
    """Answers the requests to a server; call all coroutines from one event loop."""

    def __init__(
        self,
        index: Index,
        choice: IndexChoice,
        limits: ServerLimits,
        models: ServerModels = ServerModels(),
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self.index, self.choice, self.limits, self._models = index, choice, limits, models
        self.batches: QuestionBatcher[RetrievalOptions, VersionedHits] = QuestionBatcher(
            self._find, most=limits.batch, at_once=limits.at_once, waiting=limits.waiting, on_batch=on_batch
        )
        self._threads = ThreadPoolExecutor(limits.answers, thread_name_prefix="answer")
        self._answering = 0

    def close(self) -> None:
        """Close the index when the queries in flight have finished."""
        self.batches.close()
        self._threads.shutdown(wait=False)
        self.index.close()

    async def retrieve(self, request: RetrieveRequest, caller: Caller) -> tuple[VersionedHits, int]:
        """Return the hits for a question, and the size of the batch it was retrieved in.

        Raises as ``Snapshot.retrieve`` does, and BadInput for a request above the limits, Busy, TooLate.
        """
        options = self._options(request, caller)
        return await _within(self.limits.seconds, self.batches.ask(options, request.question))

    async def answer(self, request: AnswerRequest, caller: Caller) -> VersionedAnswer:
        """Answer a question; raises as ``retrieve`` and ``Snapshot.answer`` do."""
        steps = [result async for _, result in self.answer_in_steps(request, caller)]
        last: VersionedAnswer = steps[-1]
        return last

    async def answer_in_steps(self, request: AnswerRequest, caller: Caller) -> AsyncIterator[tuple[str, Any]]:
        """Yield ``hits`` with a ``VersionedHits``, then ``answer`` with a ``VersionedAnswer``.

        An answer is not streamed in pieces, since models return JSON, which is validated first.
        """
        seconds = self.limits.answer_seconds
        asking: AnswerKeywords = {
            "llm": self._models.llm,
            "token_budget": request.token_budget,
            "concurrency": 1,
            "max_output_tokens": self._models.max_output_tokens,
            "deadline_seconds": seconds,
            "answering": request.answering,
            "prompts": self._models.prompts,
        }
        options = AnswerOptions.of(self._options(request, caller), asking)
        loop = asyncio.get_running_loop()
        hits: asyncio.Future[Any] = loop.create_future()

        def show(result: VersionedHits) -> None:
            loop.call_soon_threadsafe(lambda: None if hits.done() else hits.set_result(result))

        ends = loop.time() + seconds
        work = self._begin(self._answer, request.question, options, show)
        await _within(ends - loop.time(), asyncio.wait({hits, work}, return_when=asyncio.FIRST_COMPLETED))
        if hits.done():
            yield "hits", hits.result()
        yield "answer", await _within(ends - loop.time(), asyncio.shield(work))

    async def explore(self, request: ExploreRequest, caller: Caller) -> tuple[int | None, Page]:
        """Draw a page of the index; return the version's number and the page. It counts toward the limits of answers.

        Raises as ``indexmill.explore.neighbourhood`` does, and BadInput for a request above the limits, Busy, TooLate.
        """
        if request.question is not None and len(request.question) > self.limits.question:
            raise BadInput(f"question has more characters than allowed; expected at most {self.limits.question:,}")
        return await _within(self.limits.seconds, asyncio.shield(self._begin(self._explore, request, caller)))

    def _explore(self, request: ExploreRequest, caller: Caller) -> tuple[int | None, Page]:
        """Draw a page from one version and the documents that the caller may read; runs in a thread."""
        with self.index.snapshot() as snapshot, _nameless(snapshot):
            subgraph = neighbourhood(
                snapshot,
                entity=request.entity,
                community=request.community,
                question=request.question,
                method=request.method,
                nodes=request.nodes,
                principals=caller.principals,
            )
            return snapshot.version, page_of(subgraph)

    def _begin(self, work: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Start an answer or a page in a thread, in the request's trace; raises Busy if too many are in progress."""
        if self._answering >= self.limits.answers + self.limits.waiting:
            raise Busy(
                f"{counted(self._answering, 'answer is', 'answers are')} in progress already; try again in a moment"
            )
        self._answering += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work, *arguments)
        future.add_done_callback(self._end_answer)
        return future

    def _end_answer(self, work: asyncio.Future[Any]) -> None:
        self._answering -= 1
        if not work.cancelled():
            work.exception()  # retrieved so that asyncio does not log it if the caller has disconnected

    async def versions(self) -> tuple[list[Ref], int | None, str, tuple[str, ...]]:
        """Return the store's versions, and the number, manifest and methods of the served version."""

        def read() -> tuple[list[Ref], int | None, str, tuple[str, ...]]:
            refs = self.choice.versions()
            with self.index.snapshot() as snapshot:
                return refs, snapshot.version, manifest_digest(snapshot), snapshot.methods

        return await self._in_thread(read)

    async def document(self, document_id: str, caller: Caller) -> tuple[int | None, str, ServedDocument]:
        """Return the number and manifest of the served version, and a document. Raises NotFound."""

        def read() -> tuple[int | None, str, ServedDocument]:
            with self.index.snapshot() as snapshot, _nameless(snapshot):
                document = document_of(snapshot, document_id, caller.principals)
                return snapshot.version, manifest_digest(snapshot), document

        return await self._in_thread(read)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await _within(self.limits.seconds, asyncio.to_thread(work))

    def _options(self, request: RetrieveRequest, caller: Caller) -> RetrievalOptions:
        """Return the options of a request; raises BadInput for a request above the limits."""
        limits = self.limits
        if len(request.question) > limits.question:
            raise BadInput(f"question has {len(request.question):,} characters; expected {limits.question:,} at most")
        if request.k > limits.k:
            raise BadInput(f"k is {request.k}; expected {limits.k} at most")
        if request.rerank_depth > 10 * limits.k:
            raise BadInput(f"rerank_depth is {request.rerank_depth}; expected {10 * limits.k} at most")
        if request.rerank and self._models.reranker is None:
            raise BadInput("rerank is true, but this server has no reranker: omit it")
        return RetrievalOptions(
            method=request.method,
            k=request.k,
            explain=request.explain,
            where=request.where or None,
            parameters=request.parameters or {},
            rerank=self._models.reranker if request.rerank else None,
            rerank_depth=request.rerank_depth,
            principals=caller.principals,
        )

    def _find(self, options: RetrievalOptions, questions: Sequence[str]) -> list[VersionedHits]:
        """Retrieve the hits of a batch from one version; runs in a thread."""
        with self.index.snapshot() as snapshot, _nameless(snapshot):
            rankings = snapshot.retrieve_batch(questions, options=options)
            return [_versioned(snapshot, options, hits) for hits in rankings]

    def _answer(self, question: str, options: AnswerOptions, show: Callable[[VersionedHits], None]) -> VersionedAnswer:
        """Answer from one version; runs in a thread. show: called with the hits before the answer is generated."""
        with self.index.snapshot() as snapshot, _nameless(snapshot):
            (answer,) = answers(
                snapshot, [question], options, lambda rankings: show(_versioned(snapshot, options, rankings[0]))
            )
            if answer.error is not None:
                raise answer.error
            return VersionedAnswer(manifest_digest(snapshot), answer)


def _versioned(snapshot: Snapshot, options: RetrievalOptions, hits: Sequence[Hit]) -> VersionedHits:
    return VersionedHits(snapshot.version, manifest_digest(snapshot), options.method or snapshot.default_method, hits)


@contextmanager
def _nameless(snapshot: Snapshot) -> Iterator[None]:
    """Remove the index's path on this machine from the messages of errors in the block."""
    try:
        yield
    except (BadInput, FamilyNotFound, NotFound) as error:
        raise type(error)(str(error).replace(str(snapshot.path), "the index")) from error


async def _within(seconds: float, work: Awaitable[_T]) -> _T:
    """Await work for at most ``seconds``; raises TooLate."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise TooLate("there was no answer before the deadline; ask for less, or try again later") from error
