"""The encoder of questions: the snapshot's own, else the model it names, if installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.errors import ModelUnavailable
from indexmill.store.canonical import digest_of_file

if TYPE_CHECKING:
    from indexmill.models.embedder import Embedder
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["STREAMS", "open_encoder"]

STREAMS = 2
"""The number of parallel passes of the encoder, one core each; a batch of questions has one pass per token length."""

_ADVICE = "or pass the questions' vectors with vectors="


def open_encoder(artifacts: Artifacts) -> Embedder:
    """Open the encoder that made the snapshot's vectors.

    In this order: the artifacts ``encoder/*`` of the snapshot, the deterministic double, or the model that the
    manifest names, if its files are installed and their digest matches. Raises ModelUnavailable if there is none, with
    advice on how to do without it, and CorruptBlob if the snapshot's encoder cannot be used.
    """
    named = artifacts.manifest.models.get("encoder")
    made_by: dict[str, Any] = named if isinstance(named, dict) else {}
    carried = {artifact.name.partition("/")[2]: artifact for artifact in artifacts.manifest.under("encoder")}
    precision = str(made_by.get("precision", "auto"))
    try:
        if carried:
            from indexmill.models.encoder_checks import check_encoder_files, encoder_errors
            from indexmill.models.openvino_encoder import OpenVINOEmbedder

            files = {name: artifacts.file(artifact.name) for name, artifact in carried.items()}
            check_encoder_files(files)
            with encoder_errors(artifacts.path):
                # bf16 agrees with f32 to four digits, so a processor without it may still encode questions.
                return OpenVINOEmbedder.open(files, precision="f32" if precision == "f32" else "auto", streams=STREAMS)
        if made_by.get("backend") == "hash":
            from indexmill.models.embedder import HashEmbedder

            return HashEmbedder(max_tokens=int(made_by["max_tokens"]))
        return _installed(str(made_by.get("model", "")), str(made_by.get("weights", "")), precision)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{artifacts.path}: questions cannot be encoded here: {error}; {_ADVICE}") from error


def _installed(model: str, weights: str, precision: str) -> Embedder:
    """The installed model of this name; raises ModelUnavailable if its weights have another digest."""
    from indexmill.models.convert import find_model

    if not model:
        raise ModelUnavailable("the snapshot neither carries an encoder nor names one")
    files = find_model(model)
    digest = digest_of_file(files.weights)
    if digest != weights:
        raise ModelUnavailable(f"{files.weights} has the SHA-256 {digest}; the snapshot was made with {weights}")
    from indexmill.models.torch_encoder import TorchEmbedder  # imports torch, which only this back-end needs

    return TorchEmbedder.open(files, precision=precision)
