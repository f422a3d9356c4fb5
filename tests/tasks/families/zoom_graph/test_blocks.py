"""Links in blocks: a function of the set of rows, of which a change rewrites few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.families.zoom_graph.schema import LINKS
from indexmill.families.zoom_graph.similar import UnknownName
from indexmill.store.pack_checks import check_arrays
from tasks.families.zoom_graph import blocks as zoom_blocks
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, joined_pairs, label_of
from tasks.families.zoom_graph.choose import Coding, LinkedRows, LinkRule, find_links
from tests.tasks.families.zoom_graph.linked_rows import names, rows, vectors


@pytest.mark.parametrize("count", [0, 1, 5, 700])
def test_blocks_hold_every_pair_once(count: int) -> None:
    links = find_links(rows(count, 1), LinkRule(1.0, 6))
    found = dict(blocks_of(links))
    for block in found.values():
        assert check_arrays(LINKS, LINKS.conform(block), {}) == ""
    assert np.array_equal(joined_pairs(found.values(), links.rows), links.pairs)


def test_rows_lie_in_the_block_of_the_nearest_centre() -> None:
    links = find_links(rows(500, 2), LinkRule(1.0, 6))
    held = links.rows.vectors.astype(np.int64)
    centres = np.flatnonzero(links.rows.names < (1 << 64) // zoom_blocks.ROWS_PER_BLOCK)
    assert len(centres) > 2
    found, (low, _, _) = dict(blocks_of(links)), Coding(500).ends(links.pairs)
    for row in np.unique(low).tolist():
        nearest = centres[np.argmax(held[centres] @ held[row])]
        block = found[int(links.rows.names[nearest])]
        place = int(np.flatnonzero(block["names"] == links.rows.names[row])[0])
        assert block["indptr"][place + 1] - block["indptr"][place] == np.count_nonzero(low == row)


@settings(max_examples=60)
@given(st.integers(0, 300), st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.3]))
def test_refreshed_cells_are_those_of_all_rows(count: int, seed: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    own = names(count, seed)
    own[: count // 4] >>= np.uint64(6)  # centres
    before = LinkedRows.of(own, vectors(count, seed))
    cells = zoom_blocks.cells_of(before)
    centres = before.names[before.names < (1 << 64) // zoom_blocks.ROWS_PER_BLOCK]
    known = {
        int(name): np.flatnonzero((cells == number) & (draw.random(count) > share))
        for number, name in enumerate(centres)
    }
    stays = draw.random(len(before)) >= share / 2
    held = before.vectors[stays].copy()
    edited = draw.random(len(held)) < share / 2
    held[edited] = vectors(int(edited.sum()), seed + 1)
    fresh = names(5, seed + 2) >> np.uint64(6)
    after = LinkedRows.of(np.append(before.names[stays], fresh), np.append(held, vectors(5, seed + 3), axis=0))
    origin = {
        int(name): number
        for number, name in enumerate(before.names)
        if (before.vectors[number] == held_of(after, name)).all()
    }
    origins = np.array([origin.get(int(name), -1) for name in after.names])
    assert np.array_equal(zoom_blocks.refreshed_cells(after, origins, known), zoom_blocks.cells_of(after))


def held_of(rows: LinkedRows, name: np.uint64) -> np.ndarray:
    """The vector of the row of this name; of none, what no row has."""
    place = min(int(rows.names.searchsorted(name)), len(rows) - 1)
    return rows.vectors[place] if rows.names[place] == name else np.full(rows.vectors.shape[1], 1 << 14)


def test_without_a_centre_there_is_one_block() -> None:
    own = names(40, 3) | np.uint64(1 << 63)
    (centre,) = dict(blocks_of(find_links(LinkedRows.of(own, vectors(40, 3)), LinkRule(1.0, 6))))
    assert centre is None
    assert label_of(centre) == "z"


@pytest.mark.slow
def test_a_changed_row_rewrites_few_blocks() -> None:
    draw = np.random.default_rng(4)
    count, rule = 6_000, LinkRule(cap=8)
    own, held = names(count, 4), vectors(count, 4, dimension=64)
    known = find_links(LinkedRows.of(own, held), rule)
    before = {label: block_digest(block) for label, block in blocks_of(known)}
    held = held.copy()
    row = int(draw.integers(count))
    held[row] = held[row][::-1]
    after = dict(blocks_of(find_links(LinkedRows.of(own, held), rule, known)))
    changed = [label for label, block in after.items() if before.get(label) != block_digest(block)]
    assert 0 < len(changed) < len(before) / 3
    assert len(before) > 60


def test_a_digest_depends_on_every_array() -> None:
    _, block = next(blocks_of(find_links(rows(50, 5), LinkRule(1.0, 6))))
    digests = {block_digest({**block, name: array[::-1]}) for name, array in block.items()}
    assert len(digests | {block_digest(block)}) == len(block) + 1


def test_pairs_of_other_rows_are_refused() -> None:
    links = find_links(rows(50, 6), LinkRule(1.0, 6))
    fewer = LinkedRows(links.rows.names[1:], links.rows.vectors[1:])
    with pytest.raises(UnknownName):
        joined_pairs(dict(blocks_of(links)).values(), fewer)
