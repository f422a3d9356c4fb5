"""Open a snapshot of an indexmill store, read-only, and retrieve from it.

    import indexmill

    with indexmill.open("store") as snapshot:          # newest version, unless version= or alias= pins one
        hits = snapshot.retrieve("who funded the bridge?", k=5)
        answer = snapshot.answer("who funded the bridge?", llm=indexmill.open_llm("gpt-4o-mini"))

Importing this package is cheap: numpy, pyarrow and the models are loaded when they are first needed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from indexmill.errors import (
    BadInput,
    BudgetReached,
    ConfigurationError,
    CorruptBlob,
    DiskFull,
    FamilyNotFound,
    GateRefused,
    IndexmillError,
    LeaseLost,
    ModelUnavailable,
    NotFound,
    NotTrusted,
    SnapshotNotFound,
    StoreError,
    StoreNotWritable,
    UnsupportedFormat,
    VersionWithdrawn,
)
from indexmill.forks import LOADING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indexmill.answer.answer_types import Answer
    from indexmill.follower import Follower
    from indexmill.hits import Hit
    from indexmill.models.chat import Structured
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.models.openai_llm import OpenAiLlm
    from indexmill.models.reranker import Reranker
    from indexmill.opening import open  # noqa: A004
    from indexmill.retrieve.retrieval_options import RetrievalOptions
    from indexmill.retrieve.rights import UNRESTRICTED
    from indexmill.snapshot import Snapshot
    from indexmill.store.manifest import Ref
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust

__all__ = [
    "UNRESTRICTED",
    "Answer",
    "BadInput",
    "BudgetReached",
    "ConfigurationError",
    "CorruptBlob",
    "DiskFull",
    "FamilyNotFound",
    "Follower",
    "GateRefused",
    "Hit",
    "IndexmillError",
    "LeaseLost",
    "ModelUnavailable",
    "NotFound",
    "NotTrusted",
    "Ref",
    "RetrievalOptions",
    "Snapshot",
    "SnapshotNotFound",
    "StoreError",
    "StoreNotWritable",
    "Trust",
    "UnsupportedFormat",
    "VersionWithdrawn",
    "follow",
    "newest",
    "open",
    "open_encoder",
    "open_llm",
    "open_reranker",
    "versions",
]


def follow(
    path: str | os.PathLike[str],
    alias: str | None = None,
    poll: float | None = 30.0,
    *,
    processes: int = 1,
    cache: str | os.PathLike[str] | None = None,
    methods: Sequence[str] = (),
    smoke: Sequence[str] = (),
    check: Callable[[Snapshot], object] | None = None,
    trust: Trust | str | os.PathLike[str] | None = None,
    encoder: OpenAiEmbeddings | None = None,
) -> Follower:
    """Serve the newest version of a store, or the one an alias points to, and switch when a new one appears.

    The follower has the methods ``retrieve``, ``retrieve_batch``, ``answer`` and ``answer_batch`` of a snapshot; its
    ``snapshot()`` pins one version for several calls. Every ``poll`` seconds it checks for a different version, which
    may be an older one after a rollback. It fetches that version, verifies every byte, and tries it out while the
    current version keeps serving; then it switches for all later queries. Queries in flight finish on the version they
    started on. A version that fails is rejected; ``refusal`` and the log of ``indexmill.follower`` say why, and the
    next poll retries. While a version is tried out, two versions are open.

    poll: None to check only when ``look()`` is called. processes, cache, trust, encoder: as for ``open``.
    methods: the methods to warm up; by default the default method of each version. smoke: questions for which each of
    these methods must return a hit. check: called with a new snapshot; any exception it raises rejects the version.
    Raises as ``open`` does, and GateRefused if the first version fails a smoke question.
    """
    with LOADING:
        from indexmill.follower import Follower

    return Follower(
        path,
        alias,
        poll=poll,
        processes=processes,
        cache=cache,
        methods=methods,
        smoke=smoke,
        check=check,
        trust=trust,
        encoder=encoder,
    )


def versions(path: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None) -> list[Ref]:
    """List the versions of a store that can be opened, oldest first, as refs with number, manifest, time and note.

    Raises SnapshotNotFound if there is no such store.
    """
    store = _reader(path, cache)
    removed = store.removals()
    return [ref for ref in store.history() if ref.version not in removed]


def newest(path: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None) -> Ref:
    """Return the newest version of a store; raises SnapshotNotFound if nothing has been published yet."""
    return _reader(path, cache).resolve()


def _reader(path: str | os.PathLike[str], cache: str | os.PathLike[str] | None) -> StoreReader:
    with LOADING:
        from indexmill.store.blob_cache import BlobCache
        from indexmill.store.reader import StoreReader

    return StoreReader(path, None if cache is None else BlobCache.default(cache))


def open_llm(
    model: str,
    *,
    base_url: str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    api_key_file: str | os.PathLike[str] | None = None,
    token_provider: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    proxy: str | None = None,
    structured: Structured = "auto",
    temperature: float | None = 0.0,
    timeout_seconds: float = 60.0,
) -> OpenAiLlm:
    """Open a model behind an OpenAI-compatible endpoint, for ``Snapshot.answer``; needs ``indexmill[answer]``.

    base_url: the endpoint, such as http://localhost:8000/v1; OpenAI's by default. The key comes from the environment
    variable ``api_key_env``, a file, or the function ``token_provider`` (module:function), and is read for every call.
    structured: how to request structured output: json_schema, json_object, text, or auto, the first that the endpoint
    supports. temperature: None for models that accept none. timeout_seconds: the time limit of each call.
    Nothing is read or requested before the first call. Raises ConfigurationError for settings that cannot work.
    """
    from indexmill.models import openai_llm
    from indexmill.models.endpoint import Endpoint

    settings = {
        "model": model,
        "base_url": base_url,
        "api_key_env": api_key_env,
        "api_key_file": api_key_file,
        "token_provider": token_provider,
        "ca_file": ca_file,
        "proxy": proxy,
        "structured": structured,
        "temperature": temperature,
        "timeout_seconds": timeout_seconds,
    }
    return openai_llm.open_llm(Endpoint.of(settings))


def open_encoder(
    model: str,
    *,
    base_url: str | None = None,
    api_key_env: str = "OPENAI_API_KEY",
    api_key_file: str | os.PathLike[str] | None = None,
    token_provider: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    proxy: str | None = None,
    timeout_seconds: float = 60.0,
) -> OpenAiEmbeddings:
    """Open an embedding endpoint to encode questions, for an index built with one; needs ``indexmill[answer]``.

    model: the name of the index's model (``models.encoder`` in its manifest) at the endpoint. Questions are sent to
    ``base_url``, by default OpenAI's: a snapshot never names its endpoint. The key is read as for ``open_llm``.
    Nothing is read or requested before the first question. Raises ConfigurationError for settings that cannot work.
    """
    from indexmill.models import openai_embeddings
    from indexmill.models.endpoint import Endpoint

    settings = {
        "model": model,
        "base_url": base_url,
        "api_key_env": api_key_env,
        "api_key_file": api_key_file,
        "token_provider": token_provider,
        "ca_file": ca_file,
        "proxy": proxy,
        "timeout_seconds": timeout_seconds,
    }
    return openai_embeddings.open_embeddings(Endpoint.of(settings, "embed"))


def open_reranker(
    place: str | os.PathLike[str],
    model: str | None = None,
    *,
    api_key_env: str = "INDEXMILL_RERANK_API_KEY",
    timeout_seconds: float = 60.0,
) -> Reranker:
    """Open a reranker for ``retrieve(..., rerank=...)``: a folder with a cross-encoder, or the URL of an endpoint.

    A cross-encoder is a sentence-transformers model with one output; it needs ``indexmill[rerank]``. An endpoint speaks
    the protocol that Jina, Cohere, vLLM and Text Embeddings Inference share (``/v1/rerank``); it needs
    ``indexmill[answer]``. For an endpoint only: ``model`` is the model's name, ``api_key_env`` the environment variable
    that holds the key, if one is required, and ``timeout_seconds`` the time limit of a call.
    Raises ModelUnavailable if a package or the model is missing, BadInput if a model is named for a folder,
    ConfigurationError for an invalid URL.
    """
    from indexmill.models import reranker

    return reranker.open_reranker(place, model, api_key_env=api_key_env, timeout_seconds=timeout_seconds)


_LAZY = {
    "Answer": "indexmill.answer.answer_types",
    "Follower": "indexmill.follower",
    "Hit": "indexmill.hits",
    "Ref": "indexmill.store.manifest",
    "RetrievalOptions": "indexmill.retrieve.retrieval_options",
    "Snapshot": "indexmill.snapshot",
    "Trust": "indexmill.store.signatures",
    "UNRESTRICTED": "indexmill.retrieve.rights",
    "open": "indexmill.opening",
}
"""The module of each name that is imported on first use, since the module imports numpy and pyarrow."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        with LOADING:
            return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("indexmill")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
