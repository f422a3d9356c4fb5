"""Links between similar rows: against a brute-force oracle, and the same by update as by rebuild."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.zoom_graph.similar import STEP
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph import choose, moments
from tasks.families.zoom_graph.choose import Coding, LinkedRows, LinkRule, Links, find_links, joined_links
from tests.tasks.families.zoom_graph.linked_rows import names, rows, vectors

exactly = st.sampled_from([10**6, 0, 120])
"""The most rows whose moments are exact."""


samples = st.sampled_from([10**6, 30])
"""The rows from which moments are estimated."""


def without_most_vectors(known: Links, after: LinkedRows, draw: np.random.Generator) -> Links:
    """The same, with the vectors of rows that changed or went, and of a few others."""
    rows = known.rows
    same = np.zeros(len(rows), dtype=bool)
    if len(after):
        place = after.names.searchsorted(rows.names).clip(max=len(after) - 1)
        same = (after.names[place] == rows.names) & (after.vectors[place] == rows.vectors).all(axis=1)
    (some,) = (~same | (draw.random(len(rows)) < 0.1)).nonzero()
    return replace(known, rows=LinkedRows(rows.names, rows.vectors[some], some))


def pairs(found: Links) -> set[tuple[int, int]]:
    """Both ways, after a look at their form."""
    low, high, steps = Coding(len(found.rows)).ends(found.pairs)
    assert (low < high).all()
    assert (np.diff(low * len(found.rows) + high) > 0).all()
    held = found.rows.vectors.astype(np.int64)
    assert np.array_equal(steps, np.einsum("ij,ij->i", held[low], held[high]) // STEP)
    ends = list(zip(low.tolist(), high.tolist(), strict=True))
    return {*ends, *((one, other) for other, one in ends)}


def oracle(held: LinkedRows, rule: LinkRule, slack: float) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The pairs that must be there and those that may, where the limit may be off by a little."""
    products = held.vectors.astype(np.float64) @ held.vectors.T.astype(np.float64)
    similar = np.exp(products / UNIT)
    np.fill_diagonal(similar, np.nan)
    limits = np.nanmean(similar, axis=1) + rule.threshold * np.nanstd(similar, axis=1)
    np.fill_diagonal(products, -np.inf)
    steps = np.floor(products / STEP)
    chosen: list[set[tuple[int, int]]] = []
    for margin in (slack, -slack):
        found: set[tuple[int, int]] = set()
        for row, limit in enumerate(limits):
            beyond = np.flatnonzero(np.nan_to_num(similar[row], nan=-1.0) > limit + margin)
            best = beyond[np.lexsort((beyond, -steps[row, beyond]))][: rule.cap]
            found |= {(row, int(one)) for one in best} | {(int(one), row) for one in best}
        chosen.append(found)
    return chosen[0], chosen[1]


def same(found: Links, other: Links) -> bool:
    return found.full == other.full and all(
        np.array_equal(one, another)
        for one, another in (
            (found.pairs, other.pairs),
            (found.limits, other.limits),
            (found.moments.sums, other.moments.sums),
            (found.moments.squares, other.moments.squares),
        )
    )


@settings(max_examples=30)
@given(st.integers(2, 150), st.integers(0, 10**6), st.sampled_from([1.0, 2.0, 3.0]), st.integers(1, 12))
def test_links_are_those_beyond_the_limit_up_to_the_cap(count: int, seed: int, threshold: float, cap: int) -> None:
    held, rule = rows(count, seed), LinkRule(threshold, cap)
    found = pairs(find_links(held, rule))
    must, may = oracle(held, rule, slack=3e-3)
    assert must <= found <= may


@settings(max_examples=60)
@given(st.data())
def test_an_update_ends_in_the_bits_of_a_rebuild(data: st.DataObject) -> None:
    count, seed = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 10**6))
    rule = LinkRule(
        data.draw(st.sampled_from([0.5, 1.0, 3.0])),
        data.draw(st.integers(1, 8)),
        data.draw(exactly),
        data.draw(samples),
    )
    draw = np.random.default_rng(seed)
    own, held = names(count, seed), vectors(count, seed)
    if count and data.draw(st.booleans()):
        held[: count // 3] = held[0]  # repeated documents
    known = find_links(LinkedRows.of(own, held), rule)
    for night in range(1, data.draw(st.integers(2, 4))):
        stay = draw.random(len(own)) > 0.05
        own, held = own[stay], held[stay].copy()
        edited = draw.random(len(own)) < 0.05
        held[edited] = vectors(int(edited.sum()), seed + 2 * night)
        more = max(count // 20, 1)
        own = np.concatenate([own, names(more, seed + night)])
        held = np.concatenate([held, vectors(more, seed + night)])
        order = draw.permutation(len(own))
        own, held = own[order], held[order]
        if data.draw(st.integers(0, 9)) == 0:
            own, held = own[:0], held[:0]
        after = LinkedRows.of(own, held)
        if data.draw(st.booleans()):
            known = without_most_vectors(known, after, draw)
        known = find_links(after, rule, known)
        assert same(known, find_links(after, rule))


@settings(max_examples=40)
@given(st.data())
def test_what_ranges_of_rows_choose_are_the_links_of_all(data: st.DataObject) -> None:
    count, seed = data.draw(st.integers(0, 150)), data.draw(st.integers(0, 10**6))
    rule = LinkRule(
        data.draw(st.sampled_from([0.5, 1.0])), data.draw(st.integers(1, 8)), data.draw(exactly), data.draw(samples)
    )
    held = rows(count, seed)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    ranges = [slice(*ends) for ends in pairwise([0, *cuts, count])]
    assert same(joined_links(held, rule, [choose.choose(held, rule, some) for some in ranges]), find_links(held, rule))


def test_a_refresh_compares_what_is_new_alone() -> None:
    whole, rule = rows(600, 3), LinkRule(threshold=1.0, cap=4)  # all rows have more than they may choose
    some = LinkedRows(whole.names[:590], whole.vectors[:590])
    known = find_links(some, rule)
    assert known.compared == 590
    assert find_links(whole, rule, known).compared < 60
    assert find_links(some, rule, known).compared == 0


def test_where_much_is_new_all_rows_are_compared() -> None:
    whole, rule = rows(400, 3), LinkRule(cap=8)
    known = find_links(LinkedRows(whole.names[:250], whole.vectors[:250]), rule)
    found = find_links(whole, rule, known)
    assert found.compared == 400
    assert same(found, find_links(whole, rule))


@pytest.mark.parametrize("exact", [120, 0])
@pytest.mark.parametrize("strip", [1, 7, 512])
def test_the_sizes_of_strips_and_tiles_change_nothing(strip: int, exact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held, rule = rows(120, 4), LinkRule(threshold=1.0, cap=8, exact_rows=exact, sample=9)
    known = find_links(LinkedRows(held.names[:110], held.vectors[:110]), rule)
    whole = find_links(held, rule)
    monkeypatch.setattr(choose, "_STRIP", strip)
    monkeypatch.setattr(choose, "_TILE", strip + 1)
    monkeypatch.setattr(choose, "_PIECE", strip + 3)
    monkeypatch.setattr(choose, "_MANY", 1)
    monkeypatch.setattr(moments, "_TILE", strip + 2)
    assert same(find_links(held, rule), whole)
    assert same(find_links(held, rule, known), whole)


@pytest.mark.slow
def test_estimated_moments_miss_few_links() -> None:
    held = rows(5_000, 5, dimension=64)
    exact, estimated = (pairs(find_links(held, LinkRule(exact_rows=count))) for count in (10_000, 0))
    assert exact != estimated
    assert len(exact - estimated) < 0.02 * len(exact)


def test_equal_similarities_go_to_the_smaller_name() -> None:
    held = vectors(40, 8)
    held[1:31] = held[0]
    found = find_links(LinkedRows.of(names(40, 8), held), LinkRule(threshold=0.1, cap=5))
    alike = np.flatnonzero((found.rows.vectors == held[0]).all(axis=1))
    first = set(alike[:6].tolist())
    assert all(low in first for low, high in pairs(found) if low in alike and high in alike and low < high)


def test_one_row_and_none_have_no_links() -> None:
    for count in (0, 1):
        assert pairs(find_links(rows(count, 6), LinkRule())) == set()


def test_rows_that_share_a_name_have_no_links() -> None:
    own, held = names(60, 7), vectors(60, 7)
    own[10] = own[20] = own[30]
    shared = LinkedRows.of(own, held)
    assert len(shared) == 57
    left = np.delete(np.arange(60), [10, 20, 30])
    alone = LinkedRows.of(own[left], held[left])
    assert same(find_links(shared, LinkRule(1.0, 4)), find_links(alone, LinkRule(1.0, 4)))


def test_a_row_that_shares_its_name_with_a_new_one_has_no_vector_left() -> None:
    own, held, rule = names(60, 10), vectors(60, 10), LinkRule(1.0, 4)
    known = find_links(LinkedRows.of(own, held), rule)
    after = LinkedRows.of(np.append(own, own[7]), np.append(held, held[8:9], axis=0))
    none = np.empty(0, dtype=np.int64)
    unread = replace(known, rows=LinkedRows(known.rows.names, known.rows.vectors[:0], none))
    assert same(find_links(after, rule, unread), find_links(after, rule))


def test_more_rows_than_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "MOST_ROWS", 19)
    with pytest.raises(ValueError, match="20 rows are more than the 19"):
        find_links(rows(20, 9), LinkRule())
