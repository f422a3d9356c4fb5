"""The heterograph of a snapshot as GraphML: every node with its text, every edge with its kind and direction."""

from __future__ import annotations

from pathlib import Path

import igraph
import pyarrow as pa
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.export import graphml
from indexmill.families.heterograph.graphml_elements import heterograph
from indexmill.families.heterograph.nodes import GRAPH, SHOWN
from indexmill.families.heterograph.search import KINDS
from indexmill.store import table_reader
from indexmill.text.canonical_names import entity_id
from schemas.tables import DESCRIBED, RELATED
from storage.folder import open_folder
from tasks.core.report import Silent
from tasks.families.heterograph.graph import ENDS, TypedGraph
from tests.indexmill.damage import changed
from tests.indexmill.export.test_graphml import parsed
from tests.indexmill.world_heterograph import ELEMENTS, publish_world


def of_snapshot(path: Path, version: int | None = None) -> bytes:
    with indexmill.open(path, version=version) as snapshot:
        return b"".join(graphml.document(*heterograph(snapshot)))


def edges_of(graph: TypedGraph) -> set[tuple[str, str, str]]:
    ids, names = graph.ids.to_pylist(), list(ENDS)
    pairs = zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True)
    return {(ids[source], ids[target], names[kind]) for (source, target), kind in pairs}


def test_every_node_has_its_kind_and_what_it_says(tmp_path: Path) -> None:
    _, graph = publish_world(tmp_path / "store")
    data = of_snapshot(tmp_path / "store")
    assert data == of_snapshot(tmp_path / "store")
    nodes, edges = parsed(data)
    held = {kind: [one for one in nodes if one["kind"] == SHOWN[kind]] for kind in KINDS}
    assert {kind: sorted(one["id"] for one in held[kind]) for kind in KINDS} == {
        kind: graph.ids_of(kind).to_pylist() for kind in KINDS
    }
    assert {(one["id"], one["label"]) for one in held["N"] if "text" not in one} == {
        (entity_id(name.casefold()), name) for name in ("Ada Venn", "Ilse", "Marrow Bridge", "Tallow")
    }
    assert {one["label"] for one in held["O"]} == {one["label"] for one in held["H"]} == {one.title for one in ELEMENTS}
    assert {one["text"] for one in held["H"]} == {one.text for one in ELEMENTS}
    assert {one["label"]: one["text"] for one in held["A"]} == {
        "Ada Venn": "A clockmaker & patron.",
        "Ilse": "A cold river.",
    }
    assert {(one["label"], one["text"]) for one in held["R"]} == {
        ("crosses", "Marrow Bridge crosses Ilse"),
        ("paid for", "Ada Venn paid for Marrow Bridge"),
        ("saw the birth of", "Tallow saw the birth of Ada Venn"),
    }
    assert {(one["document"], one.get("label"), one["text"]) for one in held["T"]} == {
        ("bridge", "Marrow Bridge", "The Marrow Bridge crosses the Ilse."),
        ("bridge", "Marrow Bridge", "Ada Venn paid for the bridge."),
        ("venn", "Ada Venn", "Ada Venn was a clockmaker. She was born in Tallow."),
        ("ilse", "Ilse", "The Ilse is a cold river. It rises in the Grey Hills."),
        ("tallow", None, "Tallow is a town of lamps."),
    }
    assert len(edges) == len(graph.edges)
    assert {(one["source"], one["target"], one["kind"]) for one in edges} == edges_of(graph)
    assert {one["kind"] for one in edges} == set(ENDS) - {"same_as", "subject"}
    assert {one["kind"] for one in edges if not one["directed"]} == {"near"}
    assert {one["weight"] for one in edges} == {1.0}


def test_igraph_reads_it_with_kinds_directions_and_weights(tmp_path: Path) -> None:
    _, graph = publish_world(tmp_path / "store")
    (tmp_path / "h.graphml").write_bytes(of_snapshot(tmp_path / "store"))
    read = igraph.Graph.Read_GraphML(str(tmp_path / "h.graphml"))
    assert (read.vcount(), read.ecount(), read.is_directed()) == (len(graph), len(graph.edges), True)
    ids, kinds = read.vs["id"], read.es["kind"]
    ends = zip(read.get_edgelist(), kinds, strict=True)
    assert {(ids[one], ids[other], kind) for (one, other), kind in ends} == edges_of(graph)
    assert dict(zip(ids, read.vs["kind"], strict=True)) == dict(
        zip(graph.ids.to_pylist(), (SHOWN[KINDS[kind]] for kind in graph.node_kinds), strict=True)
    )
    assert set(read.es["weight"]) == {1.0}
    (born,) = read.vs.select(label="saw the birth of")
    assert [ids[one] for one in read.predecessors(born)] == [entity_id("tallow")]
    assert [ids[one] for one in read.successors(born)] == [entity_id("ada venn")]


def test_no_more_than_a_row_group_is_laid_out_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "ROWS_PER_GROUP", 2)
    _, graph = publish_world(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        nodes, edges = heterograph(snapshot)
        held = [len(piece) for piece in edges.pieces]
        relations = [len(piece) for piece in nodes.pieces if "relation" in piece["kind"].to_pylist()]
    assert sum(held) == len(graph.edges)
    assert max(held) == max(relations) == 2


def test_a_graph_that_does_not_fit_its_tables_is_not_handed_over(tmp_path: Path) -> None:
    writer, graph = publish_world(tmp_path / "store")
    changed(GRAPH, "offsets", lambda held: held - [0, 0, 0, 0, 0, 0, 1, 0])(writer)
    writer.publish(3)
    with pytest.raises(CorruptBlob, match="has 3 nodes of kind O; the tables have 2"):
        of_snapshot(tmp_path / "store")
    changed(GRAPH, "offsets", lambda held: graph.offsets)(writer)
    changed(GRAPH, "rows", lambda held: held + 10**6)(writer)
    writer.publish(4)
    with pytest.raises(CorruptBlob, match="has 4 nodes of kind N; the tables have 0"):
        of_snapshot(tmp_path / "store")


def test_a_snapshot_is_written_with_the_graphs_that_it_holds(tmp_path: Path) -> None:
    writer, _ = publish_world(tmp_path / "store")
    writer.table("described/e0", pa.Table.from_pylist([], DESCRIBED), DESCRIBED)
    writer.table("related/e0", pa.Table.from_pylist([], RELATED), RELATED)
    writer.publish(3)
    for version, names in ((2, ["heterograph.graphml"]), (3, ["graph.graphml", "heterograph.graphml"])):
        folder = tmp_path / str(version)
        made = export_snapshot(open_folder(tmp_path / "store"), version, folder, form="graphml", progress=Silent())
        assert sorted(path.name for path in folder.iterdir()) == ["README.md", *names]
        assert made.files == 1 + len(names)
        assert (folder / "heterograph.graphml").read_bytes() == of_snapshot(tmp_path / "store")
    with pytest.raises(FamilyNotFound, match="'described'"):
        export_snapshot(open_folder(tmp_path / "store"), 1, tmp_path / "1", form="graphml", progress=Silent())
    with pytest.raises(FamilyNotFound, match="does not contain 'heterograph'"):
        of_snapshot(tmp_path / "store", 1)
