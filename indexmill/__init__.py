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
    SnapshotNotFound,
    StoreError,
    StoreNotWritable,
    UnsupportedFormat,
    VersionWithdrawn,
)
from indexmill.forks import LOADING

if TYPE_CHECKING:
    from indexmill.answer.base import Answer
    from indexmill.hits import Hit
    from indexmill.models.chat import Structured
    from indexmill.models.openai_llm import OpenAiLlm
    from indexmill.models.reranker import Reranker
    from indexmill.snapshot import Snapshot

__all__ = [
    "Answer",
    "BadInput",
    "BudgetReached",
    "ConfigurationError",
    "CorruptBlob",
    "DiskFull",
    "FamilyNotFound",
    "GateRefused",
    "Hit",
    "IndexmillError",
    "LeaseLost",
    "ModelUnavailable",
    "NotFound",
    "Snapshot",
    "SnapshotNotFound",
    "StoreError",
    "StoreNotWritable",
    "UnsupportedFormat",
    "VersionWithdrawn",
    "open",
    "open_llm",
    "open_reranker",
]


def open(  # noqa: A001
    path: str | os.PathLike[str],
    version: int | None = None,
    alias: str | None = None,
    processes: int = 1,
    manifest: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Snapshot:
    """Open a snapshot of a store, or of an exported folder, read-only and memory-mapped.

    path: a folder, or the URL of a store in an object store (``s3://``, ``gs://``, ``az://``; needs
    ``indexmill[cloud]``), with credentials from the environment.

    The newest version is opened unless ``version`` or ``alias`` pins one; versions published later are not noticed.
    processes: with more than one, that many worker processes are started. They answer batches of questions instead of
    this process, and end with ``close``. Leave it at 1 if the readers are separate processes already.
    manifest: the SHA-256 that the manifest must have, as ``indexmill show --json`` prints it; an exported folder or a
    version with another one is refused before parsing.
    cache: the folder that keeps files of an object store; ``INDEXMILL_CACHE``, or a folder of the user's caches, by
    default. What a method needs is fetched when it is first used.
    Raises SnapshotNotFound if there is no such store, version or alias, or its manifest is another one, and BadInput
    for a version and an alias at once, less than one process, or a ``manifest`` that is not a SHA-256.
    """
    with LOADING:
        from indexmill.snapshot import open_snapshot

        return open_snapshot(path, version=version, alias=alias, processes=processes, manifest=manifest, cache=cache)


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


_LAZY = {"Answer": "indexmill.answer.base", "Hit": "indexmill.hits", "Snapshot": "indexmill.snapshot"}
"""Classes whose modules import numpy and pyarrow: imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("indexmill")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
