"""Graphs whose products see few numbers of rows give what they gave, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.padded_rows import pad_rows, padded_rows
from tests.deep import WHOLE
from tests.encoders import needs_model, written

pytestmark = needs_model

WIDTH, WORDS, LONGEST = 32, 200, 96


@given(st.integers(1, 20_000))
def test_rows_are_filled_up_to_a_few_numbers(rows: int) -> None:
    filled = padded_rows(rows)
    assert rows <= filled < rows + 64
    assert padded_rows(filled) == filled
    assert filled - rows < max(4, rows / 2)


def test_full_passes_have_few_numbers_of_rows() -> None:
    assert len({padded_rows(rows) for rows in range(1, 1025)}) == 34


def _openvino() -> Any:
    from indexmill.models.openvino_encoder import import_openvino

    return import_openvino()


def _core() -> Any:
    from indexmill.models.openvino_encoder import openvino_core

    return openvino_core()


def _compiled(graph: Any) -> Any:
    return _core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def _ask(compiled: Any, ids: Any) -> Any:
    more = {1: np.array([padded_rows(ids.size)])} if len(compiled.inputs) == 2 else {}
    return compiled({0: ids, **more})[0].copy()


def _ids(shape: tuple[int, int], seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).integers(0, WORDS, shape)


def _bert() -> Any:
    from tasks.core.bert_graph import bert_graph

    chance = np.random.default_rng(3)
    inner = 48
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (LONGEST, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in (0, 1):
        name = f"encoder.layer.{layer}."
        dense = {f"attention.self.{one}": (WIDTH, WIDTH) for one in ("query", "key", "value")}
        dense |= {"attention.output.dense": (WIDTH, WIDTH)}
        dense |= {"intermediate.dense": (inner, WIDTH), "output.dense": (WIDTH, inner)}
        for one, shape in dense.items():
            shapes |= {f"{name}{one}.weight": shape, f"{name}{one}.bias": shape[:1]}
        for one in ("attention.output", "output"):
            shapes |= {f"{name}{one}.LayerNorm.{kind}": (WIDTH,) for kind in ("weight", "bias")}
    tensors = {name: chance.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    config = {"num_attention_heads": 4, "hidden_size": WIDTH, "num_hidden_layers": 2, "layer_norm_eps": 1e-5}
    return bert_graph(config, tensors)


def _products(graph: Any) -> list[Any]:
    return [node for node in graph.get_ordered_ops() if node.get_type_name() == "MatMul"]


def _shapes(most: int = 1024) -> Iterator[tuple[int, int]]:
    chance = np.random.default_rng(1)
    while True:
        length = int(chance.integers(3, LONGEST + 1))
        yield int(chance.integers(1, max(1, most // length) + 1)), length


@pytest.mark.slow
def test_a_transformer_gives_the_bits_that_it_gave() -> None:
    whole, padded = _bert(), _bert()
    assert pad_rows(_openvino(), padded)
    products = _products(padded)
    assert len(products) == 12
    assert all(node.get_input_partial_shape(0)[0] == 1 for node in products)
    one, other = _compiled(whole), _compiled(padded)
    for _, shape in zip(range(40), _shapes(), strict=False):
        ids = _ids(shape)
        assert np.array_equal(_ask(one, ids), _ask(other, ids)), shape


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [60, 1000 if WHOLE else 250])
def test_a_text_has_the_same_bits_alone_in_any_batch_and_after_many_shapes(shapes: int) -> None:
    graph = _bert()
    assert pad_rows(_openvino(), graph)
    encoder = _compiled(graph)
    lengths = (3, 4, 15, 16, 17, 40, LONGEST)
    alone = {length: _ask(encoder, _ids((1, length)))[0] for length in lengths}
    met = set()
    for shape in _shapes(256):
        met.add(shape)
        assert np.isfinite(_ask(encoder, _ids(shape))).all()
        if len(met) == shapes:
            break
    fresh = _compiled(graph)
    for length in lengths:
        text = _ids((1, length))
        assert np.array_equal(_ask(encoder, text)[0], alone[length])
        for others, place in ((1, 0), (3, 2), (8, 5)):
            batch = _ids((others + 1, length), seed=others)
            batch[min(place, others)] = text[0]
            assert np.array_equal(_ask(encoder, batch)[min(place, others)], alone[length])
            assert np.array_equal(_ask(fresh, batch)[min(place, others)], alone[length])


@pytest.mark.slow
def test_the_default_encoder_gives_the_bits_that_its_files_give(tmp_path: Path) -> None:
    path = str(written(tmp_path) / "openvino.xml")
    core = _core()
    padded = core.read_model(path)
    assert pad_rows(_openvino(), padded)
    assert all(node.get_input_partial_shape(0)[0] == 1 for node in _products(padded))
    one, other = _compiled(core.read_model(path)), _compiled(padded)
    for shape in ((1, 3), (1, 12), (7, 13), (2, 200), (20, 16), (3, 77)):
        assert np.array_equal(_ask(one, _ids(shape)), _ask(other, _ids(shape))), shape


Build = Callable[[Any, Any, Any], Any]
"""Makes what a graph gives from the operations, the token ids and the embedded tokens ``(texts, tokens, WIDTH)``."""


def _small(build: Build) -> Any:
    openvino = _openvino()
    op = openvino.opset13
    ids = op.parameter([-1, -1], np.int64, name="ids")
    table = np.random.default_rng(2).normal(size=(WORDS, WIDTH)).astype(np.float32)
    return openvino.Model([op.result(build(op, ids, op.gather(table, ids, np.int64(0))))], [ids], "small")


def _weights(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)


def _product(op: Any, rows: Any, seed: int = 0) -> Any:
    return op.matmul(rows, _weights(seed), False, True)


def _positions(op: Any, ids: Any) -> Any:
    length = op.gather(op.shape_of(ids), np.array([1]), np.int64(0))
    table = np.random.default_rng(5).normal(size=(1, LONGEST, WIDTH)).astype(np.float32)
    return op.slice(table, np.array([0]), length, np.array([1]), np.array([1]))


BUILDS: dict[str, Build] = {
    "a product alone": lambda op, ids, rows: _product(op, rows),
    "a product that is read twice": lambda op, ids, rows: op.add(
        op.reduce_mean(found := _product(op, rows), np.array([1]), True), op.gelu(found, "erf")
    ),
    "a sum with what was before": lambda op, ids, rows: op.add(_product(op, rows), rows),
    "a sum over all tokens of a text": lambda op, ids, rows: op.reduce_sum(_product(op, rows), np.array([1]), False),
    "positions after a product": lambda op, ids, rows: op.relu(op.add(_product(op, rows), _positions(op, ids))),
    "a norm over tokens": lambda op, ids, rows: op.mvn(_product(op, rows), np.array([1]), True, 1e-5, "INSIDE_SQRT"),
    "a norm over numbers": lambda op, ids, rows: op.mvn(_product(op, rows), np.array([2]), True, 1e-5, "INSIDE_SQRT"),
    "a soft maximum over tokens": lambda op, ids, rows: op.softmax(_product(op, rows), 1),
    "a constant for each position": lambda op, ids, rows: op.add(
        _product(op, op.slice(rows, np.array([0]), np.array([3]), np.array([1]), np.array([1]))),
        np.random.default_rng(6).normal(size=(1, 3, WIDTH)).astype(np.float32),
    ),
    "weights that depend on the text": lambda op, ids, rows: op.matmul(rows, rows, False, True),
    "the halves of a product": lambda op, ids, rows: _product(
        op, op.concat(op.split(_product(op, rows), np.int64(2), 2).outputs()[::-1], 2), 1
    ),
    "a text's mean beside its tokens": lambda op, ids, rows: op.add(
        _product(op, rows), _product(op, op.reduce_mean(rows, np.array([1]), True), 1)
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_whatever_lies_around_a_product_the_result_stays(name: str) -> None:
    whole, padded = _small(BUILDS[name]), _small(BUILDS[name])
    changed = pad_rows(_openvino(), padded)
    assert changed == (name not in ("weights that depend on the text", "a constant for each position"))
    one, other = _compiled(whole), _compiled(padded)
    for shape in ((1, 3), (2, 3), (4, 20), (9, 29), (3, 17)):
        assert np.array_equal(_ask(one, _ids(shape)), _ask(other, _ids(shape))), shape


@pytest.mark.slow
def test_the_texts_that_fill_no_pass_go_in_few_numbers(tmp_path: Path) -> None:
    from indexmill.models.openvino_encoder import OpenVINOEmbedder

    encoder = OpenVINOEmbedder.open(written(tmp_path), streams=2)
    met: list[int] = []
    infer = encoder._inputs

    def counted(ids: Any) -> Any:
        met.append(len(ids))
        return infer(ids)

    encoder._inputs = counted  # type: ignore[method-assign]
    texts = [f"{word} " * 198 for word in ("mill", "bridge", "river", "stone", "tower", "field", "house", "road")]
    several = encoder.encode(texts)  # of 200 tokens, 5 of which fill a pass
    assert met == [5, 2, 1]
    assert np.array_equal(encoder.encode(texts[:1])[0], several[0])
    assert np.array_equal(encoder.encode(texts[5:])[::-1], several[:4:-1])
    assert met[3:] == [1, 2, 1]
