"""What `show` tells of a heterograph: nodes and edges by kind, and the bytes that hold them."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.families.heterograph.search import KINDS
from indexmill.families.heterograph.show import statistics
from tasks.families.heterograph.graph import ENDS
from tests.indexmill.damage import changed
from tests.indexmill.running import Run
from tests.indexmill.world_heterograph import publish_world


def test_nodes_and_edges_are_counted_by_kind(tmp_path: Path, run: Run) -> None:
    _, graph = publish_world(tmp_path / "store")
    told = run.json("show", "--store", tmp_path / "store")["heterograph"]
    counts = graph.counts()
    assert {kind: one["nodes"] for kind, one in told["nodes"].items()} == {kind: counts[kind] for kind in KINDS}
    assert told["edges"] == {kind: counts[kind] for kind in ENDS}
    assert (told["all_nodes"], told["all_edges"]) == (counts["nodes"], counts["edges"])
    assert (told["near_edges"], told["other_edges"]) == (counts["near"], counts["edges"] - counts["near"])
    assert told["edges_per_node"] == round(counts["edges"] / counts["nodes"], 3)
    assert told["stand_ins"] == {"attributes": 1, "elements": 0}
    text = run.text("show", "--store", tmp_path / "store")
    assert f"{counts['nodes']} nodes and {counts['edges']} edges" in text
    assert f"{counts['near']} near, {counts['edges'] - counts['near']} others" in text
    assert "H high-level elements  2 " in text
    assert f"{counts['mention']} mention" in text


def test_bytes_are_those_of_the_artifacts_of_each_kind(tmp_path: Path) -> None:
    writer, _ = publish_world(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        told = statistics(snapshot)
        vectors = [one for name in ("passages", "passage_keys") for one in snapshot.vectors("vectors", name)]

    def length(*names: str) -> int:
        return sum(one.bytes for one in writer.artifacts if one.name.rpartition("/")[0] in names or one.name in names)

    held = told["nodes"]
    assert {kind: one["texts"] for kind, one in held.items()} == {
        "T": length("passages"),
        "S": length("units"),
        "A": length("attributes"),
        "H": length("elements"),
        "R": length("heterograph/relations"),
        "N": length("entities"),
        "O": 0,
    }
    assert held["T"]["vectors"] == sum(one.nbytes for one in vectors) < length("vectors")
    assert held["A"]["vectors"] == length("attribute_vectors") > 0
    assert held["R"]["vectors"] == held["N"]["vectors"] == held["O"]["vectors"] == 0
    storage = told["storage"]
    assert storage["graph"] == length("heterograph/graph")
    assert storage["edges"] == length("heterograph/nodes", "heterograph/edges")
    assert storage["names"] == length("heterograph/names")
    assert storage["all"] == sum(number for what, number in storage.items() if what != "all")
    assert storage["texts"] == sum(one["texts"] for one in held.values())


def test_a_snapshot_without_the_family_has_nothing_to_tell(tmp_path: Path, run: Run) -> None:
    publish_world(tmp_path / "store")
    assert "heterograph" not in run.json("show", "1", "--store", tmp_path / "store")
    assert "nodes and" not in run.text("show", "1", "--store", tmp_path / "store")


def test_counts_that_are_not_there_are_missed(tmp_path: Path) -> None:
    writer, _ = publish_world(tmp_path / "store")
    changed("heterograph/graph", "edges", lambda held: held[:3])(writer)
    writer.publish(3)
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="heterograph's counts"):
        statistics(snapshot)
