"""Stage `encoder`: stores the model in the snapshot, so that workers and readers need no other copy.

Loading torch and converting a model takes seconds in every process; the converted files open in half a second. They
are a part like any other, keyed by the digest of the model and the versions of the converting libraries. A model that
torch runs is stored as published.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.errors import ConfigurationError, IndexmillError, ModelUnavailable
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
from indexmill.models.endpoint_embedder import BACKEND, EndpointEmbedder, EndpointModel, TokenCounter, Vectors
from indexmill.models.openai_embeddings import open_embeddings
from indexmill.models.openvino_encoder import OpenVINOEmbedder
from indexmill.models.sentence_model import ModelFiles, find_model, find_tokenizer, read_model, tokenizer_json
from indexmill.store.canonical import digest_of
from schemas.config import EmbedSettings
from storage.processes import this_process
from storage.protocol import Store
from storage.stores import open_store
from tasks.core.convert import convert
from tasks.core.quantise import quantisation
from tasks.core.stage import Output, Outputs, Part, Stage, StageSettings, left_out_at, worker_arg
from tasks.llm.vectors import EncoderAccess, TextsRefused, probe, recorded_dimension, vectors_of

_TOKENIZER = "tokenizer.json"

_UNKNOWN_DIMENSION = 1536
"""The dimension that a plan assumes for an endpoint that was never called."""

HASH_MODEL = "hash"
"""The deterministic test double's name in the settings; it is quick, and blind to meaning."""


@dataclass(frozen=True)
class ChosenTokenizer:
    """The content of a tokenizer.json (None for the test double), and the number of tokens to read from a text."""

    tokenizer: bytes | None
    max_tokens: int


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder that the settings name, before it is opened."""

    backend: str  # "hash", "openvino", "torch" or "openai"
    precision: str
    model: ModelFiles | None  # None for the test double and for an endpoint
    prompts: Prompts = NO_PROMPTS
    dimension: int | None = None  # the dimension to which vectors are cut
    device: str = "auto"
    endpoint: EmbedSettings | None = None
    chosen: ChosenTokenizer | None = None  # for an endpoint

    @property
    def name(self) -> str:
        """The model's name; empty for the test double."""
        if self.endpoint is not None:
            return self.endpoint.model
        return self.model.name if self.model is not None else ""

    @property
    def digest(self) -> str:
        """A digest to distinguish models with the same name; empty for the test double and for an endpoint."""
        return self.model.digest if self.model is not None else ""

    @property
    def has_own_tokenizer(self) -> bool:
        """True if the tokenizer is the model's own; False for a tokenizer that only counts tokens for an endpoint."""
        return self.endpoint is None or "tokenizer" in self.endpoint.model_fields_set

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        whole = self._chosen_tokenizer
        if whole.tokenizer is None:
            return {"backend": HASH_MODEL, "max_tokens": whole.max_tokens, "tokenizer": ""}
        return {
            "max_tokens": tokens_left(whole.tokenizer, whole.max_tokens, self.prompts.document),
            "tokenizer": digest_of(whole.tokenizer),
        }

    def tokenizer_opening(self, store: Store) -> dict[str, Any]:
        """Return a worker's arguments to open the tokenizer (see `tokeniser_of`), and store its file as a blob."""
        if self._chosen_tokenizer.tokenizer is not None:
            store.put_blob(self._chosen_tokenizer.tokenizer)
        return self.tokenizer

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, with special tokens and without a prompt."""
        chosen = self._chosen_tokenizer
        if chosen.tokenizer is None:
            return HashEmbedder(chosen.max_tokens).count_tokens(texts)
        return Tokeniser(chosen.tokenizer, chosen.max_tokens).count_tokens(texts)

    def opening(self, files: Mapping[str, str]) -> dict[str, Any]:
        """Return a worker's arguments to open the encoder. files: the digests of the `encoder` stage, by file name."""
        return {
            "backend": self.backend,
            "precision": self.precision,
            "name": self.name,
            "files": dict(files),
            "prompts": list(self.prompts),
            "dimension": self.dimension,
            "device": self.device,
            "max_tokens": self.tokenizer["max_tokens"] if self.endpoint is not None else None,
        }

    def conversion(self, store: Store) -> ConversionSettings | None:
        """Return the settings of the `encoder` stage, which makes the encoder's files; None if there are none.

        Raises ModelUnavailable if the settings ask for a quantised model and nncf is not installed.
        """
        if self.model is not None:
            return ConversionSettings(
                model=self.model.digest,
                name=self.model.name,
                path=str(self.model.folder),
                backend=self.backend,
                quantised=quantisation() if self.precision == "int8" else None,
            )
        if self.endpoint is None or self._chosen_tokenizer.tokenizer is None:
            return None
        digest = store.put_blob(self._chosen_tokenizer.tokenizer)
        return ConversionSettings(model=digest, name=_TOKENIZER, path=digest, backend=self.backend)

    @cached_property
    def _chosen_tokenizer(self) -> ChosenTokenizer:
        """The tokenizer, with the maximum number of tokens that the model reads from a text with its prompt."""
        if self.chosen is not None:
            return self.chosen
        if self.model is None:
            return ChosenTokenizer(None, HashEmbedder().max_tokens)
        return ChosenTokenizer(tokenizer_json(self.model), read_model(self.model).max_tokens)


@dataclass(frozen=True)
class OpenedEncoder:
    """The arguments to open an encoder that a worker has already opened, and the encoder's fingerprint.

    Workers on the same machine rely on that worker's test; other workers test the encoder themselves.
    """

    opening: Mapping[str, Any]
    fingerprint: Mapping[str, Any]

    @classmethod
    def of(cls, opening: Mapping[str, Any], fingerprint: Mapping[str, Any], machine: Sequence[str]) -> OpenedEncoder:
        """Create an instance from the arguments, and the fingerprint and machine that `fingerprint_of` returned."""
        tested = {"machine": list(machine), "reproducible": fingerprint["reproducible"]}
        return cls({**opening, "tested": tested}, fingerprint)

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of `EncoderSettings`, by name."""
        return {"encoder": self.numbers, "opening": self.opening}

    @property
    def vector_settings(self) -> EncoderSettings:
        """The settings of a stage that depends on nothing but the encoder."""
        return EncoderSettings(**self.settings)

    @property
    def numbers(self) -> dict[str, Any]:
        """The part of the fingerprint that determines vectors of documents.

        It excludes the model's name, since a folder may be renamed, and the prompt for questions.
        """
        return _numbers(self.fingerprint)

    @property
    def pools_spans(self) -> bool:
        """True if a sentence's vector can be pooled from the tokens of the passage around it."""
        return str(self.fingerprint["pooling"]).partition(" ")[0] == "mean"


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(StageSettings):
    """The settings of a stage that computes vectors: copied rows must come from the same encoder.

    encoder: the encoder settings that determine vectors. opening: the arguments to open the encoder on a worker.
    """

    encoder: Mapping[str, Any]
    opening: Mapping[str, Any] = worker_arg()

    def row_space(self) -> Mapping[str, Any] | None:
        return self.encoder

    @property
    def dimension(self) -> int:
        return int(self.encoder["dimension"])


def choose_encoder(settings: EmbedSettings) -> EncoderChoice:
    """Return the encoder that the settings name. Raises ModelUnavailable, or ConfigurationError if it is unsuitable."""
    if settings.asks:
        return _endpoint(settings)
    if settings.model == HASH_MODEL:
        return EncoderChoice(HASH_MODEL, "f32", None)
    model = find_model(settings.model, allow_hub=settings.allow_hub)
    properties = read_model(model)
    if settings.backend == "openvino" and properties.beyond_graph:
        raise ConfigurationError(
            f"{model.folder}: OpenVINO does not run this model, since {properties.beyond_graph}; "
            "set embed.backend to torch"
        )
    if settings.backend != "openvino" and settings.precision == "int8":
        raise ConfigurationError(
            "embed.precision is int8, but torch runs models as published; set embed.backend to openvino, or "
            "embed.precision to auto"
        )
    if properties.dimension:
        cut_dimension(settings.dimensions, min(properties.dimension, properties.cut or properties.dimension))
    prompts = Prompts(
        properties.prompts.query if settings.query_prompt is None else settings.query_prompt,
        properties.prompts.document if settings.document_prompt is None else settings.document_prompt,
    )
    tokens_left(tokenizer_json(model), properties.max_tokens, prompts.query, "query_prompt")
    dimension = settings.dimensions or properties.cut
    return EncoderChoice(settings.backend, settings.precision, model, prompts, dimension, settings.device)


def _endpoint(settings: EmbedSettings) -> EncoderChoice:
    open_embeddings(settings)  # raises for an invalid address
    if settings.tokenizer == HASH_MODEL:
        chosen = ChosenTokenizer(None, settings.max_tokens or HashEmbedder().max_tokens)
    else:
        tokenizer, longest = find_tokenizer(settings.tokenizer, allow_hub=settings.allow_hub)
        most = settings.max_tokens or longest
        if most is None:
            raise ConfigurationError(
                f"embed.tokenizer: {settings.tokenizer} does not say how many tokens the model reads: set "
                "embed.max_tokens"
            )
        chosen = ChosenTokenizer(tokenizer, most)
        tokens_left(tokenizer, most, settings.query_prompt or "", "query_prompt")
    prompts = Prompts(settings.query_prompt or "", settings.document_prompt or "")
    return EncoderChoice(BACKEND, "f32", None, prompts, settings.dimensions, endpoint=settings, chosen=chosen)


def tokeniser_of(part: Part[Any]) -> HashEmbedder | Tokeniser:
    """Return the tokenizer of a job, opened once per process from the `opening` setting."""
    opening = part.settings.opening
    if opening.get("backend") == HASH_MODEL:
        return HashEmbedder(opening["max_tokens"])
    return _opened_tokeniser(part.path(opening["tokenizer"]), opening["max_tokens"])


def fingerprint_of(store_url: str, opening: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Open an encoder on this worker. Returns its fingerprint and the identity of this machine."""
    return _open(open_store(store_url), opening).fingerprint.as_dict(), _machine()


def endpoint_fingerprint(
    store: Store, opening: Mapping[str, Any], access: EncoderAccess, *, ask: bool
) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Return the fingerprint of an encoder behind an endpoint, and the counts of its calls.

    ask: True to call the endpoint if the dimension is not in the ledger; False to guess the dimension, which leads to
    keys that no existing part has. Raises LlmForbidden if the endpoint cannot be the encoder of an index.
    """
    counts: Mapping[str, int] = {}
    if ask:
        dimension, counts = probe(store, access)
    else:
        dimension = recorded_dimension(store, access) or access.settings.dimensions or _UNKNOWN_DIMENSION
    return _open_endpoint(store, opening, dimension, _asks_nothing).fingerprint.as_dict(), counts


def encoder_of(part: Part[Any]) -> Embedder:
    """Return a job's embedder, opened once per process. Raises IndexmillError if it differs from the run's encoder."""
    opening = part.settings.opening
    if opening.get("backend") == BACKEND:
        dimension = int(part.settings.encoder["dimension"])
        return _open_endpoint(part.store, opening, dimension, partial(_vectors_of, part, dimension))
    embedder = _open(part.store, opening)
    tested = opening.get("tested")
    if tested is not None and tested["machine"] == _machine() and isinstance(embedder, TokenEncoder):
        embedder.reproducible = tested["reproducible"]
    expected = part.settings.encoder
    if expected is not None and (numbers := _numbers(embedder.fingerprint.as_dict())) != expected:
        raise IndexmillError(
            f"this worker's encoder is {numbers}, but the run was planned with {expected}; all workers need "
            "the same libraries and processor features"
        )
    return embedder


def _open_endpoint(store: Store, opening: Mapping[str, Any], dimension: int, vectors: Vectors) -> EndpointEmbedder:
    """Return the embedder of an endpoint; only its tokenizer is opened."""
    tokenizer = opening["files"].get(_TOKENIZER, "")
    prompts = Prompts(*opening["prompts"])
    counter: TokenCounter = HashEmbedder(opening["max_tokens"])
    if tokenizer:
        counter = _opened_tokeniser(store.open_local(tokenizer), opening["max_tokens"])
    model = EndpointModel(opening["name"], dimension, tokenizer, prompts, opening["dimension"] or 0)
    return EndpointEmbedder(model, counter, vectors)


def _vectors_of(part: Part[Any], dimension: int, texts: list[str], tokens: list[int]) -> NDArray[np.float32]:
    """Return the vectors of a part's texts, and add the counts of the calls to the part's counts.

    Raises IndexmillError for texts that the endpoint refuses, if the stage does not know their documents.
    """
    access: EncoderAccess | None = part.settings.opening.get("access")
    if part.is_trial:
        return np.full((len(texts), dimension), dimension**-0.5, np.float32)  # any vectors: a trial discards them
    if access is None:
        raise RuntimeError("this part has no access to an endpoint")
    try:
        return vectors_of(part.store, access, texts, tokens, dimension, part.counts)
    except TextsRefused as refused:
        if part.stage.per_document:  # the stage knows the documents
            raise
        raise IndexmillError(
            f"{part.stage.name}: {refused}: `indexmill quarantine` lists them; `--retry-refused` sends them again"
        ) from None


def _asks_nothing(texts: list[str], tokens: list[int]) -> NDArray[np.float32]:
    raise RuntimeError("this encoder is for its fingerprint only and may not call the endpoint")


def question_encoder(part: Part[Any], made_by: Mapping[str, Any]) -> EndpointEmbedder:
    """Return the encoder for questions to a snapshot whose vectors the run's endpoint made; it uses the ledger.

    made_by: the encoder's entry in the snapshot's manifest. Raises ModelUnavailable if it names another encoder.
    """
    opening = part.settings.opening
    requested = opening.get("backend"), opening.get("name"), opening.get("dimension") or 0
    if requested != (BACKEND, made_by["model"], made_by.get("asked_dimension", 0)):
        raise ModelUnavailable(f"its vectors come from {made_by['model']!r}; the settings name another model")
    prompts = [made_by.get(name, "") for name in ("query_prompt", "document_prompt")]
    question_opening = {**opening, "prompts": prompts, "max_tokens": made_by["max_tokens"]}
    dimension = int(made_by["dimension"])
    return _open_endpoint(part.store, question_opening, dimension, partial(_vectors_of, part, dimension))


def _machine() -> list[str]:
    """Return the identity of the machine or the container, since containers may be limited to different processors."""
    process = this_process()
    return [process.host, process.space]


def _numbers(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    # Only the name of a model behind an endpoint is known.
    excluded = ("query_prompt",) if fingerprint.get("backend") == BACKEND else ("model", "query_prompt")
    return {name: value for name, value in fingerprint.items() if name not in excluded}


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
"""Concurrent passes per worker: a single long document can use a second, idle core. If all workers are busy, two
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
class ConversionSettings(StageSettings):
    """The model to convert.

    model: the digest of its files. path: the folder of these files. backend: the back-end that runs the model.
    quantised: the settings of a quantised graph (`tasks.core.quantise.quantisation`). An encoder behind an endpoint has
    a single file, its tokenizer, whose digest is `model`.
    """

    model: str
    name: str
    path: str = worker_arg()
    backend: str = left_out_at("openvino")
    quantised: Mapping[str, str] | None = left_out_at(None)


def _compute(part: Part[ConversionSettings]) -> Outputs:
    if part.settings.backend == BACKEND:
        return Outputs(files={part.settings.name: part.path(part.settings.model).read_bytes()})
    files = ModelFiles(part.settings.name, Path(part.settings.path))
    if part.settings.backend != "openvino":
        return Outputs(files=files.parts)
    return Outputs(files=convert(files, precision="auto" if part.settings.quantised is None else "int8"))


STAGE = Stage(
    "encoder",
    version=3,
    compute=_compute,
    libraries=("openvino", "torch", "transformers"),
    outputs=(Output("*", artifact="encoder/{name}"),),
    priority=60,
)
