"""Conversion of a sentence-transformers model to the files of an encoder.

The converted files are stored with the index, so that workers and readers open them in half a second. A BERT
model, such as the default, is built from its weights; any other is traced once with torch and transformers, and the
trace is compared with the model. The graph's only input is token ids: all texts of a pass have the same length, so no
attention mask is needed (the result is the same, and a little faster to compute). The graph returns the hidden states;
pooling, prompts and truncation are not part of it.
"""

from __future__ import annotations

import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.errors import ConfigurationError
from indexmill.extras import not_installed
from indexmill.models.embedder import Tokeniser
from indexmill.models.openvino_encoder import import_openvino, openvino_core
from indexmill.models.quiet import quiet
from indexmill.models.sentence_model import DEFAULT_MODEL, ModelFiles, find_model, read_model, tokenizer_json
from indexmill.store.canonical import canonical_json
from storage.write_errors import check_room
from tasks.core.bert_graph import bert_graph, is_bert
from tasks.core.quantise import calibration_texts, quantisation, quantise

_TRACED_LENGTHS = ((1, 2), (3, 21), (2, 5))
"""The shapes (texts, tokens) of the inputs for comparing a trace with the model; tracing uses another shape."""

_LEAST_SPECIAL = 2
"""The minimum number of special tokens in a text. If the first pass of a graph has one token, OpenVINO 2026.4 computes
later passes incorrectly: hidden states of about one are off by 0.2 to 0.8, with BERT, DistilBERT and XLM-R alike."""

_TRACE_ERROR = 1e-3
"""The largest allowed error of a trace's hidden states in f32, relative to the model's, whose values are about one."""


def convert(model: ModelFiles | Path | str = DEFAULT_MODEL, *, precision: str = "auto") -> dict[str, bytes]:
    """Convert a sentence-transformers model to the files of an encoder (`ENCODER_FILES`), with reproducible bytes.

    Takes less than a second for a BERT model, and several seconds and about 600 MB for others, which torch traces. With
    the precision "int8" the graph is quantised (`tasks.core.quantise`) by passing the calibration texts through it,
    which takes half a minute for the default model.
    Raises ModelUnavailable if a library is missing, ConfigurationError if the model cannot be converted.
    """
    files = model if isinstance(model, ModelFiles) else find_model(model)
    description = read_model(files)
    if description.beyond_graph:
        raise ConfigurationError(
            f"{files.folder}: OpenVINO does not run this model, since {description.beyond_graph}; set embed.backend to "
            "torch"
        )
    tokenizer = tokenizer_json(files)
    if Tokeniser(tokenizer, description.max_tokens).special_tokens < _LEAST_SPECIAL:
        raise ConfigurationError(
            f"{files.folder}: OpenVINO does not run this model: its tokenizer adds fewer than {_LEAST_SPECIAL} special "
            "tokens, so a text may have a single token; set embed.backend to torch"
        )
    settings: dict[str, Any] = {
        "dimension": description.dimension,
        "max_tokens": description.max_tokens,
        "pooling": description.pooling,
        **({} if description.include_prompt else {"include_prompt": False}),
    }
    openvino = import_openvino()
    config = json.loads((files.reading / "config.json").read_text("utf-8"))
    tensors = _tensors(files) if is_bert(config) else None
    if tensors is not None:
        graph, libraries = bert_graph(config, tensors), ["openvino"]
    else:
        graph, libraries = _trace(files, openvino), ["openvino", "torch", "transformers"]
    if precision == "int8":
        tokens = Tokeniser(tokenizer, description.max_tokens)
        _name_nodes(graph)  # the quantised graph records the names of the nodes that stay in floats
        graph = quantise(graph, tokens.token_ids(calibration_texts()))
        settings["quantised"] = quantisation()
        libraries.append("nncf")
    _name_nodes(graph)
    with tempfile.TemporaryDirectory(prefix="indexmill-convert-") as folder:
        xml = Path(folder) / "openvino.xml"
        try:
            openvino.save_model(graph, str(xml), compress_to_fp16=False)
        except RuntimeError:
            # OpenVINO does not report why a file cannot be written.
            check_room(sum(path.stat().st_size for path in files.weights))
            raise
        encoder_files = {"openvino.xml": xml.read_bytes(), "openvino.bin": xml.with_suffix(".bin").read_bytes()}
    encoder_files["tokenizer.json"] = tokenizer
    encoder_files["encoder.json"] = canonical_json(
        {
            **settings,
            "model": files.name,
            "weights": files.weights_digest,
            "converted_with": {name: metadata.version(name) for name in libraries},
        }
    )
    return encoder_files


def _name_nodes(graph: Any) -> None:
    """Name the nodes by their order: default names come from a counter of the process, so the bytes would vary."""
    graph.set_friendly_name("encoder")
    for number, node in enumerate(graph.get_ordered_ops()):
        node.set_friendly_name(f"{node.get_type_name()}_{number}")


def _tensors(files: ModelFiles) -> dict[str, Any] | None:
    """Return the weights by name; None if they are in several files, or of a type that NumPy lacks, such as bf16."""
    try:
        from safetensors import safe_open  # a dependency of the pipeline only
    except ImportError as error:
        raise not_installed("converting the encoder", "safetensors", error) from error
    if len(files.weights) != 1:
        return None
    with safe_open(files.weights[0], framework="numpy") as weights:
        names = list(weights.keys())
        if {weights.get_slice(name).get_dtype() for name in names} - {"F64", "F32", "F16", "I64"}:
            return None
        return {name: weights.get_tensor(name) for name in names}


def _trace(files: ModelFiles, openvino: Any) -> Any:
    """Return the OpenVINO graph of the transformer alone, from token ids to the last hidden states.

    Raises ConfigurationError if tracing fails, or the graph's hidden states differ from the transformer's.
    """
    with quiet():
        transformer = _transformer(files)
        import torch  # heavy, and only the pipeline has it

        class States(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.transformer = transformer

            def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
                states: torch.Tensor = self.transformer(input_ids=input_ids, attention_mask=None).last_hidden_state
                return states

        instead = f"OpenVINO {openvino.__version__} does not run this model; set embed.backend to torch"
        try:
            graph = openvino.convert_model(
                States().eval(),
                example_input={"input_ids": torch.ones(2, 8, dtype=torch.long)},
                input=[("input_ids", [-1, -1])],
            )
            compiled = openvino_core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        except Exception as error:  # OpenVINO's exceptions, and any exception of the model's traced code
            raise ConfigurationError(f"{files.folder}: {instead} ({type(error).__name__})") from error
        words = transformer.get_input_embeddings().num_embeddings
        for texts, tokens in _TRACED_LENGTHS:
            ids = (7 * np.arange(texts * tokens) + 3).reshape(texts, tokens) % words  # any tokens, special or not
            with torch.inference_mode():
                expected = States().eval()(torch.from_numpy(ids)).numpy()
            off = float(np.abs(compiled([ids])[0] - expected).max())
            if not off <= _TRACE_ERROR * max(1.0, float(np.abs(expected).max())):
                raise ConfigurationError(f"{files.folder}: {instead} (its hidden states are {off:.2g} off)")
        return graph


def _transformer(files: ModelFiles) -> Any:
    """Return the model's transformer in torch, in f32 on the CPU, loaded from local files only.

    Raises ModelUnavailable if torch or transformers is not installed, ConfigurationError for a model that transformers
    does not support.
    """
    try:
        import torch  # heavy, and only the pipeline has it
        from transformers import AutoModel
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise not_installed("running the encoder in torch", "torch", error, extra="encoders") from error
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the library's progress bar
    try:
        loaded: Any = AutoModel.from_pretrained(
            str(files.reading),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        raise ConfigurationError(
            f"{files.folder}: transformers cannot open this model, and the model's own code is never run: "
            f"{type(error).__name__}: {error!s:.300}"
        ) from error
    return loaded.eval()
