"""lsh_tree through builds: what is there, what is made again, and what is copied."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.grid import SCALE
from indexmill.snapshot import Snapshot
from indexmill.store.canonical import canonical_json, digest_of
from storage import lineage
from storage.tables import read_table
from tasks.families.lsh_tree.axes import AXES, principal_axes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import node_id
from tasks.families.lsh_tree.tables import LSH_SEGMENTS
from tasks.families.lsh_tree.topics import TOPICS
from tasks.stages.embed.embed import row_key
from tests.corpora import documents
from tests.tasks.indexes import Index, edited


@pytest.fixture
def index(quick: Path) -> Index:
    families = {"lsh_tree": {"smallest": 2, "largest": 4, "group": 8}}
    return Index(quick / "store", "families.lsh_tree", families=families)


def tree(snapshot: Snapshot) -> dict[str, Any]:
    return dict(snapshot.arrays("lsh_tree/tree"))


def test_every_node_is_what_its_id_says(index: Index) -> None:
    index.build(documents(60))
    store = index.store()
    with index.snapshot() as snapshot:
        pack, summaries = tree(snapshot), snapshot.table("summaries").to_pylist()
        passages = snapshot.table("passages")["passage_id"].to_pylist()
        keys = np.concatenate([snapshot.arrays(one.name)["passage_keys"] for one in snapshot.shards("vectors")])
        fingerprint = digest_of(canonical_json(snapshot.manifest.models["llm"]))
        counts = snapshot.manifest.families["lsh_tree"].counts
        entries = lineage.read(store, snapshot.manifest.lineage).entries
    ids = [*passages, *(row["node_id"] for row in summaries)]
    digests = [*(key.tobytes().hex() for key in keys), *(row["digest"] for row in summaries)]
    layers = [0] * len(passages) + [row["layer"] for row in summaries]
    assert layers == np.repeat(np.arange(counts["layers"] + 1), np.diff(pack["layer_offsets"])).tolist()
    assert counts["layers"] >= 3
    for number, row in enumerate(summaries):
        low, high = pack["children.indptr"][number : number + 2]
        children = pack["children.indices"][low:high].tolist()
        assert {layers[child] for child in children} == {row["layer"] - 1}
        made_of = [(ids[child], digests[child]) for child in children]
        assert row["node_id"] == node_id(row["layer"], made_of, fingerprint)
        assert row["digest"] == row_key(row["text"]).hex()
    segments = [
        read_table(store, digest, LSH_SEGMENTS)
        for entry in entries
        if entry.stage == "lsh_segments"
        for name, digest in entry.outputs.items()
        if name.startswith("segments/")
    ]
    assert sum(table.num_rows for table in segments) == int((pack["parents"] >= 0).sum())


def test_codes_are_of_the_passages_vectors_and_of_the_mean_of_a_summarys_children(index: Index) -> None:
    index.build(documents(30))
    with index.snapshot() as snapshot:
        pack = tree(snapshot)
        places = [row for one in snapshot.shards("vectors") for row in snapshot.arrays(one.name)["passages"]]
    for low, high in pairwise(pack["children.indptr"].tolist()):
        mean = np.rint(np.stack(places)[pack["children.indices"][low:high]] * SCALE).sum(axis=0, dtype=np.float64)
        places.append((mean / np.sqrt((mean**2).sum())).astype(np.float32))
    assert len(places) > 30 + 10
    axes = principal_axes(HashEmbedder().encode(sorted(TOPICS)))
    planes = Hyperplanes(0, 64, axes)
    assert np.array_equal(pack["hyperplanes"][:AXES], axes)
    assert np.array_equal(pack["hyperplanes"][AXES:], Hyperplanes(0, 64).normals()[AXES:])
    assert np.array_equal(pack["codes"], planes.codes(np.stack(places)))


@pytest.mark.parametrize("count", [1, 12, 13])
def test_a_corpus_that_fits_into_one_segment_has_no_summary(index: Index, count: int) -> None:
    rows = documents(count)
    Index(index.root).build(rows)
    with index.snapshot() as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
        pack = tree(snapshot)
    assert counts["layers"] == (count > 12)
    assert counts["nodes"] == counts["layers"] * counts["roots"]
    assert len(pack["codes"]) == count + counts["nodes"]
    assert (pack["parents"] == -1).sum() == counts["roots"] == (count if count <= 12 else 2)


def test_layers_end_where_the_settings_say(index: Index) -> None:
    index.build(documents(60), layers=1)
    with index.snapshot() as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
    assert (counts["layers"], counts["roots"]) == (1, counts["layer_1"])
    assert counts["roots"] > 4


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


@pytest.mark.parametrize("change", [{"seed": 1}, {"largest": 5}, {"summary_tokens": 50}])
def test_other_settings_of_the_tree_make_another(index: Index, change: dict[str, Any]) -> None:
    rows = documents(30)
    first = index.build(rows)
    second = index.build(rows, **change)
    assert second.manifest != first.manifest
    assert second.manifest == index.beside().build(rows, **change).manifest
    assert index.build(rows).manifest == first.manifest
