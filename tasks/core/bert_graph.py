"""A BERT encoder as an OpenVINO graph, built from its weights without torch.

Importing torch and transformers to trace the default model takes ten times as long as building its graph does. Other
architectures are traced: see `convert`.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", section 3, with the parameter names of
its published weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.models.openvino_encoder import import_openvino

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_EXPECTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}


def is_bert(config: Mapping[str, Any]) -> bool:
    """Return whether `bert_graph` can build the model that a config.json describes."""
    return all(config.get(name) in allowed for name, allowed in _EXPECTED.items())


def bert_graph(config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Any:
    """Build the graph from token ids ``(texts, tokens) int64`` to hidden states ``(texts, tokens, hidden) float32``.

    All texts have the same number of tokens, so nothing is masked. tensors: the weights by their published names, with
    or without the prefix ``bert.``. The hidden states are the last layer's. Raises KeyError if a weight is missing.
    """
    return _Graph(config, tensors).build()


class _Graph:
    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> None:
        self._openvino = import_openvino()
        self._op = self._openvino.opset13
        self._heads = int(config["num_attention_heads"])
        self._width = int(config["hidden_size"]) // self._heads
        self._layers = int(config["num_hidden_layers"])
        self._epsilon = float(config["layer_norm_eps"])
        self._tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}

    def build(self) -> Any:
        op = self._op
        ids = op.parameter([-1, -1], np.int64, name="input_ids")
        states = self._embedded(ids)
        for layer in range(self._layers):
            states = self._layer(states, f"encoder.layer.{layer}.")
        result = op.result(states)
        result.output(0).set_names({"last_hidden_state"})
        return self._openvino.Model([result], [ids], "encoder")

    def _embedded(self, ids: Any) -> Any:
        """Return the normalised sum of word, position and first token-type embeddings."""
        op = self._op
        length = op.gather(op.shape_of(ids, output_type="i32"), _whole([1]), _whole(0))
        positions = op.slice(self._weight("embeddings.position_embeddings.weight"), _whole([0]), length, _whole([1]))
        kind = self._tensors["embeddings.token_type_embeddings.weight"][0]
        words = op.gather(self._weight("embeddings.word_embeddings.weight"), op.convert(ids, "i32"), _whole(0))
        return self._normalised(op.add(op.add(words, op.constant(_wide(kind))), positions), "embeddings.LayerNorm")

    def _layer(self, states: Any, name: str) -> Any:
        op = self._op
        query, key, value = (self._split(self._dense(states, f"{name}attention.self.{part}")) for part in _PARTS)
        mixed = op.scaled_dot_product_attention(query, key, value)
        joined = op.reshape(op.transpose(mixed, _whole([0, 2, 1, 3])), _whole([0, 0, -1]), special_zero=True)
        attended = self._dense(joined, f"{name}attention.output.dense")
        states = self._normalised(op.add(attended, states), f"{name}attention.output.LayerNorm")
        inner = op.gelu(self._dense(states, f"{name}intermediate.dense"), "erf")
        return self._normalised(op.add(self._dense(inner, f"{name}output.dense"), states), f"{name}output.LayerNorm")

    def _split(self, states: Any) -> Any:
        """Split states into heads: ``(texts, heads, tokens, width)``."""
        op = self._op
        shape = _whole([0, 0, self._heads, self._width])
        return op.transpose(op.reshape(states, shape, special_zero=True), _whole([0, 2, 1, 3]))

    def _dense(self, states: Any, name: str) -> Any:
        product = self._op.matmul(states, self._weight(f"{name}.weight"), False, True)
        return self._op.add(product, self._op.constant(_wide(self._tensors[f"{name}.bias"])))

    def _normalised(self, states: Any, name: str) -> Any:
        op = self._op
        centred = op.mvn(states, _whole([-1]), True, self._epsilon, "INSIDE_SQRT")
        scaled = op.multiply(centred, op.constant(_wide(self._tensors[f"{name}.weight"])))
        return op.add(scaled, op.constant(_wide(self._tensors[f"{name}.bias"])))

    def _weight(self, name: str) -> Any:
        return self._op.constant(np.ascontiguousarray(self._tensors[name], np.float32))


_PARTS = ("query", "key", "value")


def _whole(values: int | list[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def _wide(row: NDArray[Any]) -> NDArray[np.float32]:
    """Return a row of weights, shaped to apply to every text and token."""
    return np.ascontiguousarray(row, np.float32).reshape(1, 1, -1)
