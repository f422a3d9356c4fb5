"""A snapshot, opened read-only: its tables and arrays, retrieval from them, and answers.

Nothing is read before it is needed. A blob's bytes are checked against their digest when it is first used; tables are
read once per shard and only in the columns that retrieval needs; arrays are mapped. Every public call is thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput, CorruptBlob, IndexmillError, NotFound, SnapshotNotFound, StoreError
from indexmill.forks import LOADING, Lock
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
from indexmill.retrieve.consecutive import Consecutive
from indexmill.retrieve.filters import Filter, Where
from indexmill.retrieve.gather import Gatherer
from indexmill.retrieve.rerank import reranked
from indexmill.retrieve.rights import UNRESTRICTED, Access, Principals, principals_of
from indexmill.store.listing import Artifact
from indexmill.store.manifest import Manifest, Ref
from indexmill.telemetry import retrieval, stage

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.answer.base import Answer
    from indexmill.models.embedder import Embedder
    from indexmill.models.llm import LLM
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.models.reranker import Reranker
    from indexmill.retrieve.masks import Masks, Selection
    from indexmill.retrieve.worker_pool import ReaderPool
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.checked_packs import CheckedPacks
    from indexmill.store.pack_checks import Sizes
    from indexmill.store.packs import Pack
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust

__all__ = ["Snapshot", "open_candidate", "open_manifest", "open_snapshot", "sound"]

T = TypeVar("T")

_OpenLocal = Callable[[Artifact], Path]
"""Returns the verified local file of an artifact; raises CorruptBlob."""


@contextmanager
def sound(path: Path | str, what: str) -> Iterator[None]:
    """Turn the errors that inconsistent artifacts cause in reading code into CorruptBlob.

    A MemoryError passes: declared sizes are bounded beforehand, so it means that this machine lacks memory.
    """
    try:
        yield
    except IndexmillError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, RecursionError) as error:
        raise CorruptBlob(
            f"{path}: the snapshot's {what} cannot be used: its artifacts do not fit together "
            f"({type(error).__name__}: {error}); check them with `indexmill verify`, or open another copy or version"
        ) from error


_GATHERED = 64
"""The most questions of threads that share a batch."""

_PLAIN = (str, int, float, bool, type(None))


def _kind(options: Mapping[str, Any]) -> Hashable | None:
    """What tells apart the retrievals that cannot share a batch; None if that cannot be told."""
    parameters = options["parameters"] or {}
    if not isinstance(parameters, Mapping) or not all(type(value) in _PLAIN for value in parameters.values()):
        return None
    values = [value for name, value in options.items() if name not in ("parameters", "rerank")]
    # With their types: 1, 1.0 and True are equal, and mean different things.
    kind = (*((type(value), value) for value in (*values, *parameters.values())), *parameters, id(options["rerank"]))
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


class Snapshot:
    """One version of an index. Open it with ``indexmill.open``; a context manager."""

    def __init__(
        self,
        path: Path | str,
        open_local: _OpenLocal,
        manifest: Manifest,
        ref: Ref | None,
        pool: ReaderPool | None = None,
        assemblies: Assemblies | None = None,
        local: Callable[[Artifact], Path | None] = lambda _: None,
    ) -> None:
        """assemblies: keep what is put together of shards; None: it is in memory alone.

        local: the path of an artifact on the local disk, unchecked; None if it has to be fetched.
        """
        self.path = path
        """The folder of the store or export, or the URL of a store."""
        self.manifest = manifest
        self.ref = ref
        """The ref that published it; None for an exported folder and for a candidate."""
        self._open_local = open_local
        self._assemblies, self._local = assemblies, local
        self.pool = pool
        self._gatherer: Gatherer[list[Hit]] = Gatherer(_GATHERED)
        self._lock = Lock()
        self._cache: dict[str | tuple[str, ...], Any] = {}
        self._closed = False
        self._endpoint: OpenAiEmbeddings | None = None
        self._used_ways: set[tuple[object, ...]] = set()
        """The retrieval methods used so far: the first use of each imports modules."""

    @property
    def version(self) -> int | None:
        """The version number; None for an exported folder, which does not record it, and for a candidate."""
        return None if self.ref is None else self.ref.version

    @property
    def has_cache(self) -> bool:
        """True if a cache on the disk keeps what readers put together of shards."""
        return self._assemblies is not None

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
        """At most k hits for a question, best first. An empty question has none.

        Questions that several threads ask at the same time, with equal options, share batches.

        method: the best that the snapshot holds by default. explain: False saves the time of making explanations.
        where: a filter of documents by metadata, such as ``{"year": {">=": 2024}, "lang": ["en", "de"]}``:
        see ``indexmill.retrieve.filters``. Other documents take no part; what they write moves no score. parameters:
        settings of the method in place of the snapshot's, such as ``{"title": 0.1}`` of dense; of a method that fused
        combines, ``{"dense.title": 0.1}``. rerank: a reranker of the passages among the first
        ``rerank_depth`` hits, such as ``indexmill.open_reranker`` returns: see ``indexmill.retrieve.rerank``.
        principals: the groups as which to read, where the documents say who may read them (``access``): what others
        alone may read takes no part. Without them only what is for everyone is found; ``indexmill.UNRESTRICTED`` reads
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
        kind = _kind(options)
        with retrieval() as told:
            hits = find([question])[0] if kind is None else self._gatherer.ask(kind, question, find)
            if told.reports:
                told.found(self._about(method, k, 1), [len(hits)])
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
        """The hits of many questions at once: to the bit what each gets alone.

        vectors: ``(n_questions, d) float32``, made by the snapshot's encoder elsewhere, so that none is needed here;
        a name in a question that no entity has then counts for nothing, since its own vector is not at hand. where,
        parameters, rerank, rerank_depth, principals: of all questions alike. names: of each question, the entities that
        a recogniser of the caller's finds in it (``LlmRecogniser.question_names``), beside those whose names stand in
        it. Raises as ``retrieve`` does.
        """
        way = (method, explain, where is None, vectors is None, rerank is None)
        with nullcontext() if way in self._used_ways else LOADING, retrieval() as told:
            how = (method, k, vectors, explain, where, parameters, names, rerank, rerank_depth, principals)
            found = self._retrieve(questions, *how)
            if told.reports:
                told.found(self._about(method, k, len(found)), list(map(len, found)))
        self._used_ways.add(way)
        return found

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
        asked = [check_question(question) for question in questions]
        retriever = self.retriever(method).with_parameters(parameters or {})
        chosen = [i for i, question in enumerate(asked) if question]
        given = None if vectors is None else check_vectors(vectors, len(asked), self.dimensions)
        named = () if names is None else check_names(names, len(asked))
        with stage("select"):
            allowed, readable = self._selected(where, principals)
        hits: list[list[Hit]] = [[] for _ in asked]
        if not chosen or not (allowed is None or allowed.any()):
            return hits
        texts = [asked[i] for i in chosen]
        if not retriever.uses_vectors:
            used: Vectors = np.empty((len(texts), 0), dtype=np.float32)
        elif given is None:
            with stage("encode"):
                used = self.encode(texts)
        else:
            used = given[chosen]
        encode = self.encode_texts if given is None else None
        its_names = [named[i] for i in chosen] if named else ()
        asking = QueryBatch(texts, used, encode, allowed, explain, its_names, readable=readable)
        wanted = k if rerank is None else max(k, depth)
        name = method or self.default_method
        with sound(self.path, f"method {name}"), stage("search"):
            if self.pool is None:
                answers = retriever.search(asking, wanted)
            else:
                answers = self.pool.search(retriever, name, parameters or {}, asking, wanted, self.version)
        if rerank is not None:
            with stage("rerank"):
                answers = [found[:k] for found in reranked(rerank, texts, answers, depth, explain)]
        for i, found in zip(chosen, answers, strict=True):
            hits[i] = found
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
        """The answer of a language model that reads the k best hits for a question.

        llm: what ``indexmill.open_llm`` returns, or any object of the protocol ``indexmill.models.llm.LLM``. With None
        the answer is a quotation, one sentence of the hits. token_budget: limits the context to the best whole hits
        that fit into so many tokens. where, method, parameters, rerank, rerank_depth, principals: as ``retrieve`` takes
        them. max_output_tokens: of one answer, its reasoning included. deadline_seconds: after which no call is tried
        again. answering: settings of the method's way of answering, which the method's page names.
        prompts: a folder whose files replace the prompts, such as ``answer.md``.

        Without hits no model is called, and the answer says so. Raises as ``retrieve`` does, BadInput for a budget into
        which no hit fits, LlmError if the model does not answer, LlmForbidden if it never will with these settings.
        """
        found = self.answer_batch(
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
        if found.error is not None:
            raise found.error
        return found

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
        """The answers to many questions, each from the hits that it gets alone; ``concurrency`` calls at a time.

        vectors, names: as ``retrieve_batch`` takes them; the rest as ``answer`` does. A question that the model does
        not answer has an answer with an ``error``, so that the others are not lost; only LlmForbidden ends the batch.
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
        """The questions' vectors ``(n_questions, d) float32``, of unit length, from the encoder the snapshot carries.

        If its vectors came from an endpoint, that is asked, where ``use_encoder`` or ``open`` named it; the errors are
        those of ``indexmill.models.llm_errors``. Raises ModelUnavailable if the encoder cannot be opened here.
        """
        return self._encoded(questions, lambda encoder, texts: encoder.encode_queries(texts))

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts as the index holds texts, such as names: ``(n_texts, d) float32``, of unit length.

        They differ from ``encode`` where the encoder reads questions and other texts after different prompts.
        Raises ModelUnavailable if the encoder cannot be opened here.
        """
        return self._encoded(texts, lambda encoder, own: encoder.encode(own))

    def _encoded(self, given: Sequence[str], encode: Callable[[Embedder, list[str]], Vectors]) -> Vectors:
        from indexmill.models.encoder_checks import encoder_errors

        texts = [check_question(text) for text in given]
        if not texts:
            return np.empty((0, self.dimensions or 0), dtype=np.float32)
        encoder = self.encoder()
        (carried,) = self.once("carried encoder", lambda: (bool(self.manifest.under("encoder")),))
        with encoder_errors(self.path) if carried else nullcontext():
            vectors = encode(encoder, texts)
        return check_vectors(vectors, len(texts), self.dimensions)

    def encoder(self) -> Embedder:
        """The encoder of questions; raises ModelUnavailable if it cannot be opened here."""
        from indexmill.retrieve.encoder import open_encoder

        return self.once("encoder", lambda: open_encoder(self, self._endpoint))

    def use_encoder(self, endpoint: OpenAiEmbeddings | None) -> None:
        """Have questions encoded there, if the vectors came from an endpoint: what ``indexmill.open_encoder`` returns.

        A snapshot that carries its encoder uses that. Without an endpoint, nothing is asked. Call it before the first
        question.
        """
        self._endpoint = endpoint

    @property
    def asks_endpoint(self) -> bool:
        """True if questions are encoded by an endpoint, which ``use_encoder`` names."""
        made_by = self.manifest.models.get("encoder")
        return isinstance(made_by, dict) and made_by.get("backend") == "openai"

    def retriever(self, method: str | None = None) -> Retriever:
        """The retriever of a method; raises FamilyNotFound if the snapshot lacks its artifacts."""
        with LOADING:
            from indexmill.retrieve.registry import retriever_of

        return retriever_of(self, method or self.default_method)

    def _selected(self, where: Where | None, principals: Principals) -> Selection:
        """The passages of the documents that match a filter, and those that some principals may read."""
        from indexmill.retrieve.masks import Selection

        readers = self._readers(principals)
        if where is None and readers is None:
            return Selection(None, None)
        chosen = None if where is None else Filter.of(where)
        with sound(self.path, "metadata of documents"):
            return self._masks().select(chosen, readers)

    def readable_documents(self, principals: Principals) -> npt.NDArray[np.bool_] | None:
        """A mask of the documents that some principals may read, in the order of the table; None for all of them."""
        readers = self._readers(principals)
        with sound(self.path, "metadata of documents"):
            return None if readers is None else self._masks().documents(readers)

    def _readers(self, principals: Principals) -> frozenset[str] | None:
        """The principals whose documents take part alone; None where all do."""
        readers = principals_of(principals)
        return None if readers is UNRESTRICTED or self.access is None else readers

    def _masks(self) -> Masks:
        from indexmill.retrieve.masks import Masks

        return self.once("masks", lambda: Masks(self, self.access))

    @property
    def access(self) -> Access | None:
        """What the snapshot says about rights: the field that says who may read a document; None if everyone may.

        Raises ConfigurationError for a snapshot that says it in a way that is not known here.
        """
        (access,) = self.once("access", lambda: (Access.of(self.manifest, self.path),))
        return access

    # Artifacts

    def artifact(self, name: str) -> Artifact:
        """The manifest's entry for an artifact; raises NotFound."""
        self._check_open()
        found = self.manifest.artifact(name)
        if found is None:
            raise NotFound(f"{self.path}: the snapshot has no artifact {name!r}; `indexmill show` lists them")
        return found

    def shards(self, name: str) -> tuple[Artifact, ...]:
        """The artifacts ``name/<shard>`` in the order of their labels, else the one called ``name``; may be empty."""
        self._check_open()
        whole = self.manifest.artifact(name)
        return self.manifest.under(name) if whole is None else (whole,)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, its shards concatenated; all columns unless some are named. Raises NotFound, CorruptBlob."""
        with LOADING:
            import pyarrow as pa

            from indexmill.store.tables import read_table

        shards = [shard for shard in self.shards(name) if shard.kind == "table"]
        if not shards:
            known = sorted({one.name.split("/")[0] for one in self.manifest.artifacts if one.kind == "table"})
            raise NotFound(f"{self.path}: the snapshot has no table {name!r}; it has {', '.join(known) or 'none'}")
        tables = [read_table(self.file(shard.name), shard, columns) for shard in shards]
        return pa.concat_tables(tables, promote_options="default")  # a shard may lack the column of locations

    def arrays(self, name: str) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays of one artifact by name, mapped read-only. Raises NotFound, CorruptBlob."""
        artifact = self.artifact(name)
        if artifact.kind != "arrays":
            raise NotFound(f"{self.path}: the artifact {name!r} is of the kind {artifact.kind!r}; expected arrays")
        return self.once(("arrays", name), lambda: self._open_arrays(artifact))

    def _open_arrays(self, artifact: Artifact) -> Pack:
        """The arrays of an artifact; those of vectors as an earlier process has checked them, if one has."""
        if self._assemblies is None or not artifact.name.startswith("vectors/"):
            return self._check_arrays(artifact)
        known = self.once("checked packs", self._checked_packs)
        return known.open(artifact, self._local(artifact)) or self._check_arrays(artifact)

    def _checked_packs(self) -> CheckedPacks:
        """The packs of vectors that a reader with the same cache has checked; none while some have to be fetched."""
        from indexmill.store.checked_packs import CheckedPacks, PackFile, describe_packs

        name, kept = "checked_vectors.2", self._assemblies
        artifacts = self.manifest.under("vectors")
        local = [(one, path) for one in artifacts if (path := self._local(one)) is not None]

        def describe() -> Mapping[str, npt.NDArray[Any]]:
            packs = [PackFile(one, path, self._key_of_check(one)) for one, path in local]
            return describe_packs(packs, self._check_arrays, () if kept is None else kept.earlier(name))

        if len(local) < len(artifacts):
            return CheckedPacks((), describe_packs((), self._check_arrays))
        return CheckedPacks(artifacts, self.assembled(name, describe))

    def _key_of_check(self, artifact: Artifact) -> bytes:
        """A SHA-256 of all that the check of a pack depends on."""
        from indexmill.retrieve.schemas import PACKS
        from indexmill.store.canonical import canonical_json, digest_of
        from indexmill.store.pack_checks import lengths_for
        from indexmill.store.pack_schema import schema_of

        lengths = lengths_for(schema_of(artifact.name, PACKS), self._sizes().of(artifact.name))
        return bytes.fromhex(digest_of(canonical_json([artifact.name, artifact.digest, artifact.schema_, lengths])))

    def _sizes(self) -> Sizes:
        from indexmill.store.pack_checks import Sizes

        return self.once("sizes", lambda: Sizes(self.manifest))

    def _check_arrays(self, artifact: Artifact) -> Pack:
        """The arrays of an artifact; raises CorruptBlob if they do not match its schema and the manifest."""
        from indexmill.retrieve.schemas import PACKS
        from indexmill.store.pack_checks import check_arrays
        from indexmill.store.pack_schema import schema_of
        from indexmill.store.packs import open_pack

        path = self.file(artifact.name)
        pack = open_pack(path)
        if artifact.schema_ is not None and pack.schema != artifact.schema_:
            raise CorruptBlob(f"{path}: {artifact.name!r} does not have the arrays that the manifest declares")
        if problem := check_arrays(schema_of(artifact.name, PACKS), pack, self._sizes().of(artifact.name)):
            raise CorruptBlob(f"{path}: the arrays {artifact.name!r} cannot be used: {problem}")
        return pack

    def file(self, name: str) -> Path:
        """The verified local file of an artifact. Raises NotFound, CorruptBlob."""
        return self._open_local(self.artifact(name))

    def vectors(self, name: str, array: str) -> Sequence[Vectors]:
        """The same array of every artifact ``name/<label>``: ``(n, d)`` maps, rows numbered consecutively.

        An artifact is opened on first access to its rows.
        """
        artifacts = self.shards(name)
        lengths = []
        for artifact in artifacts:
            declared = artifact.schema_.get(array) if isinstance(artifact.schema_, dict) else None
            shape = declared.get("shape") if isinstance(declared, dict) else None
            if not isinstance(shape, list) or not shape or not isinstance(shape[0], int) or shape[0] < 0:
                raise CorruptBlob(f"{self.path}: the artifact {artifact.name!r} has no array {array!r}")
            lengths.append(shape[0])
        return Consecutive(lengths, lambda number: self.arrays(artifacts[number].name)[array])

    @property
    def dimensions(self) -> int | None:
        """The length of a passage's vector; None if the snapshot holds no vectors."""
        shards = self.once("dimensions", lambda: self.vectors("vectors", "passages"))
        return int(shards[0].shape[1]) if shards else None

    # Life

    def close(self) -> None:
        """Release everything that was read; returned arrays stay valid. Later calls raise StoreError."""
        with self._lock:
            self._closed = True
            self._cache.clear()
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

    def once(self, key: str | tuple[str, ...], make: Callable[[], T]) -> T:
        """The cached result of ``make`` for this key; ``make`` is called once."""
        value = self._cache.get(key)
        if value is None:
            with self._lock:
                self._check_open()
                value = self._cache.get(key)
                if value is None:
                    with LOADING, sound(self.path, key if isinstance(key, str) else " ".join(key)):
                        value = self._cache[key] = make()
        return cast(T, value)

    def assembled(
        self, name: str, make: Callable[[], Mapping[str, npt.NDArray[Any]]]
    ) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays that ``make`` puts together of shards, cached by name: see ``Artifacts``."""
        kept = self._assemblies
        return self.once(("assembled", name), make if kept is None else lambda: kept.arrays(name, make))

    def unpacked(self, name: str, columns: Sequence[str]) -> Sequence[pa.RecordBatch] | None:
        """Some columns of a table, a batch for each shard, mapped from a cache if one keeps them: see ``Artifacts``."""
        kept = self._assemblies
        if kept is None:
            return None
        (found,) = self.once(("unpacked", name, *columns), lambda: (self._unpack(kept, name, columns),))
        return found

    def _unpack(self, kept: Assemblies, name: str, columns: Sequence[str]) -> Sequence[pa.RecordBatch] | None:
        """The batches of ``unpacked``; None if the cache has none and shards would have to be fetched."""
        from indexmill.store.canonical import canonical_json, digest_of
        from indexmill.store.tables import read_batch

        shards = self.shards(name)

        def unpack(number: int) -> pa.RecordBatch:
            return read_batch(self.file(shards[number].name), shards[number], columns)

        def is_local(number: int) -> bool:
            return self._local(shards[number]) is not None

        keys = [digest_of(canonical_json([shard.digest, shard.schema_])) for shard in shards]
        label = ".".join([name.replace("/", "."), *columns, "2"])
        return kept.batches(label, sum(shard.bytes for shard in shards), keys, unpack, is_local)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path}: the snapshot is closed; open it again with indexmill.open")


def open_snapshot(
    path: str | os.PathLike[str],
    version: int | None = None,
    alias: str | None = None,
    processes: int = 1,
    manifest: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    trust: Trust | str | os.PathLike[str] | None = None,
    encoder: OpenAiEmbeddings | None = None,
) -> Snapshot:
    """Open a snapshot: see ``indexmill.open``."""
    snapshot = _opened(path, version, alias, processes, manifest, cache, trust)
    snapshot.use_encoder(encoder)
    return snapshot


def _opened(
    path: str | os.PathLike[str],
    version: int | None,
    alias: str | None,
    processes: int,
    manifest: str | None,
    cache: str | os.PathLike[str] | None,
    trust: Trust | str | os.PathLike[str] | None,
) -> Snapshot:
    from indexmill.store.blob_cache import BlobCache
    from indexmill.store.bucket import place_of
    from indexmill.store.exported import ExportedFolder, is_exported
    from indexmill.store.layout import is_digest
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust

    if version is not None and alias is not None:
        raise BadInput(f"version={version} and alias={alias!r} are given; expected one of them at most")
    if manifest is not None and not is_digest(manifest):
        raise BadInput(f"manifest is {manifest!r:.200}; expected a SHA-256 in 64 lower-case hex digits")
    policy = None if trust is None else Trust.of(trust)
    where, opening = place_of(path), partial(open_snapshot, manifest=manifest, cache=cache, trust=policy)
    if isinstance(where, Path) and is_exported(where):
        if version is not None or alias is not None:
            raise SnapshotNotFound(f"{where}: is an exported folder, which holds one snapshot and no other versions")
        exported = ExportedFolder(where, manifest, policy)
        kept = _assemblies(where, cache, exported.digest)
        pool = _pool(processes, opening, where)
        return Snapshot(where, exported.open_local, exported.manifest, None, pool, kept, exported.path_of)
    store = StoreReader(where, None if cache is None else BlobCache.default(cache))
    ref = store.resolve(version=version, alias=alias)
    if manifest not in (None, ref.manifest):
        raise SnapshotNotFound(
            f"{where}: the manifest of version {ref.version} has the SHA-256 {ref.manifest}; expected {manifest}"
        )
    if policy is not None:
        policy.check(ref.manifest, store.signatures(ref.version), f"version {ref.version} of {where}")
    try:
        found = store.manifest(ref.manifest)
    except CorruptBlob:
        store.check_there(ref.version)  # it may have been removed at this moment
        raise
    pool = _pool(processes, opening, where, ref.version)
    kept = _assemblies(where, cache, ref.manifest)
    return Snapshot(where, partial(_open_blob, store, ref.version), found, ref, pool, kept, partial(_local_blob, store))


def open_candidate(path: str | os.PathLike[str], run: str, processes: int = 1) -> Snapshot:
    """Open the candidate that a gate refused; raises SnapshotNotFound if there is no such run or candidate."""
    from indexmill.store.reader import StoreReader

    return open_manifest(path, StoreReader(path).candidate(run), processes)


def open_manifest(path: str | os.PathLike[str], manifest: str, processes: int = 1) -> Snapshot:
    """Open the snapshot of a store whose manifest has this digest, even if no version publishes it."""
    from indexmill.store.bucket import place_of
    from indexmill.store.reader import StoreReader

    where = place_of(path)
    store = StoreReader(where)
    found = store.manifest(manifest)
    pool = _pool(processes, open_manifest, where, manifest)
    kept = _assemblies(where, None, manifest)
    return Snapshot(where, partial(_open_blob, store, None), found, None, pool, kept, partial(_local_blob, store))


def _assemblies(where: Path | str, cache: str | os.PathLike[str] | None, manifest: str) -> Assemblies | None:
    """What keeps arrays of a snapshot: always for a store in a bucket, else where a cache is named; None otherwise."""
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.blob_cache import CACHE_VARIABLE, BlobCache

    if cache is None and isinstance(where, Path) and not os.environ.get(CACHE_VARIABLE):
        return None
    return Assemblies(BlobCache.default(cache), manifest)


def _pool(processes: int, opening: Callable[..., Snapshot], where: Path | str, *which: object) -> ReaderPool | None:
    """The worker processes that answer batches; None for one process, which is this one."""
    if processes == 1:
        return None
    from indexmill.retrieve.worker_pool import ReaderPool

    return ReaderPool(partial(opening, where.absolute() if isinstance(where, Path) else where, *which), processes)


def _local_blob(store: StoreReader, artifact: Artifact) -> Path | None:
    return store.files.local(artifact.digest)


def _open_blob(store: StoreReader, version: int | None, artifact: Artifact) -> Path:
    """A blob of a store, found by its digest; raises CorruptBlob, or SnapshotNotFound if the version is gone."""
    try:
        return store.blob(artifact.digest, artifact.bytes)
    except CorruptBlob:
        if version is not None:  # it may have been removed while it was open, before this was first used
            store.check_there(version)
        raise
