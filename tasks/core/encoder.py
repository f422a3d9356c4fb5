"""Stage `encoder`: the model of the snapshot, so that workers and readers need no other.

Loading torch and converting a model takes seconds in every process; the converted files open in half a second. They
are a part like any other, keyed by the digest of the model and the versions of the converting libraries. A model that
torch runs is carried as it is published.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from indexmill.errors import ConfigurationError, IndexmillError
from indexmill.models.convert import convert
from indexmill.models.embedder import (
    NO_PROMPTS,
    Embedder,
    HashEmbedder,
    Prompts,
    TokenEncoder,
    Tokeniser,
    cut_dimension,
    tokens_left,
)
from indexmill.models.openvino_encoder import OpenVINOEmbedder
from indexmill.models.quantise import quantisation
from indexmill.models.sentence_model import ModelFiles, find_model, read_model, tokenizer_json
from indexmill.store.canonical import digest_of
from indexmill.store.layout import ENCODER_VERSION
from schemas.config import EmbedSettings
from storage.processes import this_process
from storage.protocol import Store
from storage.stores import open_store
from tasks.core.stage import Output, Outputs, Part, Settings, Stage, left_out_at, worker_arg

__all__ = [
    "HASH_MODEL",
    "STAGE",
    "ConversionSettings",
    "EncoderChoice",
    "EncoderSettings",
    "OpenedEncoder",
    "choose_encoder",
    "encoder_of",
    "fingerprint_of",
    "tokeniser_of",
]

HASH_MODEL = "hash"
"""The name in the settings of the deterministic test double: quick, and blind to meaning."""


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder that the settings name, before it is opened."""

    backend: str  # "hash", "openvino" or "torch"
    precision: str
    model: ModelFiles | None
    prompts: Prompts = NO_PROMPTS
    dimension: int | None = None  # that vectors are cut to
    device: str = "auto"

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """The values that determine the tokens."""
        if self.model is None:
            double = HashEmbedder()
            return {"backend": self.backend, "max_tokens": double.max_tokens, "tokenizer": ""}
        whole = read_model(self.model).max_tokens
        return {
            "max_tokens": tokens_left(self._tokenizer_json, whole, self.prompts.document),
            "tokenizer": digest_of(self._tokenizer_json),
        }

    def tokenizer_opening(self, store: Store) -> dict[str, Any]:
        """The arguments for a worker to open the tokenizer (see `tokeniser_of`). Stores its file as a blob."""
        if self.model is not None:
            store.put_blob(self._tokenizer_json)
        return self.tokenizer

    @property
    def conversion(self) -> ConversionSettings | None:
        """The settings of the stage that makes the model's files; None for the double, which has none.

        Raises ModelUnavailable where the model is to be quantised and nncf is not installed.
        """
        if self.model is None:
            return None
        return ConversionSettings(
            model=self.model.digest,
            name=self.model.name,
            path=str(self.model.folder),
            backend=self.backend,
            quantised=quantisation() if self.precision == "int8" else None,
        )

    def opening(self, files: Mapping[str, str]) -> dict[str, Any]:
        """The arguments for a worker to open the encoder (see `encoder_of`).

        `files` are the digests of the files that the stage `encoder` made, by name; empty for the double.
        """
        return {
            "backend": self.backend,
            "precision": self.precision,
            "name": self.model.name if self.model is not None else "",
            "files": dict(files),
            "prompts": list(self.prompts),
            "dimension": self.dimension,
            "device": self.device,
        }

    @cached_property
    def _tokenizer_json(self) -> bytes:
        assert self.model is not None  # noqa: S101 - the double has no file
        return tokenizer_json(self.model)


@dataclass(frozen=True)
class OpenedEncoder:
    """An encoder that some worker has opened: the arguments to open it elsewhere, and its fingerprint.

    Workers of the same machine rely on that worker's test; others test the encoder themselves.
    """

    opening: Mapping[str, Any]
    fingerprint: Mapping[str, Any]

    @classmethod
    def of(cls, opening: Mapping[str, Any], fingerprint: Mapping[str, Any], machine: Sequence[str]) -> OpenedEncoder:
        """The encoder of an opening, with the fingerprint and machine that `fingerprint_of` returned."""
        tested = {"machine": list(machine), "reproducible": fingerprint["reproducible"]}
        return cls({**opening, "tested": tested}, fingerprint)

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of `EncoderSettings`, by name."""
        return {"encoder": self.numbers, "opening": self.opening}

    @property
    def numbers(self) -> dict[str, Any]:
        """The part of the fingerprint that determines vectors of documents.

        Not the model's name, which is informative only: a folder may be renamed. Not the prompt of questions, either:
        with another, the index is the same.
        """
        return _numbers(self.fingerprint)

    @property
    def minimum_reader_version(self) -> int:
        """The oldest reader that encodes questions with it: those of version 1 know no prompt and no other pooling."""
        later = {"files", "query_prompt", "document_prompt", "whole_dimension"} & self.fingerprint.keys()
        return ENCODER_VERSION if later or self.fingerprint["pooling"] != "mean" else 1

    @property
    def pools_spans(self) -> bool:
        """True if a sentence's vector can be pooled from the tokens of the passage around it."""
        return str(self.fingerprint["pooling"]).partition(" ")[0] == "mean"


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(Settings):
    """The settings of a stage that computes vectors: copied rows must come from the same encoder.

    encoder: the values that determine the numbers. opening: the arguments to open the encoder on a worker.
    """

    encoder: Mapping[str, Any]
    opening: Mapping[str, Any] = worker_arg()

    def row_space(self) -> Mapping[str, Any] | None:
        return self.encoder

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return int(self.encoder["dimension"])


def choose_encoder(settings: EmbedSettings) -> EncoderChoice:
    """The encoder that the settings name.

    Raises ModelUnavailable if it is not installed, ConfigurationError for settings that the model does not allow.
    """
    if settings.model == HASH_MODEL:
        return EncoderChoice(HASH_MODEL, "f32", None)
    model = find_model(settings.model, allow_hub=settings.allow_hub)
    found = read_model(model)
    if settings.backend == "openvino" and found.beyond_graph:
        raise ConfigurationError(
            f"{model.folder}: OpenVINO does not run this model, since {found.beyond_graph}; set embed.backend to torch"
        )
    if settings.backend != "openvino" and settings.precision == "int8":
        raise ConfigurationError(
            "embed.precision is int8, and torch runs models as they are published; set embed.backend to openvino, or "
            "embed.precision to auto"
        )
    if found.dimension:
        cut_dimension(settings.dimensions, min(found.dimension, found.cut or found.dimension))
    prompts = Prompts(
        found.prompts.query if settings.query_prompt is None else settings.query_prompt,
        found.prompts.document if settings.document_prompt is None else settings.document_prompt,
    )
    tokens_left(tokenizer_json(model), found.max_tokens, prompts.query, "query_prompt")
    dimension = settings.dimensions or found.cut
    return EncoderChoice(settings.backend, settings.precision, model, prompts, dimension, settings.device)


def tokeniser_of(part: Part[Any]) -> HashEmbedder | Tokeniser:
    """The tokenizer of a job, opened once per process from the setting `opening`."""
    opening = part.settings.opening
    if opening.get("backend") == HASH_MODEL:
        return HashEmbedder()
    return _opened_tokeniser(part.path(opening["tokenizer"]), opening["max_tokens"])


def fingerprint_of(store_url: str, opening: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fingerprint of an encoder as this worker opens it, and the machine of this worker."""
    return _open(open_store(store_url), opening).fingerprint.as_dict(), _machine()


def encoder_of(part: Part[Any]) -> Embedder:
    """The embedder of a job, opened once per process from the setting `opening`.

    Raises IndexmillError if its numbers here differ from those where the run was planned.
    """
    opening = part.settings.opening
    embedder = _open(part.store, opening)
    tested = opening.get("tested")
    if tested is not None and tested["machine"] == _machine() and isinstance(embedder, TokenEncoder):
        embedder.reproducible = tested["reproducible"]
    expected = part.settings.encoder
    if expected is not None and (found := _numbers(embedder.fingerprint.as_dict())) != expected:
        raise IndexmillError(
            f"this worker's encoder is {found}, but the run was planned with {expected}; all workers need "
            "the same libraries and processor features"
        )
    return embedder


def _machine() -> list[str]:
    """An identifier of the machine, or of the container, since containers may be limited to other processors."""
    process = this_process()
    return [process.host, process.space]


def _numbers(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fingerprint.items() if name not in ("model", "query_prompt")}


def _open(store: Store, opening: Mapping[str, Any]) -> Embedder:
    files = tuple(sorted((name, str(store.open_local(digest))) for name, digest in opening["files"].items()))
    prompts = Prompts(*opening.get("prompts", ()))
    more = (opening.get("name", ""), prompts, opening.get("dimension"), opening.get("device", "auto"))
    with _opening:
        return _opened(opening["backend"], opening["precision"], files, *more)


@cache
def _opened_tokeniser(path: Path, max_tokens: int) -> Tokeniser:
    return Tokeniser(path.read_bytes(), max_tokens)


_opening = threading.Lock()

_STREAMS = 2
"""Concurrent passes per worker: a single long document can use a second core that is idle. If all workers are busy, two
streams take as long as one; the result of a pass is the same in any stream."""


@cache
def _opened(
    backend: str,
    precision: str,
    files: tuple[tuple[str, str], ...],
    name: str,
    prompts: Prompts,
    dimension: int | None,
    device: str,
) -> Embedder:
    if backend == HASH_MODEL:
        return HashEmbedder()
    named = {path: Path(file) for path, file in files}
    if backend == "openvino":
        return OpenVINOEmbedder.open(
            named, threads=1, precision=precision, streams=_STREAMS, prompts=prompts, dimension=dimension
        )
    from indexmill.models.torch_encoder import TorchEmbedder  # imports torch, which only this back-end needs

    return TorchEmbedder.open(
        named, threads=1, precision=precision, device=device, prompts=prompts, dimension=dimension, name=name
    )


@dataclass(frozen=True, kw_only=True)
class ConversionSettings(Settings):
    """The model to convert.

    model: the digest of its files. path: their folder. backend: what is to run it. quantised: what shapes a quantised
    graph beside the model (`indexmill.models.quantise.quantisation`).
    """

    model: str
    name: str
    path: str = worker_arg()
    backend: str = left_out_at("openvino")
    quantised: Mapping[str, str] | None = left_out_at(None)


def _compute(part: Part[ConversionSettings]) -> Outputs:
    files = ModelFiles(part.settings.name, Path(part.settings.path))
    if part.settings.backend != "openvino":
        return Outputs(files=files.parts)
    return Outputs(files=convert(files, precision="auto" if part.settings.quantised is None else "int8"))


STAGE = Stage(
    "encoder",
    version=3,
    compute=_compute,
    settings=ConversionSettings,
    libraries=("openvino", "torch", "transformers"),
    outputs=(Output("*", artifact="encoder/{name}"),),
    priority=60,
)
