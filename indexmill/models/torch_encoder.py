"""The torch back-end: sentence-transformers runs a model as it is published, on the CPU or a GPU.

It also runs models that OpenVINO cannot run: those with dense layers, decoders, static embeddings or routers. Each call
to the library contains texts of the same token count, so that nothing is padded; `encode_query` and `encode_document`
read, pool and project them. Sentences are pooled from the tokens of their passage if the model's pooling is the mean,
and then pass through the modules that follow the pooling.

torch selects the kernel of a matrix product by its number of rows, so the last bits of a vector would depend on how
many texts are encoded together. Therefore every pass over documents of one length has the same number of rows, padded
with copies of the first document, and each question is encoded separately. The self-test checks whether this suffices
on the current device; the fingerprint records the result and the device.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from indexmill.errors import ConfigurationError, ModelUnavailable
from indexmill.extras import not_installed
from indexmill.forks import TorchTurn
from indexmill.models.embedder import (
    NO_PROMPTS,
    Encoded,
    EncoderFingerprint,
    Pass,
    Prompts,
    TokenEncoder,
    cut_dimension,
)
from indexmill.models.quiet import quiet
from indexmill.models.sentence_model import ModelFiles, find_model, read_model, tokenizer_json
from indexmill.store.canonical import digest_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Result = TypeVar("_Result")

_TOKENS = {"cpu": 256, "cuda": 8192}
"""The number of tokens in a full pass: enough to keep a device busy, but few, since smaller passes are padded."""


class TorchEmbedder(TokenEncoder):
    """An Embedder that runs a sentence-transformers model in torch; open it with `TorchEmbedder.open`."""

    def __init__(
        self,
        files: ModelFiles,
        *,
        threads: int | None,
        precision: str,
        device: str,
        prompts: Prompts,
        dimension: int | None,
    ) -> None:
        if precision not in ("auto", "f32", "bf16"):
            raise ConfigurationError(f"precision is {precision!r}; it must be auto, f32 or bf16")
        description = read_model(files)
        tokenizer = tokenizer_json(files)
        super().__init__(tokenizer, description.max_tokens, prompts)
        self._name, self._digest, self._weights = files.name, files.digest, files.weights_digest
        self._tokenizer_digest = digest_of(tokenizer)
        self._pooling = description.pooling
        self.pools_spans = description.pools_spans
        self._torch = _import_torch()
        if threads is not None:
            self._torch.set_num_threads(threads)  # for the whole process: torch has no narrower setting
        self._device = _chosen(device, self._torch)
        self._precision = {"auto": "bf16" if self._device == "cuda" else "f32"}.get(precision, precision)
        self._model = _load(files.folder, self._device, self._precision, description.max_tokens)
        self._whole_dimension = int(self._model.get_embedding_dimension())
        self.dimension = cut_dimension(dimension, self._whole_dimension)
        self.tokens_per_pass = _TOKENS[self._device]
        self._turn = TorchTurn()

    questions_alone = True

    @classmethod
    def open(
        cls,
        model: ModelFiles | Path | str | Mapping[str, Path],
        *,
        threads: int | None = None,
        precision: str = "auto",
        device: str = "auto",
        prompts: Prompts = NO_PROMPTS,
        dimension: int | None = None,
        name: str = "",
    ) -> TorchEmbedder:
        """Open a sentence-transformers model: a `ModelFiles`, a folder, a name (see `find_model`), or files by path.

        threads: torch's threads in the whole process; None leaves them unchanged. precision: "auto" (bf16 on a GPU, f32
        on the CPU), "f32" or "bf16". device: "auto" (a GPU, if torch has one), "cuda" or "cpu". prompts: the prefixes
        of texts. dimension: the dimension that vectors are truncated to; None for the model's own. name: the name of a
        model that is passed as files by path. Raises ModelUnavailable if the model, the device or a package is missing,
        ConfigurationError for a model that would run its own code.
        """
        settings: dict[str, Any] = {
            "threads": threads,
            "precision": precision,
            "device": device,
            "prompts": prompts,
            "dimension": dimension,
        }
        if not isinstance(model, Mapping):
            return cls(model if isinstance(model, ModelFiles) else find_model(model), **settings)
        with tempfile.TemporaryDirectory(prefix="indexmill-model-") as folder:
            for path, file in sorted(model.items()):
                link = Path(folder) / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(file).absolute())
            return cls(ModelFiles(name, Path(folder)), **settings)

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """The inputs that determine the vectors. The first access runs the self-test."""
        import sentence_transformers
        import tokenizers
        import transformers

        cuda = self._torch.cuda
        return EncoderFingerprint(
            model=self._name,
            weights=self._weights,
            tokenizer=self._tokenizer_digest,
            graph="",
            backend="torch",
            precision=self._precision,
            instructions="sm_{}{}".format(*cuda.get_device_capability())
            if self._device == "cuda"
            else str(self._torch.backends.cpu.get_cpu_capability()),
            pooling=self._pooling,
            max_tokens=self.max_tokens,
            dimension=self.dimension,
            libraries={
                "sentence-transformers": sentence_transformers.__version__,
                "tokenizers": tokenizers.__version__,
                "torch": str(self._torch.__version__),
                "transformers": transformers.__version__,
            },
            reproducible=self._is_reproducible(),
            files=self._digest,
            query_prompt=self.prompts.query,
            document_prompt=self.prompts.document,
            whole_dimension=self._whole_dimension if self.dimension < self._whole_dimension else 0,
            device=f"cuda {cuda.get_device_name()}" if self._device == "cuda" else "cpu",
        )

    def _encoded(self, passes: Iterable[Pass]) -> Iterator[Encoded]:
        for batch in passes:
            yield self._run(partial(self._pass, batch))

    def _pass(self, batch: Pass) -> Encoded:
        encode = self._model.encode_query if batch.query else self._model.encode_document
        count, length = batch.ids.shape
        rows = 1 if batch.query else self._texts_per_pass(length)
        texts = [*batch.texts, *batch.texts[:1] * (rows - count)]
        ask = partial(encode, texts, prompt=self._prompt(batch.query), batch_size=len(texts), show_progress_bar=False)
        if not batch.states:
            return Encoded(np.asarray(ask(), np.float32)[:count], None)
        features_by_text = ask(output_value=None)[:count]
        vectors = _array(self._torch.stack([features["sentence_embedding"] for features in features_by_text]))
        states = _array(self._torch.stack([features["token_embeddings"] for features in features_by_text]))
        if states.shape[1] != length:
            raise ConfigurationError(
                f"{self._name}: sentence-transformers reads {states.shape[1]} tokens, but tokenizer.json gives "
                f"{length}, so sentences cannot be pooled; set embed.sentences to separate"
            )
        return Encoded(vectors, states)

    def _of_spans(self, means: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._run(partial(self._projected, means))

    def _run(self, act: Callable[[], _Result]) -> _Result:
        """Run an action on the device, one thread at a time; raises ModelUnavailable if a GPU fails."""
        try:
            return self._turn.run(act)
        except _gpu_errors(self._torch) as error:
            raise ModelUnavailable(
                f"the GPU cannot run {self._name} ({error!s:.300}): start fewer workers on it, free its memory, or set "
                "embed.device to cpu; a reader uses the CPU if CUDA_VISIBLE_DEVICES is empty"
            ) from error

    def _projected(self, means: NDArray[np.float32]) -> NDArray[np.float32]:
        """Pass the mean hidden states of spans through the modules after the pooling."""
        modules = list(self._model)
        after = modules[1 + next(at for at, module in enumerate(modules) if type(module).__name__ == "Pooling") :]
        if not after:
            return means
        with self._torch.inference_mode():
            means_tensor = self._torch.from_numpy(means).to(self._model.device, self._model.dtype)
            features = {"sentence_embedding": means_tensor}
            for module in after:
                features = module(features)
            return _array(features["sentence_embedding"])


def _array(tensor: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.float().cpu().numpy()
    return array


def _gpu_errors(torch: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that torch raises if a GPU fails or runs out of memory."""
    return tuple(getattr(torch, name) for name in ("OutOfMemoryError", "AcceleratorError") if hasattr(torch, name))


def _import_torch() -> Any:
    try:
        import torch  # heavy, and only this back-end needs it
    except ImportError as error:
        raise not_installed("running the encoder in torch", "torch", error, extra="encoders") from error
    return torch


def _chosen(device: str, torch: Any) -> str:
    if device not in ("auto", "cuda", "cpu"):
        raise ConfigurationError(f"device is {device!r}; it must be auto, cuda or cpu")
    there = bool(torch.cuda.is_available())
    if device == "cuda" and not there:
        raise ModelUnavailable("embed.device is cuda, and torch has no GPU here; set it to cpu, or to auto")
    return "cuda" if there and device != "cpu" else "cpu"


def _load(folder: Path, device: str, precision: str, max_tokens: int) -> Any:
    """Load a model from local files, without running the model's code or opening pickles; raises ModelUnavailable."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with quiet():
        torch = _import_torch()
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging as transformers_logging
        except ImportError as error:
            raise not_installed(
                "running the encoder in torch", "sentence_transformers", error, extra="encoders"
            ) from error
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the library's own
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        try:
            model: Any = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": kind, "use_safetensors": True},
            )
        except _gpu_errors(torch) as error:
            raise ModelUnavailable(
                f"the GPU has no room for {folder.name} ({error!s:.300}): start fewer workers on it, or set "
                "embed.device to cpu"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
            raise ModelUnavailable(
                f"{folder}: sentence-transformers cannot open this model: {type(error).__name__}: {error!s:.500}"
            ) from error
        model = model.eval().to(kind)
        if type(model[0]).__name__ == "Transformer":
            model.max_seq_length = max_tokens
        return model
