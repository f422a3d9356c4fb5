"""The torch back-end: the model as it is published, for comparison and for processors that OpenVINO does not know.

Its matrix products choose their kernel by the number of rows, so in f32 a text's last bits may depend on how many
others share a pass; the self-test tells, and the fingerprint says so.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.errors import ConfigurationError
from indexmill.forks import TorchTurn
from indexmill.models.convert import ModelFiles, find_model, load_transformer, read_modules
from indexmill.models.embedder import EncoderFingerprint, TokenEncoder
from indexmill.store.canonical import digest_of, digest_of_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TorchEmbedder"]


class TorchEmbedder(TokenEncoder):
    """An Embedder that runs a sentence-transformers model in torch; open it with `TorchEmbedder.open`."""

    def __init__(self, files: ModelFiles, *, threads: int | None, precision: str) -> None:
        if precision not in ("auto", "f32", "bf16"):
            raise ConfigurationError(f"precision is {precision!r}; it must be auto, f32 or bf16")
        self._files = files
        self._settings = read_modules(files)
        tokenizer = (files.folder / "tokenizer.json").read_bytes()
        super().__init__(tokenizer, int(self._settings["max_tokens"]))
        self.dimension = int(self._settings["dimension"])
        self._tokenizer_digest = digest_of(tokenizer)
        self._transformer = load_transformer(files)
        import torch

        self._precision = "f32" if precision == "auto" else precision
        if self._precision == "bf16":
            self._transformer = self._transformer.to(torch.bfloat16)
        if threads is not None:
            torch.set_num_threads(threads)  # of the whole process: torch has no other way
        self._torch = torch
        self._turn = TorchTurn()

    @classmethod
    def open(
        cls, model: ModelFiles | Path | str, *, threads: int | None = None, precision: str = "auto"
    ) -> TorchEmbedder:
        """Open a sentence-transformers model: its files, folder or name (see `find_model`).

        `threads` sets torch's threads for the whole process. `precision` is "auto" (f32), "f32" or "bf16".
        Raises ModelUnavailable where the model or torch is missing, ConfigurationError for a model of another make.
        """
        files = model if isinstance(model, ModelFiles) else find_model(model)
        return cls(files, threads=threads, precision=precision)

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """The inputs that determine the vectors. The first access runs the self-test."""
        import tokenizers
        import transformers

        return EncoderFingerprint(
            model=self._files.name,
            weights=digest_of_file(self._files.weights),
            tokenizer=self._tokenizer_digest,
            graph="",
            backend="torch",
            precision=self._precision,
            instructions=str(self._torch.backends.cpu.get_cpu_capability()),
            pooling=str(self._settings["pooling"]),
            max_tokens=self.max_tokens,
            dimension=self.dimension,
            libraries={
                "tokenizers": tokenizers.__version__,
                "torch": str(self._torch.__version__),
                "transformers": transformers.__version__,
            },
            reproducible=self._is_reproducible(),
        )

    def _hidden(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        return self._turn.run(partial(self._pass, ids))

    def _pass(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        with self._torch.inference_mode():
            states = self._transformer(input_ids=self._torch.from_numpy(ids), attention_mask=None).last_hidden_state
            hidden: NDArray[np.float32] = states.float().numpy()
        return hidden
