"""lsh_tree through builds: what is there, what is made again, and what is copied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows.plan import make_plan
from flows.run import Outcome
from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.grid import SCALE
from indexmill.snapshot import Snapshot
from indexmill.store.canonical import canonical_json, digest_of
from schemas.config import Configuration
from schemas.tables import LSH_SEGMENTS
from storage import lineage, runs
from storage.folder import open_store
from storage.tables import read_table
from tasks.core.report import Silent
from tasks.families.lsh_tree.axes import AXES, principal_axes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import node_id
from tasks.families.lsh_tree.topics import TOPICS
from tasks.stages.embed.embed import row_key
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder

SMALL = {"smallest": 2, "largest": 4, "group": 8}


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def chosen(store: Path, rows: Documents, **changes: Any) -> dict[str, Any]:
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    return settings(store, corpus, **{"families": {"lsh_tree": SMALL}, **changes})


def stage_counts(plain: dict[str, Any], outcome: Outcome, stage: str) -> dict[str, int]:
    end = runs.read_run(open_store(plain["store"]), outcome.run).end
    assert end is not None
    found: Any = end.report["stages"]
    return found.get(stage, {})  # type: ignore[no-any-return]


def tree(snapshot: Snapshot) -> dict[str, Any]:
    return dict(snapshot.arrays("lsh_tree/tree"))


def edited(rows: Documents) -> Documents:
    title, text = rows["doc-0007"]
    return {**rows, "doc-0007": (title, f"{text} Then Zed Vex came to Krait Hall.")}


def test_every_node_is_what_its_id_says(quick: Path) -> None:
    build(chosen(quick / "store", documents(60)))
    store = open_store(quick / "store")
    with indexmill.open(quick / "store") as snapshot:
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


def test_codes_are_of_the_passages_vectors_and_of_the_mean_of_a_summarys_children(quick: Path) -> None:
    build(chosen(quick / "store", documents(30)))
    with indexmill.open(quick / "store") as snapshot:
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
def test_a_corpus_that_fits_into_one_segment_has_no_summary(quick: Path, count: int) -> None:
    rows = documents(count)
    build(chosen(quick / "store", rows, families={}))
    with indexmill.open(quick / "store") as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
        pack = tree(snapshot)
    assert counts["layers"] == (count > 12)
    assert counts["nodes"] == counts["layers"] * counts["roots"]
    assert len(pack["codes"]) == count + counts["nodes"]
    assert (pack["parents"] == -1).sum() == counts["roots"] == (count if count <= 12 else 2)


def test_layers_end_where_the_settings_say(quick: Path) -> None:
    build(chosen(quick / "store", documents(60), families={"lsh_tree": {**SMALL, "layers": 1}}))
    with indexmill.open(quick / "store") as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
    assert (counts["layers"], counts["roots"]) == (1, counts["layer_1"])
    assert counts["roots"] > 4


def test_without_the_family_there_is_nothing_of_it(quick: Path) -> None:
    build(chosen(quick / "store", documents(20), families={"lsh_tree": {"enabled": False}}))
    with indexmill.open(quick / "store") as snapshot:
        names = {one.name.partition("/")[0] for one in snapshot.manifest.artifacts}
        assert not names & {"summaries", "summary_vectors", "lsh_tree"}
        assert "lsh_tree" not in snapshot.manifest.families
        assert "llm" not in snapshot.manifest.models


def test_a_night_makes_the_changed_segments_and_counts_the_others(quick: Path) -> None:
    rows = documents(60)
    plain = chosen(quick / "store", rows)
    first = build(plain)
    counts = stage_counts(plain, first, "lsh_segments")
    assert [counts[f"segments_kept_l{layer}"] for layer in (1, 2, 3)] == [0, 0, 0]
    total = stage_counts(plain, first, "lsh_summaries")["summaries_made"]
    assert total == sum(counts[f"segments_redone_l{layer}"] for layer in (1, 2, 3))
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)
    counts = stage_counts(plain, again, "lsh_segments")
    assert counts["segments_redone_l1"] == 0 < counts["segments_kept_l1"]

    plain = chosen(quick / "store", edited(rows))
    second = build(plain)
    counts = stage_counts(plain, second, "lsh_segments")
    redone = [counts[f"segments_redone_l{layer}"] for layer in (1, 2, 3)]
    assert stage_counts(plain, second, "lsh_summaries")["summaries_made"] == sum(redone)
    assert 1 <= redone[0] <= 4
    assert sum(redone) < total / 2
    assert counts["segments_kept_l1"] > 10


@pytest.mark.parametrize(
    "change",
    [
        {"shards": {"document_tokens": 100_000}},
        {"families": {"lsh_tree": {**SMALL, "group": 2}}},
        {"families": {"lsh_tree": {**SMALL, "group": 1000}}},
        {"run": {"workers": 3}, "split": {"overlap": 0}},
    ],
)
def test_other_shards_and_groups_copy_every_summary(quick: Path, change: dict[str, Any]) -> None:
    rows = documents(60)
    build(chosen(quick / "store", rows))
    plain = chosen(quick / "store", rows, **change)
    moved = build(plain)
    assert stage_counts(plain, moved, "lsh_summaries").get("summaries_made", 0) == 0
    assert moved.manifest == build(chosen(quick / "fresh", rows, **change)).manifest


@pytest.mark.parametrize("change", [{"seed": 1}, {"largest": 5}, {"summary_tokens": 50}])
def test_other_settings_of_the_tree_make_another(quick: Path, change: dict[str, Any]) -> None:
    rows = documents(30)
    first = build(chosen(quick / "store", rows))
    changed = chosen(quick / "store", rows, families={"lsh_tree": {**SMALL, **change}})
    second = build(changed)
    assert second.manifest != first.manifest
    assert second.manifest == build({**changed, "store": str(quick / "fresh")}).manifest
    assert build(chosen(quick / "store", rows)).manifest == first.manifest


def test_a_cold_build_makes_the_same_tree(quick: Path) -> None:
    plain = chosen(quick / "store", documents(30))
    first = build(plain)
    cold = build(plain, cold=True)
    assert (cold.manifest, cold.parts_differing) == (first.manifest, 0)
    assert stage_counts(plain, cold, "lsh_summaries")["summaries_reused"] == 0


def test_a_plan_of_many_passages_holds(quick: Path) -> None:
    rows = documents(150)
    tall = {"lsh_tree": {"smallest": 2, "largest": 4}}  # several layers, each one group
    for now in (rows, edited(rows), {name: rows[name] for name in list(rows)[10:]}):
        plain = chosen(quick / "store", now, families=tall)
        plan = make_plan(Configuration.model_validate(plain), progress=Silent())
        outcome = build(plain)
        for stage in ("lsh_segments", "lsh_summaries", "lsh_tree"):
            made = stage_counts(plain, outcome, stage)["parts_made"]
            assert plan.stages[stage].certain <= made <= plan.stages[stage].made
    assert make_plan(Configuration.model_validate(plain), progress=Silent()).parts.made == 0
