"""Scanning codes gives what scanning all vectors gives, bit for bit."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.retrieve import code_scan
from indexmill.retrieve.code_scan import PassageCodes, encoded, joined_codes
from indexmill.retrieve.dense import Beside, nearest, similarities
from indexmill.store.packs import open_pack
from tests.indexmill.small_snapshot import WORLD, writer_of

DIMENSION = 32


def rows_of(seed: int, count: int, spread: float = 1.0) -> np.ndarray:
    """Unit vectors; with a small spread most of them are close together."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal(DIMENSION) + spread * generator.standard_normal((count, DIMENSION))
    rows[::700] = rows[0]  # ties
    rows[3::1500] = 0
    rows[3::1500, 5] = 1  # beyond the reach of a code
    return (rows / np.linalg.norm(rows, axis=1)[:, None]).astype(np.float32)


@pytest.mark.slow
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 40),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([None, 0.5, 0.9]),
)
def test_the_nearest_are_those_of_all_vectors(
    seed: int, k: int, spread: float, weight: float, able: float | None
) -> None:
    vectors, titles = rows_of(seed, 9000, spread), rows_of(seed + 1, 300, spread)
    owners = np.sort(np.random.default_rng(seed).integers(0, 300, len(vectors)))
    shards = [vectors[:5000], vectors[5000:]]
    beside = Beside([titles], owners, weight) if weight else None
    whole = vectors + np.float32(weight) * titles[owners] if weight else vectors
    codes = PassageCodes(joined_codes([encoded(whole[:4000], weight), encoded(whole[4000:], weight)]))
    allowed = None if able is None else np.random.default_rng(seed).random(len(vectors)) < able
    for question in (rows_of(seed + 2, 1, 1.0)[0], vectors[700], vectors[3]):
        expected = nearest(shards, question[None], k, allowed, beside)[0]
        exact = lambda rows: similarities(shards, question[None], rows, beside)  # noqa: E731, B023
        found = codes.nearest(question, k, exact, allowed)
        if found is not None:
            assert np.array_equal(found[0], expected[0])
            assert np.array_equal(found[1], expected[1])
        elif spread == 3.0 and k < 10 and able is None:
            pytest.fail("spread vectors were not found by their codes")


def test_a_question_of_zeros_and_one_that_is_no_number_are_left_to_the_vectors() -> None:
    codes = PassageCodes(joined_codes([encoded(rows_of(1, 9000), 0.0)]))
    for value in (0.0, np.nan, np.inf):
        assert codes.nearest(np.full(DIMENSION, value, np.float32), 5, lambda rows: rows.astype(np.float32)) is None


def test_a_row_is_no_further_from_its_code_than_its_pack_says() -> None:
    vectors = rows_of(2, 500)
    pack = encoded(vectors, 0.0)
    decoded = (pack["codes"].astype(np.float64) - 128) * pack["scale"][0]
    assert (np.linalg.norm(vectors - decoded, axis=1) <= pack["distances"]).all()


def test_without_faiss_the_hits_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of(tmp_path / "store", WORLD)
    for one in [one for one in writer.artifacts if one.name.startswith("vectors/")]:
        vectors = open_pack(writer.store.open_local(one.digest))["passages"]
        writer.pack(one.name.replace("vectors", "passage_codes"), encoded(vectors, 0.0))
    writer.publish()
    monkeypatch.setattr(code_scan, "_SCANNED_SHARE", 0)  # so few passages would not be scanned otherwise
    monkeypatch.setattr(code_scan, "_CANDIDATES", 1)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.shards("passage_codes")
        expected = snapshot.retrieve("Who paid for the bridge?", method="dense", k=3)
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "faiss":
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with indexmill.open(tmp_path / "store") as snapshot:
        found = snapshot.retrieve("Who paid for the bridge?", method="dense", k=3)
    assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in expected]
