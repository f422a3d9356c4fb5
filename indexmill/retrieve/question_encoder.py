"""Open the encoder of questions: the snapshot's own, the installed model that the snapshot names, or an endpoint.

Prompts and the dimension come from the manifest, which records how the index's texts were encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexmill.errors import ConfigurationError, CorruptBlob, ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from indexmill.models.embedder import Embedder
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.retrieve.artifacts import Artifacts

STREAMS = 2
"""The number of parallel passes of the encoder, one core each; a batch of questions has one pass per token length."""

_ADVICE = "or pass the questions' vectors with vectors="


def open_encoder(artifacts: Artifacts, endpoint: OpenAiEmbeddings | None = None) -> Embedder:
    """Open the encoder that made the snapshot's vectors.

    endpoint: used only if the snapshot's vectors came from an endpoint.

    Otherwise the encoder is the snapshot's artifacts ``encoder/*``, or the deterministic double, or the model that the
    manifest names, if its files are installed and their digest matches. Raises ModelUnavailable if there is none, with
    advice on what to do instead, and CorruptBlob if the snapshot's encoder cannot be used.
    """
    named = artifacts.manifest.models.get("encoder")
    made_by: dict[str, Any] = named if isinstance(named, dict) else {}
    carried = {artifact.name.partition("/")[2]: artifact for artifact in artifacts.manifest.under("encoder")}
    # bf16 agrees with f32 to four digits, so a machine without it may still encode questions.
    precision = "f32" if made_by.get("precision") in ("f32", "int8+f32") else "auto"
    try:
        if made_by.get("backend") == "openai":
            return _behind_endpoint(artifacts, made_by, endpoint)
        if carried:
            from indexmill.models.encoder_checks import check_encoder_files, encoder_errors

            files = {name: artifacts.file(artifact.name) for name, artifact in carried.items()}
            check_encoder_files(files)
            with encoder_errors(artifacts.path):
                return _carried(files, made_by, precision)
        if made_by.get("backend") == "hash":
            from indexmill.models.embedder import HashEmbedder

            return HashEmbedder(max_tokens=int(made_by["max_tokens"]))
        return _installed(str(made_by.get("model", "")), str(made_by.get("weights", "")), precision)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{artifacts.path}: questions cannot be encoded here: {error}; {_ADVICE}") from error


def _behind_endpoint(artifacts: Artifacts, made_by: Mapping[str, Any], endpoint: OpenAiEmbeddings | None) -> Embedder:
    """Open the encoder behind an endpoint; raises ModelUnavailable if ``endpoint`` is None."""
    if endpoint is None:
        raise ModelUnavailable(
            f"its vectors come from the model {made_by.get('model')!s:.100} behind an endpoint, which is called only "
            "if you name it: pass encoder=indexmill.open_encoder(...), or set the section `embed` of indexmill.yaml"
        )
    from indexmill.models.encoder_checks import check_encoder_files, encoder_errors
    from indexmill.models.endpoint_questions import endpoint_encoder

    tokenizer = None
    if made_by.get("tokenizer"):
        file = artifacts.file("encoder/tokenizer.json")
        check_encoder_files({"tokenizer.json": file})
        tokenizer = file.read_bytes()
    with encoder_errors(artifacts.path):
        return endpoint_encoder(endpoint, made_by, tokenizer)


def _carried(files: Mapping[str, Path], made_by: Mapping[str, Any], precision: str) -> Embedder:
    """Open the encoder stored in the snapshot: a converted model, or an unconverted model, which torch runs.

    Raises CorruptBlob for an encoder that does not match the manifest, or that would run its own code.
    """
    from indexmill.models.embedder import Prompts

    prompts = Prompts(str(made_by.get("query_prompt", "")), str(made_by.get("document_prompt", "")))
    dimension = made_by.get("dimension")
    try:
        if "modules.json" in files:
            from indexmill.models.torch_encoder import TorchEmbedder  # imports torch, which only this back-end needs

            name = str(made_by.get("model", ""))
            return TorchEmbedder.open(files, precision=precision, prompts=prompts, dimension=dimension, name=name)
        from indexmill.models.openvino_encoder import OpenVINOEmbedder

        return OpenVINOEmbedder.open(files, precision=precision, streams=STREAMS, prompts=prompts, dimension=dimension)
    except ConfigurationError as error:
        raise CorruptBlob(f"the encoder of the snapshot cannot be used: {error}") from error


def _installed(model: str, weights: str, precision: str) -> Embedder:
    """Open the installed model of this name; raises ModelUnavailable if its weights have a different digest."""
    from indexmill.models.sentence_model import find_model

    if not model:
        raise ModelUnavailable("the snapshot neither contains an encoder nor names one")
    files = find_model(model)
    if (digest := files.weights_digest) != weights:
        raise ModelUnavailable(f"{files.folder} has weights of SHA-256 {digest}; the snapshot was built with {weights}")
    from indexmill.models.torch_encoder import TorchEmbedder  # imports torch, which only this back-end needs

    return TorchEmbedder.open(files, precision=precision)
