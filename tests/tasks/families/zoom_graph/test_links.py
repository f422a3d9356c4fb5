"""Links between similar rows: against a brute-force oracle, and the same by update as by rebuild."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.retrieve.grid import UNIT, on_grid
from tasks.families.zoom_graph import links as zoom_links
from tasks.families.zoom_graph.links import (
    STEPS,
    Candidates,
    LinkSettings,
    chosen_links,
    exponentials,
    find_candidates,
)


def vectors(rows: int, seed: int, dimension: int = 24) -> np.ndarray:
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((rows // 8 + 1, dimension))
    made = centres[draw.integers(0, len(centres), rows)] + 0.8 * draw.standard_normal((rows, dimension))
    return on_grid((made / np.linalg.norm(made, axis=1)[:, None]).astype(np.float32))


def links(found: Candidates, cap: int) -> set[tuple[int, int]]:
    (indptr, indices, weights), _ = chosen_links(found.packs()["zoom_candidates"], cap)
    rows = np.arange(len(indptr) - 1).repeat(np.diff(indptr))
    held = dict(zip(zip(rows.tolist(), indices.tolist(), strict=True), weights.tolist(), strict=True))
    assert all(held[b, a] == weight for (a, b), weight in held.items())  # symmetric
    assert all(a != b for a, b in held)
    assert len(held) == len(indices)
    return set(held)


def oracle(
    rows: np.ndarray, threshold: float, cap: int, slack: float
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The pairs that must be there and those that may, where the mean may be off by a little."""
    products = rows.astype(np.float64) @ rows.T
    similar = np.exp(products / UNIT)
    np.fill_diagonal(similar, np.nan)
    limits = np.nanmean(similar, axis=1) + threshold * np.nanstd(similar, axis=1)
    np.fill_diagonal(products, -np.inf)
    chosen: list[set[tuple[int, int]]] = []
    for margin in (slack, -slack):
        pairs: set[tuple[int, int]] = set()
        for row, limit in enumerate(limits):
            beyond = np.flatnonzero(np.nan_to_num(similar[row], nan=-1.0) > limit + margin)
            best = beyond[np.lexsort((beyond, -products[row, beyond]))][:cap]
            pairs |= {(row, int(one)) for one in best} | {(int(one), row) for one in best}
        chosen.append(pairs)
    return chosen[0], chosen[1]


def test_no_exponential_is_so_near_a_half_that_processors_could_round_it_apart() -> None:
    grains = np.arange(-(1 << 16), 1 << 16)
    exact = [math.expm1((grain * 256 + 127.5) / UNIT) * STEPS for grain in grains.tolist()]
    assert min(abs(value - math.floor(value) - 0.5) for value in exact) > 1e-7
    assert exponentials().tolist() == [round(value) for value in exact]


@settings(max_examples=30)
@given(st.integers(2, 150), st.integers(0, 10**6), st.sampled_from([1.0, 2.0, 3.0]), st.integers(1, 12))
def test_links_are_those_beyond_the_threshold_up_to_the_cap(rows: int, seed: int, threshold: float, cap: int) -> None:
    made = vectors(rows, seed)
    held = links(find_candidates(made, LinkSettings(threshold, cap)), cap)
    must, may = oracle(made, threshold, cap, slack=1e-3)
    assert held <= may
    # A row that many crowd around may keep fewer than the cap: all of one level or none of it.
    assert len(must - held) <= 0.1 * len(must)
    if rows <= 4 * cap:
        assert must <= held


@settings(max_examples=60)
@given(st.data())
def test_an_update_ends_in_the_bits_of_a_rebuild(data: st.DataObject) -> None:
    rows, seed = data.draw(st.integers(1, 200)), data.draw(st.integers(0, 10**6))
    exact = data.draw(st.sampled_from([10**6, 0, 120]))
    setting = LinkSettings(data.draw(st.sampled_from([0.5, 1.0, 3.0])), data.draw(st.integers(1, 8)), exact)
    draw = np.random.default_rng(seed)
    before = vectors(rows, seed)
    if data.draw(st.booleans()):
        before[: rows // 3] = before[0]  # repeated documents
    known = find_candidates(before, setting)
    for _ in range(data.draw(st.integers(1, 3))):
        before = np.concatenate([before[draw.random(len(before)) > 0.05], vectors(max(rows // 20, 1), seed + 1)])
        before = before[draw.permutation(len(before))]
        known = find_candidates(before, setting, known)
    rebuilt = find_candidates(before, setting)
    for pack, arrays in rebuilt.packs().items():
        for name, array in arrays.items():
            assert np.array_equal(known.packs()[pack][name], array), (pack, name)


def test_a_refresh_compares_what_is_new_alone() -> None:
    made = vectors(600, 3)
    known = find_candidates(made[:590], LinkSettings(cap=8))
    assert known.computed == 590
    assert find_candidates(made, LinkSettings(cap=8), known).computed < 60
    assert find_candidates(made[:590], LinkSettings(cap=8), known).computed == 0


@pytest.mark.parametrize("strip", [1, 7, 512])
def test_the_size_of_a_strip_changes_nothing(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = vectors(120, 4)
    whole = find_candidates(made, LinkSettings(cap=8)).packs()["zoom_candidates"]
    monkeypatch.setattr(zoom_links, "_STRIP", strip)
    monkeypatch.setattr(zoom_links, "_TILE", strip + 2)
    for name, array in find_candidates(made, LinkSettings(cap=8)).packs()["zoom_candidates"].items():
        assert np.array_equal(whole[name], array), name


def test_estimated_moments_miss_few_links() -> None:
    made = vectors(5_000, 5, dimension=64)
    exact, estimated = (find_candidates(made, LinkSettings(exact_rows=rows)) for rows in (10_000, 0))
    held, found = links(exact, 64), links(estimated, 64)
    assert len(held - found) < 0.02 * len(held)


def test_one_row_and_none_have_no_links() -> None:
    for rows in (0, 1):
        found = find_candidates(vectors(max(rows, 1), 6)[:rows], LinkSettings())
        assert links(found, 64) == set()
