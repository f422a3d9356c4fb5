"""Links in blocks: a function of the set of rows, of which a change rewrites few."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.families.zoom_graph.schema import LINKS
from indexmill.families.zoom_graph.similar import UnknownName
from indexmill.store.pack_checks import check_arrays
from tasks.families.zoom_graph import blocks as zoom_blocks
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, joined_pairs
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, find_links
from tests.tasks.families.zoom_graph.linked_rows import names, rows, vectors


@pytest.mark.parametrize("count", [0, 1, 5, 700])
def test_blocks_hold_every_pair_once(count: int) -> None:
    links = find_links(rows(count, 1), LinkRule(1.0, 6))
    found = blocks_of(links)
    for block in found.values():
        assert check_arrays(LINKS, LINKS.conform(block), {}) == ""
    low, high, steps = joined_pairs(found.values(), links.rows)
    assert np.array_equal(low, links.low)
    assert np.array_equal(high, links.high)
    assert np.array_equal(steps, links.steps)
    assert sum(len(block["steps"]) for block in found.values()) == len(links.low)


def test_rows_lie_in_the_block_of_the_nearest_centre() -> None:
    links = find_links(rows(500, 2), LinkRule(1.0, 6))
    held = links.rows.vectors.astype(np.int64)
    centres = np.flatnonzero(links.rows.names < (1 << 64) // zoom_blocks.ROWS_PER_BLOCK)
    assert len(centres) > 2
    found = blocks_of(links)
    for row in np.unique(links.low).tolist():
        nearest = centres[np.argmax(held[centres] @ held[row])]
        block = found[f"z{int(links.rows.names[nearest]):016x}"]
        place = int(np.flatnonzero(block["names"] == links.rows.names[row])[0])
        assert block["indptr"][place + 1] - block["indptr"][place] == np.count_nonzero(links.low == row)


def test_without_a_centre_there_is_one_block() -> None:
    own = names(40, 3) | np.uint64(1 << 63)
    assert list(blocks_of(find_links(LinkedRows.of(own, vectors(40, 3)), LinkRule(1.0, 6)))) == ["z"]


def test_a_changed_row_rewrites_few_blocks() -> None:
    draw = np.random.default_rng(4)
    count, rule = 6_000, LinkRule(cap=8)
    own, held = names(count, 4), vectors(count, 4, dimension=64)
    known = find_links(LinkedRows.of(own, held), rule)
    before = {label: block_digest(block).tobytes() for label, block in blocks_of(known).items()}
    held = held.copy()
    row = int(draw.integers(count))
    held[row] = held[row][::-1]
    after = blocks_of(find_links(LinkedRows.of(own, held), rule, known))
    changed = [label for label, block in after.items() if before.get(label) != block_digest(block).tobytes()]
    assert 0 < len(changed) < len(before) / 3
    assert len(before) > 60


def test_a_digest_depends_on_every_array() -> None:
    block = next(iter(blocks_of(find_links(rows(50, 5), LinkRule(1.0, 6))).values()))
    digests = {block_digest({**block, name: array[::-1]}).tobytes() for name, array in block.items()}
    assert len(digests | {block_digest(block).tobytes()}) == len(block) + 1


def test_pairs_of_other_rows_are_refused() -> None:
    links = find_links(rows(50, 6), LinkRule(1.0, 6))
    fewer = LinkedRows(links.rows.names[1:], links.rows.vectors[1:])
    with pytest.raises(UnknownName):
        joined_pairs(blocks_of(links).values(), fewer)
