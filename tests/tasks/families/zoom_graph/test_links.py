"""The stage: what a refresh starts from, and what it does where some of it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.store.layout import blob_path
from storage.arrays import put_pack
from storage.folder import FolderStore, init_folder
from storage.receipts import Receipt
from tasks.core.part_runner import PartSpec
from tasks.core.stage import PartResult
from tasks.families.zoom_graph import blocks as zoom_blocks
from tasks.families.zoom_graph import compare
from tasks.families.zoom_graph.blocks import block_digest
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, Links, find_links
from tasks.families.zoom_graph.links import STAGE, ZoomLinkSettings, known_links, state_of
from tests.corpora import documents
from tests.tasks.families.zoom_graph.linked_rows import names, rows, vectors
from tests.tasks.indexes import Index, edited, only, traces
from tests.tasks.making import Parts

COUNT = 300


class Night:
    """Documents in three shards."""

    def __init__(self, store: FolderStore) -> None:
        self.store = store
        self.names = np.sort(names(COUNT, 1))
        self.vectors = vectors(COUNT, 1)
        self.settings = ZoomLinkSettings(threshold=1.0, cap=8)

    def inputs(self) -> dict[str, str]:
        found = {}
        for label, some in zip(("p0", "p10", "p11"), np.array_split(np.arange(len(self.names)), 3), strict=True):
            pack = {"keys": self.names[some], "vectors": self.vectors[some]}
            found[f"document_vectors/{label}"] = put_pack(self.store, "run", pack)[0]
        return found

    def make(self, reuse: Sequence[Receipt] = (), fresh: bool = False) -> PartResult:
        """The part; fresh: without receipts, so that it is made again."""
        if fresh:
            for receipt in (self.store.root / "work" / "zoom_links").glob("*.json"):
                receipt.unlink()
        return Parts(self.store).make(STAGE, PartSpec("documents", self.inputs(), self.settings), reuse)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(init_folder(tmp_path / "store"))


def test_a_refresh_starts_from_the_links_of_the_night_before(night: Night) -> None:
    first = night.make()
    assert first.counts == {"rows_compared": COUNT, "rows_found": 0}
    night.vectors = night.vectors.copy()
    night.vectors[7] = night.vectors[200]
    second = night.make([first.receipt])
    assert 0 < second.counts["rows_compared"] < 40
    rebuilt = night.make(fresh=True)
    assert rebuilt.counts["rows_compared"] == COUNT
    assert rebuilt.receipt.outputs == second.receipt.outputs
    blocks = {name: digest for name, digest in second.receipt.outputs.items() if name.startswith("document_links/")}
    assert blocks
    assert len(blocks) + 1 == len(second.receipt.outputs)


def test_blocks_that_stay_are_not_stored_again(night: Night) -> None:
    night.names, night.vectors = np.sort(names(3_000, 1)), vectors(3_000, 1)
    night.settings = ZoomLinkSettings(threshold=2.0, cap=4)
    first = night.make()
    for digest in first.receipt.outputs.values():
        os.utime(night.store.root / blob_path(digest), (1, 1))
    night.vectors = night.vectors.copy()
    night.vectors[7] = night.vectors[200]
    second = night.make([first.receipt])
    stayed = set(first.receipt.outputs.values()) & set(second.receipt.outputs.values())
    assert stayed
    assert all((night.store.root / blob_path(digest)).stat().st_mtime == 1 for digest in stayed)
    assert second.receipt.bytes == {
        name: (night.store.root / blob_path(digest)).stat().st_size for name, digest in second.receipt.outputs.items()
    }


@pytest.mark.parametrize("lost", ["a block", "the state", "the vectors"])
def test_where_something_is_lost_all_rows_are_compared(night: Night, lost: str) -> None:
    first = night.make()
    before = night.inputs()
    night.vectors = night.vectors.copy()
    night.vectors[7] = night.vectors[200]
    outputs = dict(first.receipt.outputs)
    if lost == "a block":
        outputs.pop(max(outputs, key=lambda name: name.startswith("document_links/")))
    elif lost == "the state":
        outputs.pop("zoom_state")
    else:
        night.store.delete(blob_path(before["document_vectors/p0"]))
    kept = first.receipt.model_copy(update={"outputs": outputs})
    made = night.make([kept])
    assert made.counts["rows_compared"] == COUNT
    assert made.receipt.outputs == night.make([first.receipt], fresh=True).receipt.outputs


def test_blocks_of_two_earlier_parts_are_told_apart(night: Night) -> None:
    first = night.make()
    night.vectors = night.vectors.copy()
    night.vectors[7] = night.vectors[200]
    second = night.make([first.receipt])
    night.vectors[9] = night.vectors[100]
    for order in ([first.receipt, second.receipt], [second.receipt, first.receipt]):
        made = night.make(order, fresh=True)
        assert 0 < made.counts["rows_compared"] < 60
        assert made.receipt.outputs == night.make(fresh=True).receipt.outputs


def test_estimated_limits_are_carried_over(night: Night) -> None:
    night.settings = ZoomLinkSettings(threshold=1.0, cap=8, exact_rows=0)
    first = night.make()
    night.names, night.vectors = night.names[:-2], night.vectors[:-2]
    second = night.make([first.receipt])
    assert second.counts["rows_compared"] < COUNT - 2
    assert second.receipt.outputs == night.make(fresh=True).receipt.outputs


@pytest.mark.parametrize("exact", [65_536, 0])
def test_cells_of_the_night_before_are_used_where_centres_come_and_go(
    night: Night, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def cells_of(rows: LinkedRows, some: Any = slice(None)) -> np.ndarray:
        compared.append(len(np.arange(len(rows))[some]))
        return found(rows, some)

    found = zoom_blocks.cells_of
    monkeypatch.setattr(zoom_blocks, "cells_of", cells_of)
    night.names[: COUNT // 10] >>= np.uint64(8)
    night.names.sort()
    night.settings = ZoomLinkSettings(threshold=1.0, cap=8, exact_rows=exact)
    known = night.make().receipt
    for row in (3, 5):
        night.names = np.append(night.names[1:], np.uint64((1 << 50) + row))  # a centre goes, another comes
        night.vectors = np.append(night.vectors[1:], vectors(1, row), axis=0)
        night.vectors[row] = night.vectors[200 + row]
        order = night.names.argsort()
        night.names, night.vectors = night.names[order], night.vectors[order]
        made = night.make([known])
        assert made.counts["rows_found"] > 0
        assert len(compared) == 1
        assert compared[0] < COUNT / 3
        assert made.receipt.outputs == night.make(fresh=True).receipt.outputs
        compared.clear()
        known = made.receipt


def test_a_night_may_begin_and_end_without_rows(night: Night) -> None:
    every = night.names, night.vectors
    none = every[0][:0], every[1][:0]
    known = [night.make().receipt]
    for night.names, night.vectors in (none, every, none, every):
        made = night.make(known, fresh=True)
        assert made.receipt.outputs == night.make(fresh=True).receipt.outputs
        known = [made.receipt]


@pytest.mark.parametrize("exact", [COUNT - 1, COUNT])
def test_nights_with_more_rows_than_have_exact_moments(night: Night, exact: int) -> None:
    night.settings = ZoomLinkSettings(threshold=1.0, cap=8, exact_rows=exact)
    every = night.names, night.vectors
    known = night.make().receipt
    for count in (COUNT - 2, COUNT, COUNT - 1):
        night.names, night.vectors = every[0][:count], every[1][:count]
        made = night.make([known], fresh=True)
        assert made.receipt.outputs == night.make(fresh=True).receipt.outputs
        known = made.receipt


def test_what_is_stored_of_a_sample_is_what_a_refresh_starts_from() -> None:
    rule, every = LinkRule(1.0, 8, exact_rows=0, sample=30), rows(400, 3)

    def stored(found: Links) -> tuple[dict[str, np.ndarray], dict[bytes, Any]]:
        made = {block_digest(block): (centre, block) for centre, block in zoom_blocks.blocks_of(found)}
        state = state_of(found, rule, [], ((digest, centre) for digest, (centre, _) in made.items()))
        return state, {digest: block for digest, (_, block) in made.items()}

    known = find_links(LinkedRows(every.names[:-9], every.vectors[:-9]), rule)
    for some in (slice(4, None), slice(2, -20), slice(0, None)):  # the sample loses rows, and gets some
        state, blocks = stored(known)
        read = known_links(state, known.rows, blocks, rule)
        assert read is not None
        after = LinkedRows(every.names[some], every.vectors[some])
        known = find_links(after, rule, read.links)
        assert 0 < known.compared < len(after)
        fresh = stored(find_links(after, rule))
        for one, other in zip(stored(known), fresh, strict=True):
            np.testing.assert_equal(one, other)


def test_vectors_of_packs_that_are_not_wanted_are_not_read() -> None:
    own, held = names(30, 2), vectors(30, 2)
    own[3] = own[17]
    packs = [{"keys": own[some], "vectors": held[some]} for some in (slice(0, 10), slice(10, 12), slice(12, 30))]
    whole = compare.linked_rows(packs)
    assert whole.some is None
    assert np.array_equal(whole.vectors, LinkedRows.of(own, held).vectors)
    part = compare.linked_rows(packs, [False, True, False])
    assert np.array_equal(part.names, whole.names)
    assert part.some is not None
    assert sorted(part.names[part.some].tolist()) == sorted(own[10:12].tolist())
    assert np.array_equal(part.vectors, whole.vectors[part.some])
    assert len(compare.linked_rows([])) == 0


@pytest.mark.slow
def test_nights_end_in_the_snapshot_of_an_empty_store(quick: Path) -> None:
    index = Index(quick / "store", families=only("zoom_graph", threshold=1.0, cap=4, entity_links=True))
    rows = documents(60, words=40)
    index.build(rows)
    gone = rows.pop("doc-0003")
    index.build(rows)
    rows = edited(rows)
    outcome = index.build(rows)
    assert 0 < index.counts(outcome, "zoom_links")["rows_compared"] < index.counts(outcome, "zoom_links")["rows_found"]
    assert outcome.manifest == index.beside().build(rows).manifest
    with index.snapshot() as snapshot:
        here = " ".join(text for _, text in rows.values())
        assert gone[1].split()[0] in here or not traces(snapshot, "doc-0003", gone[1])
        assert "document_vectors" in traces(snapshot, "doc-0004", rows["doc-0004"][1])
        assert "document_vectors" not in traces(snapshot, "doc-0003", rows["doc-0004"][1])


def ranges_made(index: Index) -> int:
    """The parts of ranges of rows in the store."""
    return len(list((index.store().root / "work" / "compare_rows").glob("*.json")))


@pytest.mark.slow
@pytest.mark.parametrize("entity_links", [False, True])
def test_ranges_of_rows_are_compared_where_nothing_can_be_refreshed(
    quick: Path, monkeypatch: pytest.MonkeyPatch, entity_links: bool
) -> None:
    kinds = 1 + entity_links

    def index(folder: str, **settings: float) -> Index:
        families = only("zoom_graph", entity_links=entity_links, **{"threshold": 1.0, "cap": 4, **settings})
        return Index(quick / folder, families=families)

    rows = documents(60, words=40)
    whole, cut = index("whole"), index("cut")
    expected = whole.build(rows)
    monkeypatch.setattr(compare, "PACKS_PER_RANGE", 0)  # 64 ranges, some of them empty
    assert cut.build(rows).manifest == expected.manifest
    assert ranges_made(cut) == 64 * kinds
    rows = edited(rows)
    outcome = cut.build(rows)
    assert ranges_made(cut) == 64 * kinds
    assert cut.counts(outcome, "zoom_links")["rows_found"] > 0
    assert outcome.manifest == whole.build(rows).manifest == cut.beside().build(rows).manifest
    others = documents(60, words=41)
    assert cut.build(others).manifest == whole.build(others).manifest
    assert ranges_made(cut) > 64 * kinds
    shutil.rmtree(cut.store().root / "work" / "compare_rows")  # as gc does
    assert cut.build(rows).manifest == outcome.manifest
    assert ranges_made(cut) == 0  # these links are there
    outputs = cut.outputs()["zoom_links", "documents"]
    cut.store().delete(blob_path(min(outputs.items())[1]))  # a block
    assert cut.build(edited(rows)).manifest == whole.build(edited(rows)).manifest
    assert ranges_made(cut) >= 64
