"""What every encoder promises (`indexmill.models.embedder.Embedder`): the double, and the model in both back-ends."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from indexmill.models.embedder import Embedder, HashEmbedder, self_test
from indexmill.models.sentence_model import DEFAULT_MODEL
from tests.encoders import WORDS, needs_model, texts, written

TEXTS = ["The river ran past the old mill.", "The river runs past the mill.", "Tax law of 1921.", "", "  \n "]


@pytest.fixture(
    scope="module",
    params=[
        "hash",
        pytest.param("openvino", marks=needs_model),
        pytest.param("torch", marks=[needs_model, pytest.mark.slow]),
    ],
)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    if request.param == "hash":
        return HashEmbedder()
    if request.param == "torch":
        from indexmill.models.torch_encoder import TorchEmbedder

        return TorchEmbedder.open(DEFAULT_MODEL)
    from indexmill.models.openvino_encoder import OpenVINOEmbedder

    return OpenVINOEmbedder.open(written(tmp_path_factory.mktemp("encoder")))


def same(encoder: Embedder, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether vectors are the same: to the bit, but for an encoder that says it is not reproducible."""
    return np.array_equal(one, other) if encoder.fingerprint.reproducible else np.allclose(one, other, atol=1e-5)


def test_vectors_have_length_one_and_are_similar_for_similar_texts(encoder: Embedder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (5, encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert vectors[0] @ vectors[1] > 0.6 > 0.4 > vectors[0] @ vectors[2]


def test_no_texts_give_no_rows(encoder: Embedder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimension)
    vectors, spans = encoder.encode_with_spans([], [])
    assert vectors.shape == spans.shape == (0, encoder.dimension)


def test_empty_and_odd_texts_have_vectors(encoder: Embedder) -> None:
    vectors = encoder.encode(["", " \n", "\x00", "a\ud800b", "😀", "今日は", "x" * 5000, "e\u0301"])
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.slow
def test_the_fingerprint_is_plain_data_and_tells_whether_bits_depend_on_company(encoder: Embedder) -> None:
    fingerprint = encoder.fingerprint
    assert json.loads(json.dumps(fingerprint.as_dict()))["dimension"] == encoder.dimension
    assert self_test(encoder) == fingerprint.reproducible


def test_a_span_without_a_token_gets_a_pass_of_its_own(encoder: Embedder) -> None:
    text = " ".join(WORDS * 20) + " a last sentence"  # which is cut off
    _, spans = encoder.encode_with_spans([text], [[(0, 10), (len(text) - 15, len(text)), (3, 4)]])
    assert np.array_equal(spans[1], encoder.encode(["a last sentence"])[0])
    assert np.array_equal(spans[2], encoder.encode([" "])[0])
    assert not np.array_equal(spans[0], encoder.encode([text[:10]])[0])  # pooled: it saw its surroundings


@pytest.mark.slow
def test_spans_are_counted_in_the_order_of_texts_and_of_spans(encoder: Embedder) -> None:
    _, forward = encoder.encode_with_spans(["a b", "c d e"], [[(0, 1)], [(0, 1), (4, 5)]])
    _, backward = encoder.encode_with_spans(["c d e", "a b"], [[(4, 5), (0, 1)], [(0, 1)]])
    assert same(encoder, forward, backward[[2, 1, 0]])


def test_spans_must_stand_beside_their_texts(encoder: Embedder) -> None:
    with pytest.raises(ValueError, match="2 texts, but spans for 1"):
        encoder.encode_with_spans(["a", "b"], [[]])


def test_tokens_are_counted_uncut_with_the_special_ones(encoder: Embedder) -> None:
    text = "A mill, a bridge. " * 200
    (offsets,) = encoder.token_offsets([text])
    assert encoder.count_tokens([text, ""]).tolist() == [len(offsets) + encoder.special_tokens, encoder.special_tokens]
    assert len(offsets) > encoder.max_tokens
    assert [text[start:end] for start, end in offsets[:3].tolist()] == ["A", "mill", ","]
    assert text[slice(*offsets[-1].tolist())] == "."


@pytest.mark.slow
def test_threads_may_share_an_encoder(encoder: Embedder) -> None:
    own = texts(20, seed=5)
    expected = encoder.encode(own)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encoder.encode(own), range(6)):
            assert same(encoder, vectors, expected)
