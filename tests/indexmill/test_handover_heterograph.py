"""The heterograph of a snapshot as GraphML: every node with its text, every edge with its kind and direction."""

from __future__ import annotations

from pathlib import Path

import igraph
import numpy as np
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.handover import graphml
from indexmill.handover.heterograph import heterograph
from indexmill.names import entity_id
from indexmill.retrieve.heterograph import KINDS
from storage import tables
from storage.folder import open_store
from tasks.heterograph.graph import ENDS, TypedGraph
from tasks.report import Silent
from tests.indexmill.knowledge_heterograph import ELEMENTS, UNNAMED, publish_heterograph
from tests.indexmill.test_handover_graphml import parsed


def of_snapshot(path: Path) -> bytes:
    with indexmill.open(path) as snapshot:
        return b"".join(graphml.document(*heterograph(snapshot)))


def edges_of(graph: TypedGraph) -> set[tuple[str, str, str]]:
    ids = graph.ids.to_pylist()
    names = list(ENDS)
    pairs = zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True)
    return {(ids[source], ids[target], names[kind]) for (source, target), kind in pairs}


def test_every_node_has_its_kind_and_what_it_says(tmp_path: Path) -> None:
    _, graph = publish_heterograph(tmp_path / "store")
    data = of_snapshot(tmp_path / "store")
    assert data == of_snapshot(tmp_path / "store")
    nodes, edges = parsed(data)
    held = {kind: [one for one in nodes if one["kind"] == kind] for kind in KINDS}
    assert {kind: sorted(one["id"] for one in held[kind]) for kind in KINDS} == {
        kind: graph.ids_of(kind).to_pylist() for kind in KINDS
    }
    assert entity_id(UNNAMED) not in {one["id"] for one in nodes}
    named = {one["id"]: one for one in nodes}
    assert named[entity_id("mercury god")]["label"] == "Mercury"
    assert "text" not in named[entity_id("ilse")]
    assert {one["label"] for one in held["O"]} == {one["label"] for one in held["H"]} == set(ELEMENTS)
    assert {one["text"] for one in held["H"]} == set(ELEMENTS.values())
    assert {one["label"]: one["text"] for one in held["A"]} == {
        "Ada Venn": "What is known of ada venn.",
        "Ilse": "What is known of ilse.",
    }
    assert {(one["label"], one["text"]) for one in held["R"]} == {
        ("crosses", "Marrow Bridge crosses Ilse"),
        ("paid for", "Ada Venn paid for Marrow Bridge"),
        ("was born in", "Ada Venn was born in Tallow"),
        ("met", "Tallow met Ada Venn"),
    }
    assert {(one["document"], one.get("label"), one["text"]) for one in held["T"]} == {
        ("bridge", "Marrow Bridge", "The Marrow Bridge crosses the Ilse."),
        ("bridge", "Marrow Bridge", "Ada Venn paid for it."),
        ("venn", None, "Ada Venn was born in Tallow. Venn met Tallow."),
        ("ilse", "Ilse", "The Ilse is cold."),
    }
    assert {(one["source"], one["target"], one["kind"]) for one in edges} == edges_of(graph)
    assert len(edges) == len(graph.edges)
    assert {one["kind"] for one in edges} == set(ENDS)
    assert {one["kind"] for one in edges if not one["directed"]} == {"same_as", "near"}
    assert {one["weight"] for one in edges} == {1.0}


def test_igraph_reads_it_with_kinds_directions_and_weights(tmp_path: Path) -> None:
    _, graph = publish_heterograph(tmp_path / "store")
    (tmp_path / "h.graphml").write_bytes(of_snapshot(tmp_path / "store"))
    read = igraph.Graph.Read_GraphML(str(tmp_path / "h.graphml"))
    assert (read.vcount(), read.ecount(), read.is_directed()) == (len(graph), len(graph.edges), True)
    ids, kinds = read.vs["id"], read.es["kind"]
    assert {
        (ids[one], ids[other], kind) for (one, other), kind in zip(read.get_edgelist(), kinds, strict=True)
    } == edges_of(graph)
    assert dict(zip(ids, read.vs["kind"], strict=True)) == dict(
        zip(graph.ids.to_pylist(), (KINDS[kind] for kind in graph.node_kinds), strict=True)
    )
    assert set(read.es["weight"]) == {1.0}
    (met,) = read.vs.select(label="met")
    assert [ids[one] for one in read.predecessors(met)] == [entity_id("tallow")]
    assert [ids[one] for one in read.successors(met)] == [entity_id("ada venn")]


def test_no_more_than_a_row_group_is_laid_out_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 3)
    _, graph = publish_heterograph(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        nodes, edges = heterograph(snapshot)
        held = [len(piece) for piece in edges.pieces]
        relations = [len(piece) for piece in nodes.pieces if piece["kind"][0].as_py() == "R"]
    assert sum(held) == len(graph.edges)
    assert max(held) == max(relations) == 3


def test_a_graph_that_does_not_fit_its_tables_is_not_handed_over(tmp_path: Path) -> None:
    _, graph = publish_heterograph(tmp_path / "good")
    offsets = graph.offsets.copy()
    offsets[-2] -= 1
    publish_heterograph(tmp_path / "fewer", offsets=offsets)
    with pytest.raises(CorruptBlob, match="has 3 nodes O; the tables have 2"):
        of_snapshot(tmp_path / "fewer")
    rows = np.full(len(graph), 10**6, np.int32)
    publish_heterograph(tmp_path / "beyond", rows=rows)
    with pytest.raises(CorruptBlob, match="nodes N; the tables have 0"):
        of_snapshot(tmp_path / "beyond")


def test_a_snapshot_is_written_with_the_graphs_that_it_holds(tmp_path: Path) -> None:
    writer, _ = publish_heterograph(tmp_path / "store")
    writer.artifacts = [one for one in writer.artifacts if not one.name.startswith(("described/", "related/"))]
    writer.publish(3)
    held = {1: ["graph.graphml"], 2: ["graph.graphml", "heterograph.graphml"], 3: ["heterograph.graphml"]}
    for version, names in held.items():
        folder = tmp_path / str(version)
        made = export_snapshot(open_store(tmp_path / "store"), version, folder, form="graphml", progress=Silent())
        assert sorted(path.name for path in folder.iterdir()) == names
        assert made.files == len(names)
    for name in ("2", "3"):
        assert (tmp_path / name / "heterograph.graphml").read_bytes() == of_snapshot(tmp_path / "store")
    with indexmill.open(tmp_path / "store", version=1) as snapshot, pytest.raises(FamilyNotFound, match="heterograph"):
        heterograph(snapshot)
