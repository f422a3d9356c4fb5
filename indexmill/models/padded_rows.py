"""An encoder's graph whose matrix products see few numbers of rows, so that its memory stays flat.

OpenVINO's processor plugin generates code for every number of rows that a matrix product meets and keeps it, in each
stream: 0.3 to 2 MB for each number with a model of six layers. A pass of n texts of m tokens has n * m rows, of which
a corpus shows hundreds. But everything in a transformer except attention reads each token alone. So between attentions
the tokens of a pass follow one another as if they were one text, filled up to the next step of `padded_rows`.
Attention sees the texts as they are: nothing is masked. In float32 a token keeps the bits that it has without this; in
bf16 the plugin fuses the graph otherwise, and a text has other bits, the same in every batch.

The graph is changed in memory when it is opened: an encoder's files, and with them its fingerprint, stay as they were.

Rejected: a bound on the plugin's cache, since CPU_RUNTIME_CACHE_CAPACITY is no public property, and a small cache
generates the same code again and again. Texts padded to a step of lengths behind a mask: other bits, and up to three
times the tokens for names. Few numbers of texts for each length, alone: the 254 lengths of the default model take 130
to 180 MB in each stream with a single number each. (Attention keeps 0.06 MB for each shape of a pass; there the few
numbers that `OpenVINOEmbedder` has are enough.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

_STEPS = ((32, 4), (128, 16), (256, 32), (768, 64), (1024, 32))
"""Up to so many rows, steps of so many: 34 numbers, and 2 % more rows in a full pass. Beyond the last, `_WIDEST`."""

_WIDEST = 64

_TRIED = ((5, 11), (7, 13))
"""Numbers of texts and tokens by which outputs with a row for each token are told from others."""

_ONE_OPERAND = frozenset({"Erf", "FakeQuantize", "Gelu", "MVN", "Relu", "Sigmoid", "Tanh"})
"""Operations on a token's numbers; their other inputs are constants."""

_TWO_OPERANDS = frozenset({"Add", "Divide", "Multiply", "Subtract"})


def padded_rows(rows: int) -> int:
    """The number of rows that a pass of so many is filled up to."""
    step = next((step for most, step in _STEPS if rows <= most), _WIDEST)
    return -(-rows // step) * step


def pad_rows(openvino: Any, graph: Any) -> bool:
    """Change a graph of token ids ``(texts, tokens)`` so that its products see `padded_rows`; its results stay.

    The graph gets a second input, ``(1,) int64``: the number of rows to fill up to. Returns False, and changes
    nothing, where no product reads each token alone.
    """
    nodes, rows = _token_wise(graph)
    if not nodes:
        return False
    _Padding(openvino.opset13, graph).apply(nodes, rows)
    return True


def _token_wise(graph: Any) -> tuple[list[Any], set[tuple[int, int]]]:
    """The nodes that read each token alone: products with weights, and what lies around them; what they read and make.

    Nodes are in the order of the graph.
    """
    tokens = _of_tokens(graph)
    fixed: set[tuple[int, int]] = set()  # outputs that depend on no input
    rows: set[tuple[int, int]] = set()  # outputs with a row for each token that such nodes read or make
    found: dict[int, Any] = {}
    for node in graph.get_ordered_ops():
        sources = node.input_values()
        if node.get_type_name() != "Parameter" and all(_key(source) in fixed for source in sources):
            fixed.update(_key(made) for made in node.outputs())
            continue
        varying = [source for source in sources if _key(source) not in fixed]
        constants = [source for source in sources if _key(source) in fixed]
        if node.get_type_name() == "MatMul":
            is_found = _is_product(node, constants) and _key(varying[0]) in tokens
        else:
            is_found = all(_key(source) in rows for source in varying) and _is_of_a_token(node, varying, constants)
        if is_found and _key(node.output(0)) in tokens:
            for one in (*_quantisers(node, fixed, tokens), node):
                found[one.get_instance_id()] = one
                read = [source for source in one.input_values() if _key(source) not in fixed]
                rows.update(map(_key, [*read, one.output(0)]))
    return list(found.values()), rows


def _of_tokens(graph: Any) -> set[tuple[int, int]]:
    """The outputs ``(texts, tokens, width)``, however many texts and tokens there are; none where that is not to say.

    Dimensions alone do not tell: the first tokens of each text have as many numbers of any size.
    """
    found: list[set[tuple[int, int]]] = []
    try:
        for shape in _TRIED:
            graph.reshape(list(shape))
            made = [output for node in graph.get_ordered_ops() for output in node.outputs()]
            found.append({_key(one) for one in made if _has_shape(one, shape)})
    except RuntimeError:  # such as one text where the graph wants pairs
        return set()
    finally:
        graph.reshape([-1, -1])
    return {
        _key(output)
        for node in graph.get_ordered_ops()
        for output in node.outputs()
        if all(_key(output) in one for one in found) and output.get_partial_shape()[2].is_static
    }


def _has_shape(output: Any, shape: tuple[int, int]) -> bool:
    found = output.get_partial_shape()
    return bool(found.is_static) and len(found) == 3 and tuple(found.to_shape())[:2] == shape


def _quantisers(product: Any, fixed: set[tuple[int, int]], tokens: set[tuple[int, int]]) -> list[Any]:
    """The nodes that scale and quantise what a product reads, which the plugin makes one with it; none elsewhere."""
    found: list[Any] = []
    node = product if product.get_type_name() == "MatMul" else None
    while node is not None:
        varying = [source for source in node.input_values() if _key(source) not in fixed]
        before = varying[0].get_node()
        if before.get_type_name() not in ({"FakeQuantize", "Multiply"} if found else {"FakeQuantize"}):
            break
        varying = [source for source in before.input_values() if _key(source) not in fixed]
        constants = [source for source in before.input_values() if _key(source) in fixed]
        if len(varying) != 1 or _key(varying[0]) not in tokens or not _is_of_a_token(before, varying, constants):
            break
        found.append(before)
        node = before
    return found[::-1]


def _key(output: Any) -> tuple[int, int]:
    return output.get_node().get_instance_id(), output.get_index()


def _is_product(node: Any, constants: list[Any]) -> bool:
    """True for a product of rows with a matrix of weights."""
    weights = node.input_value(1)
    return (
        len(constants) == 1
        and _key(constants[0]) == _key(weights)
        and weights.get_partial_shape().rank.get_length() == 2
        and not node.get_attributes()["transpose_a"]
    )


def _is_of_a_token(node: Any, varying: list[Any], constants: list[Any]) -> bool:
    """True for an operation on each token's numbers alone, whose operands have a row for each token."""
    kind = node.get_type_name()
    if not varying:
        return False
    if kind == "MVN":
        axes = constants[0].get_node() if constants else None
        return axes is not None and axes.get_type_name() == "Constant" and axes.data.tolist() in ([-1], [2])
    allowed = {1: _ONE_OPERAND | _TWO_OPERANDS, 2: _TWO_OPERANDS}.get(len(varying), frozenset())
    return kind in allowed and all(map(_is_same_for_all, constants))


def _is_same_for_all(constant: Any) -> bool:
    """True for numbers that every token of every text is combined with."""
    shape = constant.get_partial_shape()
    return bool(shape.is_static) and len(shape) <= 3 and all(size == 1 for size in list(shape.to_shape())[:-1])


class _Padding:
    def __init__(self, opset: Any, graph: Any) -> None:
        self._op = op = opset
        self._graph = graph
        self._wanted = op.parameter([1], np.int64, name="padded_rows")
        self._shape = op.shape_of(graph.input(0), output_type="i64")
        self._rows = op.reduce_prod(self._shape, self._whole(0), True)
        self._more = op.subtract(self._wanted, self._rows)
        self._padded: dict[tuple[int, int], Any] = {}

    def apply(self, nodes: list[Any], rows: set[tuple[int, int]]) -> None:
        """Have the nodes work on padded rows, and every other on texts. rows: outputs with a row for each token."""
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
        self._graph.add_parameters([self._wanted])
        self._graph.validate_nodes_and_infer_types()

    def _joined(self, source: Any) -> Any:
        """The tokens of all texts as if they were one, filled up with zeros."""
        if _key(source) not in self._padded:
            op = self._op
            together = op.reshape(source, self._whole(1, -1, _width(source)), False)
            shape = op.concat([self._whole(1), self._more, self._whole(_width(source))], 0)
            zeros = op.broadcast(op.constant(np.float32(0)), shape)
            self._padded[_key(source)] = op.concat([together, zeros], 1).output(0)
        return self._padded[_key(source)]

    def _texts(self, joined: Any) -> Any:
        """The texts again, without what was filled up."""
        op = self._op
        own = op.slice(joined, self._whole(0), self._rows, self._whole(1), self._whole(1))
        return op.reshape(own, op.concat([self._shape, self._whole(_width(joined))], 0), False).output(0)

    def _whole(self, *values: int) -> Any:
        return self._op.constant(np.array(values, np.int64))


def _width(output: Any) -> int:
    return int(output.get_partial_shape()[2].get_length())
