"""Rerankers of a question's hits: models that read the question and a text together.

Retrieval compares vectors that were computed separately; a reranker reads both texts together. This requires a pass of
the model for each hit, so only the first hits are reranked (``indexmill.retrieve.rerank``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput, ModelUnavailable
from indexmill.extras import not_installed
from indexmill.forks import TorchTurn
from indexmill.models.secrets import RERANK_KEY_ENV
from indexmill.store.canonical import digest_of_file

Scores = npt.NDArray[np.float64]

BATCH = 32
"""The maximum number of texts in one pass."""


class Reranker(Protocol):
    """A model that scores how well texts answer a question. Thread-safe."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The inputs that determine the scores, as JSON values without secrets."""
        ...

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        """Score how well each text answers the question: ``(n_texts,)``, finite, higher is better. A pure function."""
        ...


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder in a local folder; needs ``indexmill[rerank]``.

    The score is the logit of the model's single output; a model with several outputs, such as an entailment model, is
    rejected. It runs in float32 on the CPU.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Load the model; raises ModelUnavailable if the package or model is missing, or it is not a cross-encoder."""
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            raise ModelUnavailable(
                f"{folder} is not a folder with a model (config.json): give the path of a sentence-transformers "
                "cross-encoder, or the URL of an endpoint"
            )
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise not_installed("a cross-encoder", "sentence_transformers", error) from None
        try:
            self._model = CrossEncoder(str(self.folder), device="cpu", local_files_only=True)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelUnavailable(f"{folder}: cannot be opened as a cross-encoder: {error}") from error
        if self._model.num_labels != 1:
            raise ModelUnavailable(f"{folder}: has {self._model.num_labels} outputs; a reranker has one")
        self._identity: Any = torch.nn.Identity()
        self._turn = TorchTurn()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """See ``Reranker``. Weights are included as digests."""
        import sentence_transformers

        settings = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return {
            "backend": "cross-encoder",
            "model": self.folder.resolve().name,
            "architecture": settings.get("architectures"),
            "weights": {path.name: digest_of_file(path) for path in sorted(self.folder.glob("*.safetensors"))},
            "libraries": {"sentence-transformers": sentence_transformers.__version__},
        }

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        if not texts:
            return np.empty(0)
        predict = partial(
            self._model.predict,
            [(question, text) for text in texts],
            batch_size=BATCH,
            show_progress_bar=False,
            activation_fn=self._identity,
            convert_to_numpy=True,
        )
        scores = self._turn.run(predict)
        return np.asarray(scores, dtype=np.float64).reshape(len(texts))


def open_reranker(
    place: str | os.PathLike[str],
    model: str | None = None,
    *,
    api_key_env: str = RERANK_KEY_ENV,
    timeout_seconds: float = 60.0,
) -> Reranker:
    """Open a reranker; see ``indexmill.open_reranker``."""
    if isinstance(place, str) and "://" in place:
        from indexmill.models.rerank_endpoint import RerankEndpoint

        return RerankEndpoint(place, model, api_key_env, timeout_seconds)
    if model is not None:
        raise BadInput(f"{place} is a folder, which contains one model: name a model only with an endpoint's URL")
    return CrossEncoderReranker(place)
