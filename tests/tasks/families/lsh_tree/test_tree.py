"""lsh_tree through builds: what is there, what is made again, and what is copied."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.families.lsh_tree.summaries import open_tree
from indexmill.models.embedder import HashEmbedder
from indexmill.snapshot import Snapshot
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.packs import open_pack
from storage import lineage
from tasks.core.groups import hex_ids
from tasks.families.lsh_tree.axes import AXES, TOPICS, principal_axes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import gray_ranks, node_id
from tasks.stages.embed.embed import row_key
from tests.corpora import documents
from tests.tasks.indexes import Index, edited


@pytest.fixture
def index(quick: Path) -> Index:
    families = {"lsh_tree": {"smallest": 2, "largest": 4, "group": 8}}
    return Index(quick / "store", "families.lsh_tree", families=families)


def tree(snapshot: Snapshot) -> dict[str, Any]:
    return dict(snapshot.arrays("lsh_tree/tree"))


def private(index: Index, stage: str) -> dict[str, dict[str, np.ndarray]]:
    """The packs that a stage made for the newest version, by output and label."""
    store = index.store()
    with index.snapshot() as snapshot:
        entries = lineage.read(store, snapshot.manifest.lineage).entries
    return {
        name if "/" in name else f"{name}/{entry.shard}": dict(open_pack(store.open_local(digest)))
        for entry in entries
        if entry.stage == stage
        for name, digest in entry.outputs.items()
        if not name.startswith("summaries/")
    }


@pytest.mark.slow
def test_every_node_is_what_its_id_says(index: Index) -> None:
    index.build(documents(60))
    with index.snapshot() as snapshot:
        offsets, drawn = tree(snapshot)["layer_offsets"], open_tree(snapshot)
        summaries = snapshot.table("summaries").to_pylist()
        passages = snapshot.table("passages")["passage_id"].to_pylist()
        keys = np.concatenate([snapshot.arrays(one.name)["passage_keys"] for one in snapshot.shards("vectors")])
        fingerprint = digest_of(canonical_json(snapshot.manifest.models["llm"]))
        counts = snapshot.manifest.families["lsh_tree"].counts
    ids = [*passages, *(row["node_id"] for row in summaries)]
    digests = [*(key.tobytes().hex() for key in keys), *(row["digest"] for row in summaries)]
    layers = [0] * len(passages) + [row["layer"] for row in summaries]
    assert layers == np.repeat(np.arange(counts["layers"] + 1), np.diff(offsets)).tolist()
    assert counts["layers"] >= 3
    for number, row in enumerate(summaries, len(passages)):
        children = drawn.members(number).tolist()
        assert {layers[child] for child in children} == {row["layer"] - 1}
        made_of = [(ids[child], digests[child]) for child in children]
        assert row["node_id"] == node_id(row["layer"], made_of, fingerprint)
        assert row["digest"] == row_key(row["text"]).hex()
    segments = private(index, "lsh_segments").values()
    assert sum(len(pack["children.ids"]) for pack in segments) == len(ids) - counts["roots"]


@pytest.mark.slow
def test_codes_are_of_the_passages_vectors_and_of_the_middle_child_of_a_summary(index: Index) -> None:
    index.build(documents(30))
    with index.snapshot() as snapshot:
        hyperplanes = tree(snapshot)["hyperplanes"]
        vectors = np.concatenate(snapshot.vectors("vectors", "passages"))
        passages = snapshot.table("passages")["passage_id"].to_pylist()
    axes = principal_axes(HashEmbedder().encode(sorted(TOPICS)))
    planes = Hyperplanes(0, 64, axes)
    assert np.array_equal(hyperplanes[:AXES], axes)
    assert np.array_equal(hyperplanes[AXES:], Hyperplanes(0, 64).normals()[AXES:])
    codes = dict(zip(passages, planes.codes(vectors).tolist(), strict=True))
    found = [pack["codes"] for _, pack in sorted(private(index, "lsh_codes").items())]
    assert np.concatenate(found).tolist() == list(codes.values())
    blocks = private(index, "lsh_segments")
    assert len({label[0] for label in (name.partition("/")[2] for name in blocks)}) > 1
    for _, pack in sorted(blocks.items()):
        children = hex_ids(pack["children.ids"])
        for node, code, (low, high) in zip(
            hex_ids(pack["ids"]), pack["codes"].tolist(), pairwise(pack["children.indptr"].tolist()), strict=True
        ):
            below = np.array([codes[child] for child in children[low:high]], np.uint64)
            assert (
                code
                == sorted(below.tolist(), key=lambda one: int(gray_ranks(np.array([one], np.uint64))[0]))[
                    (high - low) // 2
                ]
            )
            codes[node] = code


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 12, 13])
def test_a_corpus_that_fits_into_one_segment_has_no_summary(index: Index, count: int) -> None:
    rows = documents(count)
    Index(index.root).build(rows)
    with index.snapshot() as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
        pack = tree(snapshot)
    assert counts["layers"] == (count > 12)
    assert counts["nodes"] == counts["layers"] * counts["roots"]
    assert pack["layer_offsets"][-1] == count + counts["nodes"]
    assert counts["roots"] == (count if count <= 12 else 2)
    assert pack["above"].tolist() == [] if count <= 12 else sorted(set(pack["above"].tolist())) == [0, 1]


@pytest.mark.slow
def test_layers_end_where_the_settings_say(index: Index) -> None:
    index.build(documents(60), layers=1)
    with index.snapshot() as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
    assert (counts["layers"], counts["roots"]) == (1, counts["layer_1"])
    assert counts["roots"] > 4


@pytest.mark.slow
def test_a_night_makes_the_changed_segments_and_counts_the_others(index: Index) -> None:
    rows = documents(60)
    first = index.build(rows)
    counts = index.counts(first, "lsh_segments")
    assert [counts[f"segments_kept_l{layer}"] for layer in (1, 2, 3)] == [0, 0, 0]
    total = index.counts(first, "lsh_summaries")["summaries_made"]
    assert total == sum(counts[f"segments_redone_l{layer}"] for layer in (1, 2, 3))
    counts = index.counts(index.build(rows), "lsh_segments")
    assert counts["segments_redone_l1"] == 0 < counts["segments_kept_l1"]

    second = index.build(edited(rows))
    counts = index.counts(second, "lsh_segments")
    redone = [counts[f"segments_redone_l{layer}"] for layer in (1, 2, 3)]
    assert index.counts(second, "lsh_summaries")["summaries_made"] == sum(redone)
    assert 1 <= redone[0] <= 4
    assert sum(redone) < total / 2
    assert counts["segments_kept_l1"] > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"shards": {"document_tokens": 100_000}},
        {"run": {"workers": 3}, "split": {"overlap": 0}},
    ],
)
def test_other_shards_copy_every_summary(quick: Path, index: Index, change: dict[str, Any]) -> None:
    rows = documents(60)
    index.build(rows)
    other, fresh = (Index(quick / name, **{**index.sections, **change}) for name in ("store", "fresh"))
    moved = other.build(rows)
    assert index.counts(moved, "lsh_summaries").get("summaries_made", 0) == 0
    assert moved.manifest == fresh.build(rows).manifest


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"seed": 1}, {"largest": 5}, {"summary_tokens": 50}])
def test_other_settings_of_the_tree_make_another(index: Index, change: dict[str, Any]) -> None:
    rows = documents(30)
    first = index.build(rows)
    second = index.build(rows, **change)
    assert second.manifest != first.manifest
    assert second.manifest == index.beside().build(rows, **change).manifest
    assert index.build(rows).manifest == first.manifest


@pytest.mark.slow
def test_a_night_writes_the_blocks_and_the_codes_of_what_changed(quick: Path) -> None:
    """The others are the same blobs, so nothing of them is written again."""
    index = Index(
        quick / "store",
        "families.lsh_tree",
        families={"lsh_tree": {"smallest": 2, "largest": 4, "group": 4}},
        shards={"document_tokens": 2000},
    )
    rows = documents(200)
    kept: dict[str, list[dict[str, str]]] = {}
    for night in (rows, edited(rows)):
        index.build(night)
        store = index.store()
        with index.snapshot() as snapshot:
            entries = lineage.read(store, snapshot.manifest.lineage).entries
            published = {one.name: one.digest for one in snapshot.manifest.artifacts}
        for stage in ("lsh_codes", "lsh_segments"):
            kept.setdefault(stage, []).append(
                {
                    f"{one.shard} {name}": digest
                    for one in entries
                    if one.stage == stage
                    for name, digest in one.outputs.items()
                }
            )
        for table in ("summaries", "summary_vectors"):
            kept.setdefault(table, []).append(
                {name: digest for name, digest in published.items() if name.startswith(f"{table}/")}
            )
    for name, (before, after) in kept.items():
        written = {label for label, digest in after.items() if digest not in before.values()}
        assert 0 < len(written) < len(after) / 3, name


@pytest.mark.slow
def test_an_update_of_other_blocks_equals_a_rebuild(index: Index) -> None:
    """Blocks come, split, join and go with the corpus, and leave no trace."""
    rows = documents(60)
    seen = set()
    for count in (60, 13, 40):
        corpus = dict(list(rows.items())[:count])
        assert index.build(corpus).manifest == index.beside(str(count)).build(corpus).manifest
        with index.snapshot() as snapshot:
            seen.add(tuple(one.name for one in snapshot.shards("summaries")))
    assert len(seen) == 3
