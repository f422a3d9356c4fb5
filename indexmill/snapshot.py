"""A snapshot, opened read-only: retrieval from its tables and arrays, and answers.

Nothing is read before it is needed; tables are read once per shard and only in the columns that retrieval needs. Every
public call is thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput
from indexmill.forks import LOADING
from indexmill.hits import Hit
from indexmill.retrieve.base import (
    QueryBatch,
    Retriever,
    Vectors,
    check_count,
    check_names,
    check_question,
    check_vectors,
)
from indexmill.retrieve.filters import Filter, Where
from indexmill.retrieve.gather import Gatherer
from indexmill.retrieve.rerank import reranked
from indexmill.retrieve.rights import UNRESTRICTED, Access, Principals, principals_of
from indexmill.snapshot_artifacts import OpenLocal, SnapshotArtifacts, sound
from indexmill.store.listing import Artifact
from indexmill.store.manifest import Manifest, Ref
from indexmill.telemetry import retrieval, stage

if TYPE_CHECKING:
    from indexmill.answer.base import Answer
    from indexmill.models.embedder import Embedder
    from indexmill.models.llm import LLM
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.models.reranker import Reranker
    from indexmill.retrieve.masks import Masks, Selection
    from indexmill.retrieve.worker_pool import ReaderPool
    from indexmill.store.assemblies import Assemblies

_MAX_BATCH = 64
"""The most questions of concurrent threads in one batch."""

_PLAIN = (str, int, float, bool, type(None))


def _batch_key(options: Mapping[str, Any]) -> Hashable | None:
    """The key that retrievals must share to be batched; None if the options cannot be compared."""
    parameters = options["parameters"] or {}
    if not isinstance(parameters, Mapping) or not all(type(value) in _PLAIN for value in parameters.values()):
        return None
    values = [value for name, value in options.items() if name not in ("parameters", "rerank")]
    # With their types: 1, 1.0 and True are equal but mean different things.
    key = (*((type(value), value) for value in (*values, *parameters.values())), *parameters, id(options["rerank"]))
    try:
        hash(key)
    except TypeError:
        return None
    return key


class Snapshot(SnapshotArtifacts):
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
        """open_local, assemblies, local: as ``SnapshotArtifacts`` takes them."""
        super().__init__(path, open_local, manifest, assemblies, local)
        self.ref = ref
        """The ref that published it; None for an exported folder and for a candidate."""
        self.pool = pool
        self._gatherer: Gatherer[list[Hit]] = Gatherer(_MAX_BATCH)
        self._endpoint: OpenAiEmbeddings | None = None
        self._used_modes: set[tuple[object, ...]] = set()
        """The retrieval methods used so far: the first use of each imports modules."""

    @property
    def version(self) -> int | None:
        """The version number; None for an exported folder, which does not record it, and for a candidate."""
        return None if self.ref is None else self.ref.version

    # Retrieval

    @property
    def methods(self) -> tuple[str, ...]:
        """The retrieval methods that this snapshot holds the artifacts for, the best first."""
        with LOADING:
            from indexmill.retrieve.registry import available

        return available(self.manifest)

    @property
    def default_method(self) -> str:
        """The method used if none is named: the best that the snapshot holds."""
        return self.methods[0]

    def retrieve(
        self,
        question: str,
        method: str | None = None,
        k: int = 5,
        explain: bool = True,
        where: Where | None = None,
        parameters: Mapping[str, object] | None = None,
        rerank: Reranker | None = None,
        rerank_depth: int = 50,
        principals: Principals = None,
    ) -> list[Hit]:
        """Return at most k hits for a question, best first; none for an empty question.

        Concurrent calls from several threads with equal options share batches.

        method: by default the best that the snapshot holds. explain: False saves the time for explanations.
        where: a filter of documents by metadata, such as ``{"year": {">=": 2024}, "lang": ["en", "de"]}``:
        see ``indexmill.retrieve.filters``. Other documents are excluded and affect no score. parameters: replace the
        snapshot's settings of the method, such as ``{"title": 0.1}`` of dense; for a method that fused combines,
        ``{"dense.title": 0.1}``. rerank: a reranker of the passages among the first ``rerank_depth`` hits, such as
        ``indexmill.open_reranker`` returns: see ``indexmill.retrieve.rerank``.
        principals: groups to read as, if the snapshot has access control (``access``). Documents those groups may not
        read are excluded. Without groups, only documents for everyone are searched; ``indexmill.UNRESTRICTED`` reads
        all.
        Raises BadInput for a k below 1, a question that is not a text or has more than 16,384 characters, a filter that
        is malformed or names a field that no document has, or a parameter that the method does not take, FamilyNotFound
        for a method that the snapshot does not hold, ModelUnavailable if the encoder cannot be opened here,
        CorruptBlob if artifacts are damaged or inconsistent.
        """
        options: dict[str, Any] = {
            "method": method,
            "k": k,
            "explain": explain,
            "where": None if where is None else Filter.of(where),
            "parameters": parameters,
            "rerank": rerank,
            "rerank_depth": rerank_depth,
            "principals": principals_of(principals),
        }

        def find(questions: Sequence[str]) -> list[list[Hit]]:
            return self.retrieve_batch(questions, **options)

        check_question(question)
        key = _batch_key(options)
        with retrieval() as report:
            hits = find([question])[0] if key is None else self._gatherer.ask(key, question, find)
            if report.reports:
                report.result(self._about(method, k, 1), [len(hits)])
        return hits

    def retrieve_batch(
        self,
        questions: Sequence[str],
        method: str | None = None,
        k: int = 5,
        vectors: npt.ArrayLike | None = None,
        explain: bool = True,
        where: Where | None = None,
        parameters: Mapping[str, object] | None = None,
        names: Sequence[Sequence[str]] | None = None,
        rerank: Reranker | None = None,
        rerank_depth: int = 50,
        principals: Principals = None,
    ) -> list[list[Hit]]:
        """Return the hits of many questions at once: to the bit what each gets alone.

        vectors: ``(n_questions, d) float32``, from the snapshot's encoder elsewhere, so that none is needed here; names
        in a question that match no entity are then ignored, since they cannot be encoded. where, parameters, rerank,
        rerank_depth, principals: for all questions. names: per question, the entities that the caller's recogniser
        found (``LlmRecogniser.question_names``), in addition to names that occur in it. Raises as ``retrieve`` does.
        """
        mode = (method, explain, where is None, vectors is None, rerank is None)
        with nullcontext() if mode in self._used_modes else LOADING, retrieval() as report:
            arguments = (method, k, vectors, explain, where, parameters, names, rerank, rerank_depth, principals)
            rankings = self._retrieve(questions, *arguments)
            if report.reports:
                report.result(self._about(method, k, len(rankings)), list(map(len, rankings)))
        self._used_modes.add(mode)
        return rankings

    def _about(self, method: str | None, k: int, batch: int) -> dict[str, str | int]:
        """Attributes of a retrieval, for traces."""
        about: dict[str, str | int] = {"indexmill.method": method or self.default_method}
        about |= {"indexmill.retrieve.k": int(k), "indexmill.retrieve.questions": batch}
        if self.version is not None:
            about["indexmill.version"] = self.version
        return about

    def _retrieve(
        self,
        questions: Sequence[str],
        method: str | None,
        k: int,
        vectors: npt.ArrayLike | None,
        explain: bool,
        where: Where | None,
        parameters: Mapping[str, object] | None,
        names: Sequence[Sequence[str]] | None,
        rerank: Reranker | None,
        rerank_depth: int,
        principals: Principals,
    ) -> list[list[Hit]]:
        if isinstance(questions, str):
            raise BadInput("questions is one text; expected a sequence of questions")
        k, depth = check_count("k", k), check_count("rerank_depth", rerank_depth)
        all_texts = [check_question(question) for question in questions]
        retriever = self.retriever(method).with_parameters(parameters or {})
        chosen = [i for i, question in enumerate(all_texts) if question]
        given_vectors = None if vectors is None else check_vectors(vectors, len(all_texts), self.dimensions)
        all_names = () if names is None else check_names(names, len(all_texts))
        with stage("select"):
            allowed, readable = self._selected(where, principals)
        hits: list[list[Hit]] = [[] for _ in all_texts]
        if not chosen or not (allowed is None or allowed.any()):
            return hits
        texts = [all_texts[i] for i in chosen]
        if not retriever.uses_vectors:
            query_vectors: Vectors = np.empty((len(texts), 0), dtype=np.float32)
        elif given_vectors is None:
            with stage("encode"):
                query_vectors = self.encode(texts)
        else:
            query_vectors = given_vectors[chosen]
        encode = self.encode_texts if given_vectors is None else None
        names_of_texts = [all_names[i] for i in chosen] if all_names else ()
        batch = QueryBatch(texts, query_vectors, encode, allowed, explain, names_of_texts, readable=readable)
        search_k = k if rerank is None else max(k, depth)
        name = method or self.default_method
        with sound(self.path, f"method {name}"), stage("search"):
            if self.pool is None:
                results = retriever.search(batch, search_k)
            else:
                results = self.pool.search(retriever, name, parameters or {}, batch, search_k, self.version)
        if rerank is not None:
            with stage("rerank"):
                results = [ranking[:k] for ranking in reranked(rerank, texts, results, depth, explain)]
        for i, ranking in zip(chosen, results, strict=True):
            hits[i] = ranking
        return hits

    def answer(
        self,
        question: str,
        *,
        method: str | None = None,
        k: int = 5,
        llm: LLM | None = None,
        token_budget: int | None = None,
        where: Where | None = None,
        parameters: Mapping[str, object] | None = None,
        max_output_tokens: int = 1024,
        deadline_seconds: float = 60.0,
        answering: Mapping[str, object] | None = None,
        prompts: str | Path | None = None,
        rerank: Reranker | None = None,
        rerank_depth: int = 50,
        principals: Principals = None,
    ) -> Answer:
        """Return the answer of a language model that reads the k best hits for a question.

        llm: as ``indexmill.open_llm`` returns it, or any object of the protocol ``indexmill.models.llm.LLM``. With None
        the answer is a quotation, one sentence of the hits. token_budget: limits the context to the best whole hits
        that fit into so many tokens. where, method, parameters, rerank, rerank_depth, principals: as for ``retrieve``.
        max_output_tokens: of one answer, its reasoning included. deadline_seconds: no call is retried after it.
        answering: settings of the method's answer mode, which the method's page lists.
        prompts: a folder whose files replace the prompts, such as ``answer.md``.

        Without hits no model is called, and the answer says so. Raises as ``retrieve`` does, BadInput if no hit fits
        the budget, LlmError if the model does not answer, LlmForbidden if it never will with these settings.
        """
        answer = self.answer_batch(
            [question],
            method=method,
            k=k,
            llm=llm,
            token_budget=token_budget,
            where=where,
            parameters=parameters,
            max_output_tokens=max_output_tokens,
            deadline_seconds=deadline_seconds,
            answering=answering,
            prompts=prompts,
            rerank=rerank,
            rerank_depth=rerank_depth,
            principals=principals,
        )[0]
        if answer.error is not None:
            raise answer.error
        return answer

    def answer_batch(
        self,
        questions: Sequence[str],
        *,
        method: str | None = None,
        k: int = 5,
        llm: LLM | None = None,
        token_budget: int | None = None,
        where: Where | None = None,
        parameters: Mapping[str, object] | None = None,
        vectors: npt.ArrayLike | None = None,
        names: Sequence[Sequence[str]] | None = None,
        concurrency: int = 8,
        max_output_tokens: int = 1024,
        deadline_seconds: float = 60.0,
        answering: Mapping[str, object] | None = None,
        prompts: str | Path | None = None,
        rerank: Reranker | None = None,
        rerank_depth: int = 50,
        principals: Principals = None,
    ) -> list[Answer]:
        """Return the answers to many questions, each from the hits that it gets alone; ``concurrency`` calls at a time.

        vectors, names: as for ``retrieve_batch``; the rest as for ``answer``. If the model does not answer a question,
        its answer has an ``error`` and the others are kept; only LlmForbidden ends the batch.
        """
        with LOADING:
            from indexmill.answer.answers import answers

        return answers(
            self,
            questions,
            method=method,
            k=k,
            llm=llm,
            token_budget=token_budget,
            where=where,
            parameters=parameters,
            vectors=vectors,
            names=names,
            concurrency=concurrency,
            max_output_tokens=max_output_tokens,
            deadline_seconds=deadline_seconds,
            settings=answering,
            prompts=prompts,
            rerank=rerank,
            rerank_depth=rerank_depth,
            principals=principals,
        )

    def encode(self, questions: Sequence[str]) -> Vectors:
        """Encode questions with the snapshot's encoder: ``(n_questions, d) float32``, of unit length.

        If an endpoint made the index's vectors, the endpoint named by ``use_encoder`` or ``open`` encodes; its errors
        are in ``indexmill.models.llm_errors``. Raises ModelUnavailable if the encoder cannot be opened here.
        """
        return self._encoded(questions, lambda encoder, texts: encoder.encode_queries(texts))

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Encode texts as the index encodes texts, such as names: ``(n_texts, d) float32``, of unit length.

        This differs from ``encode`` if the encoder prefixes questions and other texts with different prompts.
        Raises ModelUnavailable if the encoder cannot be opened here.
        """
        return self._encoded(texts, lambda encoder, batch: encoder.encode(batch))

    def _encoded(self, texts: Sequence[str], encode: Callable[[Embedder, list[str]], Vectors]) -> Vectors:
        from indexmill.models.encoder_checks import encoder_errors

        checked = [check_question(text) for text in texts]
        if not checked:
            return np.empty((0, self.dimensions or 0), dtype=np.float32)
        encoder = self.encoder()
        (carried,) = self.once("carried encoder", lambda: (bool(self.manifest.under("encoder")),))
        with encoder_errors(self.path) if carried else nullcontext():
            vectors = encode(encoder, checked)
        return check_vectors(vectors, len(checked), self.dimensions)

    def encoder(self) -> Embedder:
        """The encoder of questions; raises ModelUnavailable if it cannot be opened here."""
        from indexmill.retrieve.encoder import open_encoder

        return self.once("encoder", lambda: open_encoder(self, self._endpoint))

    def use_encoder(self, endpoint: OpenAiEmbeddings | None) -> None:
        """Encode questions at this endpoint, opened by ``indexmill.open_encoder``, if an endpoint made the vectors.

        A snapshot that carries its encoder ignores it. None: no endpoint is called. Call it before the first question.
        """
        self._endpoint = endpoint

    @property
    def asks_endpoint(self) -> bool:
        """True if an endpoint encodes questions; ``use_encoder`` names it."""
        encoder = self.manifest.models.get("encoder")
        return isinstance(encoder, dict) and encoder.get("backend") == "openai"

    def retriever(self, method: str | None = None) -> Retriever:
        """The retriever of a method; raises FamilyNotFound if the snapshot lacks its artifacts."""
        with LOADING:
            from indexmill.retrieve.registry import retriever_of

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
        """The principals that restrict the documents; None if all documents are readable."""
        readers = principals_of(principals)
        return None if readers is UNRESTRICTED or self.access is None else readers

    def _masks(self) -> Masks:
        from indexmill.retrieve.masks import Masks

        return self.once("masks", lambda: Masks(self, self.access))

    @property
    def access(self) -> Access | None:
        """The snapshot's access control: the field that says who may read a document; None without access control.

        Raises ConfigurationError if this version of indexmill cannot enforce it.
        """
        (access,) = self.once("access", lambda: (Access.of(self.manifest, self.path),))
        return access

    # Life

    def close(self) -> None:
        """Release everything that was read; returned arrays stay valid. Later calls raise StoreError."""
        self._release()
        if self.pool is not None:
            self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Snapshot version {self.version} of {str(self.path)!r}>"
