"""Retrieve from the tables and arrays of a snapshot that is opened read-only, and answer questions.

Nothing is read before it is needed; tables are read once per shard and only in the columns that retrieval needs. Every
public call is thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput
from indexmill.forks import LOADING
from indexmill.hits import Hit
from indexmill.retrieve.artifacts import Artifacts, CacheKey, OpenLocal, sound
from indexmill.retrieve.filters import Filter, Where
from indexmill.retrieve.method_registry import available, retriever_of
from indexmill.retrieve.micro_batcher import MicroBatcher
from indexmill.retrieve.rerank import reranked
from indexmill.retrieve.retrieval_method import (
    QueryBatch,
    Retriever,
    Vectors,
    check_names,
    check_question,
    check_vectors,
)
from indexmill.retrieve.retrieval_options import RetrievalKeywords, RetrievalOptions
from indexmill.retrieve.rights import UNRESTRICTED, Access, Principals, principals_of
from indexmill.store.artifact_listing import Artifact
from indexmill.store.manifest import Manifest, Ref
from indexmill.telemetry import RetrievalReport, retrieval, stage

if TYPE_CHECKING:
    from indexmill.answer.answer_types import Answer, AnswerKeywords
    from indexmill.models.embedder import Embedder
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.retrieve.masks import Masks, Selection
    from indexmill.retrieve.worker_pool import ReaderPool
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.pack_schema import PackSchema

ENCODER: CacheKey[Embedder] = CacheKey("encoder")

_MASKS: CacheKey[Masks] = CacheKey("masks")

_MAX_BATCH = 64
"""The maximum number of questions from concurrent threads in one batch."""


class Snapshot(Artifacts):
    """One version of an index. Open it with ``indexmill.open``; a context manager."""

    def __init__(
        self,
        path: Path | str,
        open_local: OpenLocal,
        manifest: Manifest,
        ref: Ref | None,
        pool: ReaderPool | None = None,
        assemblies: Assemblies | None = None,
        local: Callable[[Artifact], Path | None] = lambda _: None,
    ) -> None:
        """Set up a snapshot. For open_local, assemblies and local, see ``Artifacts``."""
        version = None if ref is None else ref.version
        super().__init__(path, open_local, manifest, version, _pack_schema, assemblies, local)
        self.ref = ref
        """The ref that published the snapshot; None for an exported folder and for a candidate."""
        self.pool = pool
        self._batcher: MicroBatcher[list[Hit]] = MicroBatcher(_MAX_BATCH)
        self._endpoint: OpenAiEmbeddings | None = None
        self._used_kinds: set[tuple[object, ...]] = set()

    # Retrieval

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The retrieval methods whose artifacts this snapshot contains, best first."""
        return available(self.manifest)

    @property
    def default_method(self) -> str:
        """The method used if none is named: the best available one."""
        return self.methods[0]

    def retrieve(
        self, question: str, *, options: RetrievalOptions | None = None, **changes: Unpack[RetrievalKeywords]
    ) -> list[Hit]:
        """Return at most k hits for a question, best first; none for an empty question.

        Concurrent calls from several threads with equal options share batches.

        options: see ``RetrievalOptions``. changes: options that replace those of ``options``, such as ``k=3``.
        Raises BadInput for a k below 1, a question that is not a string or has more than 16,384 characters, a filter
        that is malformed or names a field that no document has, vectors of the wrong shape, an unknown option, or a
        parameter that the method does not take, FamilyNotFound for a method whose artifacts the snapshot lacks,
        ModelUnavailable if there are no ``vectors`` and the encoder cannot be opened here, CorruptBlob if artifacts are
        damaged or inconsistent.
        """
        options = RetrievalOptions.of(options, changes)
        with retrieval() as report:
            hits = self._batcher.ask(options, check_question(question), partial(self._search, options))
            if report is not None:
                self._report(report, options, [hits])
        return hits

    def retrieve_batch(
        self,
        questions: Sequence[str],
        *,
        options: RetrievalOptions | None = None,
        **changes: Unpack[RetrievalKeywords],
    ) -> list[list[Hit]]:
        """Return the hits for many questions, bit-identical to separate calls. Raises as ``retrieve`` does."""
        if isinstance(questions, str):
            raise BadInput("questions is one string; expected a sequence of questions")
        options = RetrievalOptions.of(options, changes)
        with retrieval() as report:
            rankings = self._search(options, [check_question(question) for question in questions])
            if report is not None:
                self._report(report, options, rankings)
        return rankings

    def _report(self, report: RetrievalReport, options: RetrievalOptions, rankings: Sequence[Sequence[Hit]]) -> None:
        about: dict[str, str | int] = {
            "indexmill.method": options.method or self.default_method,
            "indexmill.retrieve.k": options.k,
            "indexmill.retrieve.questions": len(rankings),
        }
        if self.version is not None:
            about["indexmill.version"] = self.version
        report.result(about, list(map(len, rankings)))

    def _search(self, options: RetrievalOptions, questions: Sequence[str]) -> list[list[Hit]]:
        """Return the hits for questions. A fork waits while the first retrieval of a kind imports modules."""
        kind = (
            options.method,
            options.explain,
            options.where is None,
            options.vectors is None,
            options.encode_names,
            options.rerank is None,
        )
        if kind in self._used_kinds:
            return self._rankings(options, questions)
        with LOADING:
            rankings = self._rankings(options, questions)
        self._used_kinds.add(kind)
        return rankings

    def _rankings(self, options: RetrievalOptions, questions: Sequence[str]) -> list[list[Hit]]:
        method = options.method or self.default_method
        retriever = retriever_of(self, method).with_parameters(options.parameters)
        chosen = [i for i, question in enumerate(questions) if question]
        vectors = None if options.vectors is None else check_vectors(options.vectors, len(questions), self.dimensions)
        names = () if options.names is None else check_names(options.names, len(questions))
        with stage("select"):
            allowed, readable = self._selected(options.where, options.principals)
        hits: list[list[Hit]] = [[] for _ in questions]
        if not chosen or not (allowed is None or allowed.any()):
            return hits
        texts = [questions[i] for i in chosen]
        if not retriever.uses_vectors:
            query_vectors: Vectors = np.empty((len(texts), 0), dtype=np.float32)
        elif vectors is None:
            with stage("encode"):
                query_vectors = self._encoded(texts, query=True)
        else:
            query_vectors = vectors[chosen]
        encode = self.encode_texts if vectors is None or options.encode_names else None
        names_of_texts = [names[i] for i in chosen] if names else ()
        batch = QueryBatch(texts, query_vectors, encode, allowed, options.explain, names_of_texts, readable=readable)
        search_k = options.k if options.rerank is None else max(options.k, options.rerank_depth)
        with sound(self.path, f"method {method}"), stage("search"):
            if self.pool is None:
                results = retriever.search(batch, search_k)
            else:
                results = self.pool.search(retriever, method, options.parameters, batch, search_k)
        if options.rerank is not None:
            with stage("rerank"):
                reordered = reranked(options.rerank, texts, results, options.rerank_depth, options.explain)
                results = [ranking[: options.k] for ranking in reordered]
        for i, ranking in zip(chosen, results, strict=True):
            hits[i] = ranking
        return hits

    def answer(
        self, question: str, *, options: RetrievalOptions | None = None, **changes: Unpack[AnswerKeywords]
    ) -> Answer:
        """Return the answer of a language model that reads the k best hits for a question.

        options, changes: see ``RetrievalOptions`` and ``indexmill.answer.answer_types.AnswerOptions``; ``explain`` is
        ignored.
        Without hits no model is called, and the answer says so. Raises as ``retrieve`` does, BadInput if no hit fits
        the budget, LlmError if the model does not answer, LlmForbidden if it never will with these settings.
        """
        answer = self.answer_batch([question], options=options, **changes)[0]
        if answer.error is not None:
            raise answer.error
        return answer

    def answer_batch(
        self, questions: Sequence[str], *, options: RetrievalOptions | None = None, **changes: Unpack[AnswerKeywords]
    ) -> list[Answer]:
        """Return the answers to many questions, each from its own hits, with ``concurrency`` calls at a time.

        Takes the arguments of ``answer``. If the model does not answer a question, its answer has an ``error`` and the
        other answers are kept; only LlmForbidden ends the batch.
        """
        with LOADING:
            from indexmill.answer.answer_types import AnswerOptions
            from indexmill.answer.answers import answers

        return answers(self, questions, AnswerOptions.of(options, changes))

    def legibility(self, question: str, *, options: RetrievalOptions | None = None) -> float:
        """Return how well the encoder reads the language of a question, 0 to 1: see ``indexmill.retrieve.legibility``.

        options: restrict the passages from which the language is determined, as in ``retrieve``.
        """
        from indexmill.retrieve.legibility import legibility_of

        options = options or RetrievalOptions()
        allowed, _ = self._selected(options.where, options.principals)
        batch = QueryBatch([check_question(question)], np.empty((1, 0), dtype=np.float32), None, allowed, explain=False)
        with sound(self.path, "words"):
            return legibility_of(self).of_questions(batch)[0]

    def encode(self, questions: Sequence[str]) -> Vectors:
        """Encode questions with the snapshot's encoder: ``(n_questions, d) float32``, of unit length.

        If the index's vectors come from an endpoint, the endpoint named by ``use_encoder`` or ``open`` encodes the
        questions; its errors are in ``indexmill.models.llm_errors``. Raises ModelUnavailable if the encoder cannot be
        opened here.
        """
        return self._encoded([check_question(question) for question in questions], query=True)

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Encode texts that are not questions, such as names, as the index does: ``(n_texts, d) float32`` unit vectors.

        The vectors differ from those of ``encode`` if the encoder prefixes questions and texts with different prompts.
        Raises ModelUnavailable if the encoder cannot be opened here.
        """
        return self._encoded([check_question(text) for text in texts], query=False)

    def _encoded(self, texts: Sequence[str], query: bool) -> Vectors:
        from indexmill.models.encoder_checks import encoder_errors

        if not texts:
            return np.empty((0, self.dimensions or 0), dtype=np.float32)
        encoder = self.encoder()
        with encoder_errors(self.path) if self._carries_encoder else nullcontext():
            vectors = encoder.encode_queries(texts) if query else encoder.encode(texts)
        return check_vectors(vectors, len(texts), self.dimensions)

    @cached_property
    def _carries_encoder(self) -> bool:
        return bool(self.manifest.under("encoder"))

    def encoder(self) -> Embedder:
        """Open the encoder of questions; raises ModelUnavailable if it cannot be opened here."""
        from indexmill.retrieve.question_encoder import open_encoder

        return self.once(ENCODER, lambda: open_encoder(self, self._endpoint))

    def use_encoder(self, endpoint: OpenAiEmbeddings | None) -> None:
        """Encode questions at this endpoint, opened by ``indexmill.open_encoder``, if an endpoint made the vectors.

        Call it before the first question. A snapshot with its own encoder ignores it; with None, no endpoint is called.
        """
        self._endpoint = endpoint

    @property
    def asks_endpoint(self) -> bool:
        """True if an endpoint encodes questions; ``use_encoder`` names it."""
        encoder = self.manifest.models.get("encoder")
        return isinstance(encoder, dict) and encoder.get("backend") == "openai"

    def retriever(self, method: str | None = None) -> Retriever:
        """Open the retriever of a method; raises FamilyNotFound if the snapshot lacks its artifacts."""
        return retriever_of(self, method or self.default_method)

    def _selected(self, where: Where | None, principals: Principals) -> Selection:
        """Select the passages of documents that match a filter, and those that the principals may read."""
        from indexmill.retrieve.masks import Selection

        readers = self._readers(principals)
        if where is None and readers is None:
            return Selection(None, None)
        chosen = None if where is None else Filter.of(where)
        with sound(self.path, "metadata of documents"):
            return self._masks().select(chosen, readers)

    def readable_documents(self, principals: Principals) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the documents that the principals may read, in table order; None if they may read all."""
        readers = self._readers(principals)
        with sound(self.path, "metadata of documents"):
            return None if readers is None else self._masks().documents(readers)

    def _readers(self, principals: Principals) -> frozenset[str] | None:
        """Return the principals that restrict the documents; None if all documents are readable."""
        readers = principals_of(principals)
        return None if readers is UNRESTRICTED or self.access is None else readers

    def _masks(self) -> Masks:
        from indexmill.retrieve.masks import Masks

        return self.once(_MASKS, lambda: Masks(self, self.access))

    @cached_property
    def access(self) -> Access | None:
        """The snapshot's access control: the field that says who may read a document; None without access control.

        Raises ConfigurationError if this version of indexmill cannot enforce it.
        """
        return Access.of(self.manifest, self.path)

    # Lifecycle

    def close(self) -> None:
        """Release everything that was read; returned arrays stay valid. Later calls raise StoreError."""
        self._release()
        if self.pool is not None:
            self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Snapshot version {self.version} of {str(self.path)!r}>"


def _pack_schema(name: str) -> PackSchema | None:
    from indexmill.retrieve.schemas import PACKS
    from indexmill.store.pack_schema import schema_of

    return schema_of(name, PACKS)
