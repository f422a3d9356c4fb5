"""Open a snapshot of an indexmill store, read-only, and retrieve from it.

    import indexmill

    with indexmill.open("store") as snapshot:          # the newest; version=7 or alias="prod" pins one
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

    from indexmill.answer.base import Answer
    from indexmill.follower import Follower
    from indexmill.hits import Hit
    from indexmill.models.chat import Structured
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.models.openai_llm import OpenAiLlm
    from indexmill.models.reranker import Reranker
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


def open(  # noqa: A001
    path: str | os.PathLike[str],
    version: int | None = None,
    alias: str | None = None,
    processes: int = 1,
    manifest: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    trust: Trust | str | os.PathLike[str] | None = None,
    encoder: OpenAiEmbeddings | None = None,
) -> Snapshot:
    """Open a snapshot of a store, or of an exported folder, read-only and memory-mapped.

    path: a folder, or the URL of a store in an object store (``s3://``, ``gs://``, ``az://``; needs
    ``indexmill[cloud]``), with credentials from the environment.

    The newest version is opened unless ``version`` or ``alias`` pins one; versions published later are not noticed.
    processes: with more than one, that many worker processes are started. They answer batches of questions instead of
    this process, and end with ``close``. Leave it at 1 if the readers are separate processes already.
    manifest: the SHA-256 that the manifest must have, as ``indexmill show --json`` prints it; an exported folder or a
    version with another one is refused before parsing.
    cache: the folder that keeps files of an object store, and what readers assemble of all shards, so that other
    processes map it; ``INDEXMILL_CACHE`` by default. Without both, a store in a folder keeps nothing, and an object
    store uses a folder of the user's caches. What a method needs is fetched when it is first used.
    trust: whose signatures the version must have: a ``Trust``, or a file of JSON as ``indexmill sign --help`` shows it;
    needs ``indexmill[signed]``. What is not signed so is refused before anything of it is parsed, with NotTrusted.
    encoder: where questions are encoded if the index has its vectors from an endpoint: see ``open_encoder``. Without
    one, such an index answers questions that come with ``vectors=``, and methods that need none.
    Raises SnapshotNotFound if there is no such store, version or alias, or its manifest is another one, and BadInput
    for a version and an alias at once, less than one process, or a ``manifest`` that is not a SHA-256.
    """
    with LOADING:
        from indexmill.opening import open_snapshot

        return open_snapshot(
            path,
            version=version,
            alias=alias,
            processes=processes,
            manifest=manifest,
            cache=cache,
            trust=trust,
            encoder=encoder,
        )


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
    """An index that serves the newest version of a store, or the one an alias points to, as that moves.

    It has ``retrieve``, ``retrieve_batch``, ``answer`` and ``answer_batch`` of a snapshot, and ``snapshot()`` for
    several calls on one version. Every ``poll`` seconds it looks for another version, which may also be an older one
    after a rollback. That one is fetched, every byte of it checked, and tried beside the version that serves, which it
    then replaces at once; questions under way finish where they began. A version that fails stays out: ``refusal`` and
    the log of ``indexmill.follower`` say why, and the next look tries again. While a version is tried, two are open.

    poll: None for an index that looks only when ``look()`` is called. processes, cache, trust, encoder: as ``open``
    takes them. methods: those to warm up; the default one of each version unless named. smoke: questions for which each
    of these methods must find something. check: called with a new snapshot, to refuse it by raising anything.
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
    """The versions of a store that can be opened, oldest first: number, manifest, time, note.

    Raises SnapshotNotFound if there is no such store.
    """
    store = _reader(path, cache)
    removed = store.removals()
    return [ref for ref in store.history() if ref.version not in removed]


def newest(path: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None) -> Ref:
    """The newest version of a store; raises SnapshotNotFound if nothing was published yet."""
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
    """A model behind an endpoint of OpenAI's protocol, for ``Snapshot.answer``; needs ``indexmill[answer]``.

    base_url: the endpoint, such as http://localhost:8000/v1; OpenAI's by default. The key is in the environment
    variable ``api_key_env``, or in a file, or what the function ``token_provider`` (module:function) returns; it is
    looked up for every call. structured: the way to request an answer's form: json_schema, json_object, text, or
    auto, the first that the endpoint supports. temperature: None for models that take none. timeout_seconds: of a call.
    Nothing is looked up or asked before the first call. Raises ConfigurationError for settings that cannot work.
    """
    from indexmill.models import openai_llm
    from indexmill.models.endpoint import Endpoint

    given = {
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
    return openai_llm.open_llm(Endpoint.of(given))


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
    """The endpoint that encodes questions to an index whose vectors came from one; needs ``indexmill[answer]``.

    model: its name there, which must be that of the index (``models.encoder`` of the manifest). Questions are sent to
    ``base_url``, OpenAI's by default: a snapshot never says where. The key is found as for ``open_llm``. Nothing is
    looked up or asked before the first question. Raises ConfigurationError for settings that cannot work.
    """
    from indexmill.models import openai_embeddings
    from indexmill.models.endpoint import Endpoint

    given = {
        "model": model,
        "base_url": base_url,
        "api_key_env": api_key_env,
        "api_key_file": api_key_file,
        "token_provider": token_provider,
        "ca_file": ca_file,
        "proxy": proxy,
        "timeout_seconds": timeout_seconds,
    }
    return openai_embeddings.open_embeddings(Endpoint.of(given, "embed"))


def open_reranker(
    place: str | os.PathLike[str],
    model: str | None = None,
    *,
    api_key_env: str = "INDEXMILL_RERANK_API_KEY",
    timeout_seconds: float = 60.0,
) -> Reranker:
    """A reranker for ``retrieve(..., rerank=...)``: a folder with a cross-encoder, or the URL of an endpoint.

    A cross-encoder is one of sentence-transformers, with one output; it needs ``indexmill[rerank]``. An endpoint speaks
    the protocol that Jina, Cohere, vLLM and Text Embeddings Inference share (``/v1/rerank``); it needs
    ``indexmill[answer]``. model, api_key_env, timeout_seconds: for an endpoint: the model's name there, the environment
    variable that holds its key, if it requires one, and the time limit of one call.
    Raises ModelUnavailable if a package or the model is missing, BadInput for a model's name beside a folder,
    ConfigurationError for an invalid URL.
    """
    from indexmill.models import reranker

    return reranker.open_reranker(place, model, api_key_env=api_key_env, timeout_seconds=timeout_seconds)


_LAZY = {
    "Answer": "indexmill.answer.base",
    "Follower": "indexmill.follower",
    "Hit": "indexmill.hits",
    "Ref": "indexmill.store.manifest",
    "Snapshot": "indexmill.snapshot",
    "Trust": "indexmill.store.signatures",
    "UNRESTRICTED": "indexmill.retrieve.rights",
}
"""What is in modules that import numpy and pyarrow: imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("indexmill")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
