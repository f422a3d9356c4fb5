"""Padding the matrix products of an encoder's graph to a few row counts, so that its memory does not grow.

OpenVINO's CPU plugin generates code for every row count of a matrix product and keeps it, in each stream: 0.3 to 2 MB
per count with a model of six layers. A pass of n texts of m tokens has n * m rows, so a corpus has hundreds of counts.
But everything in a transformer except attention processes each token alone. So between attention layers the tokens of
a pass are joined as if they were one text, and padded to the row count of `padded_rows`. Attention sees the texts
unchanged, so nothing is masked. In float32, padding does not change the vectors; in bf16 the plugin fuses the graph
differently, so a text's last bits differ, but they are the same in every batch.

The graph is changed in memory when it is opened: an encoder's files, and hence its fingerprint, stay the same.

Rejected alternatives: bounding the plugin's cache, since CPU_RUNTIME_CACHE_CAPACITY is not a public property, and a
small cache generates the same code repeatedly; padding texts to a few lengths and masking them, which changes the bits
and triples the tokens of names; a few text counts per length, since the 254 lengths of the default model take 130 to
180 MB in each stream even with one count each. (Attention keeps 0.06 MB for each shape of a pass; the few text counts
of `OpenVINOEmbedder` suffice for that.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

_STEPS = ((32, 4), (128, 16), (256, 32), (768, 64), (1024, 32))
"""Pairs (maximum rows, step): 34 row counts, and 2 % more rows in a full pass. Above the last, it is `_WIDEST`."""

_WIDEST = 64

_TRIED = ((5, 11), (7, 13))
"""Two shapes (texts, tokens) that identify the outputs with a row for each token."""

_ONE_OPERAND = frozenset({"Erf", "FakeQuantize", "Gelu", "MVN", "Relu", "Sigmoid", "Tanh"})
"""Operations on one token's values; all other inputs are constants."""

_TWO_OPERANDS = frozenset({"Add", "Divide", "Multiply", "Subtract"})


def padded_rows(rows: int) -> int:
    """Return the number of rows to which a pass of `rows` rows is padded."""
    step = next((step for most, step in _STEPS if rows <= most), _WIDEST)
    return -(-rows // step) * step


def pad_rows(openvino: Any, graph: Any) -> bool:
    """Change a graph of token ids ``(texts, tokens)`` so that its products have ``padded_rows(n)`` rows.

    The results do not change. The graph gets a second input, ``(1,) int64``: the number of rows to pad to. Returns
    False, and changes nothing, if no product processes each token alone.
    """
    nodes, rows = _token_wise(graph)
    if not nodes:
        return False
    _Padding(openvino.opset13, graph).apply(nodes, rows)
    return True


def _token_wise(graph: Any) -> tuple[list[Any], set[tuple[int, int]]]:
    """Find the nodes that process each token alone, in graph order, and their outputs with a row for each token.

    These nodes are products with weights, and the operations around them.
    """
    tokens = _of_tokens(graph)
    fixed: set[tuple[int, int]] = set()  # outputs that depend on no input
    rows: set[tuple[int, int]] = set()  # outputs with a row for each token that such nodes read or produce
    token_wise: dict[int, Any] = {}
    for node in graph.get_ordered_ops():
        sources = node.input_values()
        if node.get_type_name() != "Parameter" and all(_key(source) in fixed for source in sources):
            fixed.update(_key(output) for output in node.outputs())
            continue
        varying = [source for source in sources if _key(source) not in fixed]
        constants = [source for source in sources if _key(source) in fixed]
        if node.get_type_name() == "MatMul":
            is_token_wise = _is_product(node, constants) and _key(varying[0]) in tokens
        else:
            is_token_wise = all(_key(source) in rows for source in varying) and _is_of_a_token(node, varying, constants)
        if is_token_wise and _key(node.output(0)) in tokens:
            for member in (*_quantisers(node, fixed, tokens), node):
                token_wise[member.get_instance_id()] = member
                read = [source for source in member.input_values() if _key(source) not in fixed]
                rows.update(map(_key, [*read, member.output(0)]))
    return list(token_wise.values()), rows


def _of_tokens(graph: Any) -> set[tuple[int, int]]:
    """Find the outputs of shape ``(texts, tokens, width)`` for any input; empty if the graph cannot be reshaped.

    Dynamic dimensions alone do not identify them: an output for the first tokens of each text has such dimensions too.
    """
    by_shape: list[set[tuple[int, int]]] = []
    try:
        for shape in _TRIED:
            graph.reshape(list(shape))
            outputs = [output for node in graph.get_ordered_ops() for output in node.outputs()]
            by_shape.append({_key(output) for output in outputs if _has_shape(output, shape)})
    except RuntimeError:  # such as one text if the graph expects pairs
        return set()
    finally:
        graph.reshape([-1, -1])
    return {
        _key(output)
        for node in graph.get_ordered_ops()
        for output in node.outputs()
        if all(_key(output) in keys for keys in by_shape) and output.get_partial_shape()[2].is_static
    }


def _has_shape(output: Any, shape: tuple[int, int]) -> bool:
    actual = output.get_partial_shape()
    return bool(actual.is_static) and len(actual) == 3 and tuple(actual.to_shape())[:2] == shape


def _quantisers(product: Any, fixed: set[tuple[int, int]], tokens: set[tuple[int, int]]) -> list[Any]:
    """Find the nodes that scale and quantise a product's input, and that the plugin fuses with the product."""
    quantisers: list[Any] = []
    node = product if product.get_type_name() == "MatMul" else None
    while node is not None:
        varying = [source for source in node.input_values() if _key(source) not in fixed]
        before = varying[0].get_node()
        if before.get_type_name() not in ({"FakeQuantize", "Multiply"} if quantisers else {"FakeQuantize"}):
            break
        varying = [source for source in before.input_values() if _key(source) not in fixed]
        constants = [source for source in before.input_values() if _key(source) in fixed]
        if len(varying) != 1 or _key(varying[0]) not in tokens or not _is_of_a_token(before, varying, constants):
            break
        quantisers.append(before)
        node = before
    return quantisers[::-1]


def _key(output: Any) -> tuple[int, int]:
    return output.get_node().get_instance_id(), output.get_index()


def _is_product(node: Any, constants: list[Any]) -> bool:
    """Return True for a matrix product of rows and weights."""
    weights = node.input_value(1)
    return (
        len(constants) == 1
        and _key(constants[0]) == _key(weights)
        and weights.get_partial_shape().rank.get_length() == 2
        and not node.get_attributes()["transpose_a"]
    )


def _is_of_a_token(node: Any, varying: list[Any], constants: list[Any]) -> bool:
    """Return True for an operation on each token's values alone, whose operands have a row for each token."""
    kind = node.get_type_name()
    if not varying:
        return False
    if kind == "MVN":
        axes = constants[0].get_node() if constants else None
        return axes is not None and axes.get_type_name() == "Constant" and axes.data.tolist() in ([-1], [2])
    allowed = {1: _ONE_OPERAND | _TWO_OPERANDS, 2: _TWO_OPERANDS}.get(len(varying), frozenset())
    return kind in allowed and all(map(_is_same_for_all, constants))


def _is_same_for_all(constant: Any) -> bool:
    """Return True for a constant that is combined with every token of every text."""
    shape = constant.get_partial_shape()
    return bool(shape.is_static) and len(shape) <= 3 and all(size == 1 for size in list(shape.to_shape())[:-1])


class _Padding:
    def __init__(self, opset: Any, graph: Any) -> None:
        self._op = op = opset
        self._graph = graph
        self._padded_rows = op.parameter([1], np.int64, name="padded_rows")
        self._shape = op.shape_of(graph.input(0), output_type="i64")
        self._rows = op.reduce_prod(self._shape, self._whole(0), True)
        self._more = op.subtract(self._padded_rows, self._rows)
        self._padded: dict[tuple[int, int], Any] = {}

    def apply(self, nodes: list[Any], rows: set[tuple[int, int]]) -> None:
        """Make `nodes` process padded rows, and all other nodes separate texts. rows: outputs with a row per token."""
        chosen = {node.get_instance_id() for node in nodes}
        for node in nodes:
            for operand in node.inputs():
                source = operand.get_source_output()
                if source.get_node().get_instance_id() not in chosen and _key(source) in rows:
                    operand.replace_source_output(self._joined(source))
        for node in nodes:
            users = [
                user for user in node.output(0).get_target_inputs() if user.get_node().get_instance_id() not in chosen
            ]
            if users:
                texts = self._texts(node.output(0))
                for user in users:
                    user.replace_source_output(texts)
        self._graph.add_parameters([self._padded_rows])
        self._graph.validate_nodes_and_infer_types()

    def _joined(self, source: Any) -> Any:
        """Join the tokens of all texts as one text, padded with zeros."""
        if _key(source) not in self._padded:
            op = self._op
            together = op.reshape(source, self._whole(1, -1, _width(source)), False)
            shape = op.concat([self._whole(1), self._more, self._whole(_width(source))], 0)
            zeros = op.broadcast(op.constant(np.float32(0)), shape)
            self._padded[_key(source)] = op.concat([together, zeros], 1).output(0)
        return self._padded[_key(source)]

    def _texts(self, joined: Any) -> Any:
        """Split joined tokens into texts again, without the padding."""
        op = self._op
        tokens = op.slice(joined, self._whole(0), self._rows, self._whole(1), self._whole(1))
        return op.reshape(tokens, op.concat([self._shape, self._whole(_width(joined))], 0), False).output(0)

    def _whole(self, *values: int) -> Any:
        return self._op.constant(np.array(values, np.int64))


def _width(output: Any) -> int:
    return int(output.get_partial_shape()[2].get_length())
