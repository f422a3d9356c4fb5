from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder, self_test
from tests.deep import examples


@examples(8, deep=40)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_text_has_the_same_bits_in_any_company(texts: list[str], chance: object) -> None:
    embedder = HashEmbedder(max_tokens=24)
    spans = [[(0, len(text) // 2), (len(text) // 2, len(text))] for text in texts]
    together, of_spans = embedder.encode_with_spans(texts, spans)
    assert np.array_equal(together, embedder.encode(texts))
    for row, text in enumerate(texts):
        alone, alone_spans = embedder.encode_with_spans([text], [spans[row]])
        assert np.array_equal(alone[0], together[row])
        assert np.array_equal(alone_spans, of_spans[2 * row : 2 * row + 2])


def test_a_span_depends_on_the_passage_around_it() -> None:
    _, spans = HashEmbedder().encode_with_spans(["the mill burnt", "the mill stood"], [[(0, 8)], [(0, 8)]])
    assert not np.array_equal(spans[0], spans[1])
    assert spans[0] @ spans[1] > 0.9


def test_a_long_text_is_cut_at_the_maximum() -> None:
    embedder = HashEmbedder(max_tokens=4)
    # The words that are read are the same, so the vectors are.
    assert np.array_equal(*embedder.encode(["one two three", "one two four five"]))


def test_the_fingerprint_knows_the_maximum() -> None:
    assert HashEmbedder(max_tokens=8).fingerprint != HashEmbedder().fingerprint


class _Neighbourly(HashEmbedder):
    """A back-end whose bits depend on how many texts share a pass."""

    def _hidden(
        self, ids: np.ndarray[tuple[int, ...], np.dtype[np.str_]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        hidden = super()._hidden(ids)
        hidden[..., 0] += np.float32(len(ids))
        return hidden


def test_the_self_test_finds_a_vector_that_depends_on_its_neighbours() -> None:
    assert self_test(HashEmbedder())
    assert not self_test(_Neighbourly())
