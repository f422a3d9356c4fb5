"""Stage `encoder`: the model as the snapshot carries it, so that workers and readers start without torch.

Loading torch and converting a model takes seconds in every process; the converted files open in half of one. They are
a part like any other, keyed by the digest of the weights and the versions of the libraries that convert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from indexmill.errors import IndexmillError
from indexmill.models.convert import ModelFiles, convert, find_model
from indexmill.models.embedder import Embedder, HashEmbedder
from indexmill.models.openvino_encoder import OpenVINOEmbedder
from schemas.config import EmbedSettings
from storage.protocol import Store
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["HASH_MODEL", "STAGE", "EncoderChoice", "choose_encoder", "encoder_of"]

HASH_MODEL = "hash"
"""The name of the deterministic double in the settings: quick, and blind to meaning."""


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder of a run: what opens it on any worker, and what determines its numbers.

    `files` are the digests of the converted files by name; empty for a back-end that reads the model itself.
    """

    backend: str  # "hash", "openvino" or "torch"
    precision: str
    model: ModelFiles | None
    store: Store
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def embedder(self) -> Embedder:
        """The encoder, opened in this process."""
        return _opened(self.backend, self.precision, self._path, tuple(sorted(self._paths(self.store).items())))

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What determines the vectors."""
        return self.embedder.fingerprint.as_dict()

    @property
    def numbers(self) -> dict[str, Any]:
        """The fingerprint without the model's name, which is for people: a folder may be renamed."""
        return _numbers(self.embedder)

    @property
    def tokenizer(self) -> dict[str, Any]:
        """What determines the tokens."""
        shaping = ("tokenizer", "max_tokens", "backend") if self.backend == HASH_MODEL else ("tokenizer", "max_tokens")
        return {name: self.fingerprint[name] for name in shaping}

    def opening(self) -> dict[str, Any]:
        """What a worker needs to open the same encoder: see `encoder_of`."""
        return {"backend": self.backend, "precision": self.precision, "path": self._path, "files": dict(self.files)}

    @property
    def _path(self) -> str:
        return str(self.model.folder) if self.model is not None else ""

    def _paths(self, store: Store) -> dict[str, str]:
        return {name: str(store.open_local(digest)) for name, digest in self.files.items()}


def choose_encoder(settings: EmbedSettings, store: Store) -> EncoderChoice:
    """The encoder that the settings name; raises ModelUnavailable where it is not installed."""
    if settings.model == HASH_MODEL:
        return EncoderChoice(HASH_MODEL, "f32", None, store)
    model = find_model(settings.model, allow_hub=settings.allow_hub)
    return EncoderChoice(settings.backend, settings.precision, model, store)


def encoder_of(inputs: Inputs) -> Embedder:
    """The embedder of a job, opened once per process from `settings["opening"]`.

    Raises IndexmillError where it makes other numbers here than where the run was planned.
    """
    opening = inputs.settings["opening"]
    files = tuple(sorted((name, str(inputs.path(digest))) for name, digest in opening["files"].items()))
    embedder = _opened(opening["backend"], opening["precision"], opening["path"], files)
    expected = inputs.settings.get("encoder")
    if expected is not None and _numbers(embedder) != expected:
        raise IndexmillError(
            f"this worker's encoder is {_numbers(embedder)}, but the run was planned with {expected}; all workers need "
            "the same libraries and processor features"
        )
    return embedder


def _numbers(embedder: Embedder) -> dict[str, Any]:
    fingerprint = embedder.fingerprint.as_dict()
    del fingerprint["model"]
    return fingerprint


@cache
def _opened(backend: str, precision: str, path: str, files: tuple[tuple[str, str], ...]) -> Embedder:
    if backend == HASH_MODEL:
        return HashEmbedder()
    if backend == "openvino":
        return OpenVINOEmbedder.open({name: Path(file) for name, file in files}, threads=1, precision=precision)
    from indexmill.models.torch_encoder import TorchEmbedder  # imports torch, which only this back-end needs

    return TorchEmbedder.open(path, precision=precision)


def _compute(inputs: Inputs) -> Outputs:
    return Outputs(files=convert(ModelFiles(inputs.settings["name"], Path(inputs.settings["path"]))))


STAGE = Stage("encoder", version=1, compute=_compute, libraries=("openvino", "torch", "transformers"))
