"""Texts with their vectors as tables: what the snapshot holds, with the documents that hits name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.heterograph.nodes import heterograph_of
from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.hits import Hit
from indexmill.retrieve.directions import directions_of, unit_vectors
from indexmill.snapshot import Snapshot
from schemas.tables import DOCUMENTS
from tasks.export import vector_tables
from tests.golden_snapshot import QUESTIONS, extracted
from tests.indexmill.small_snapshot import EMBEDDER, WORLD, SnapshotWriter, Text, publish, read_written, writer_of

FILES = ["passages", "entities", "summaries", "described", "communities", "units", "attributes", "elements"]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    """A snapshot with every family."""
    store, _ = extracted(tmp_path_factory.mktemp("kept"))
    with indexmill.open(store) as opened:
        yield opened


def tables(snapshot: Snapshot) -> dict[str, pa.Table]:
    return {
        one.name: pa.concat_tables([one.schema.empty_table(), *one.pieces], promote_options="none")
        for one in vector_tables.tables(snapshot)
    }


def rows(table: pa.Table) -> dict[str, dict[str, Any]]:
    """The rows of a table by their id."""
    return {row["id"]: row for row in table.to_pylist()}


def matrix(table: pa.Table) -> np.ndarray:
    flat: np.ndarray = table["vector"].combine_chunks().flatten().to_numpy()
    return flat.reshape(len(table), -1)


def test_every_table_has_ids_texts_and_unit_vectors_of_one_length(snapshot: Snapshot) -> None:
    made = tables(snapshot)
    assert sorted(made) == sorted(FILES)
    for name, table in made.items():
        assert table.schema.names[0] == "id"
        assert {"text", "vector"} <= set(table.schema.names)
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 64)
        assert len(rows(table)) == len(table) > 0
        assert np.abs(np.linalg.norm(matrix(table), axis=1) - 1).max() < 1e-6, name


def test_passages_are_told_with_what_a_citation_needs(tmp_path: Path) -> None:
    world = {
        "p0": (
            Text("a", "Title A", "First one.\n\nSecond one.", {"url": "https://a.example/", "year": 3}, "a.txt"),
            Text("b", "", "Third one.", {"url": 7}, "http://b.example/"),
        ),
        "p1": (Text("c", "Title C", "Fourth one.", {"url": "ftp://c"}),),
    }
    publish(tmp_path / "store", world)
    with indexmill.open(tmp_path / "store") as snapshot:
        made = tables(snapshot)
        encoded = snapshot.encode(["First one.", "Second one.", "Third one.", "Fourth one."])
    assert list(made) == ["passages"]
    found = made["passages"].to_pylist()
    assert [row["text"] for row in found] == ["First one.", "Second one.", "Third one.", "Fourth one."]
    assert [row["document_id"] for row in found] == ["a", "a", "b", "c"]
    assert [row["title"] for row in found] == ["Title A", "Title A", "", "Title C"]
    assert [row["source"] for row in found] == ["a.txt", "a.txt", "http://b.example/", None]
    assert [row["url"] for row in found] == ["https://a.example/"] * 2 + ["http://b.example/", None]
    assert [row["metadata"] for row in found][::3] == ['{"url":"https://a.example/","year":3}', '{"url":"ftp://c"}']
    assert [row["ordinal"] for row in found] == [0, 1, 0, 0]
    texts = {text.id: text.text for held in world.values() for text in held}
    assert [texts[row["document_id"]][row["span_start"] : row["span_end"]] for row in found] == [
        row["text"] for row in found
    ]
    assert np.array_equal(matrix(made["passages"]), encoded)


def test_the_nearest_rows_are_what_dense_finds_without_titles(snapshot: Snapshot) -> None:
    made = tables(snapshot)["passages"]
    ids, questions = made["id"].to_pylist(), snapshot.encode(QUESTIONS)
    nearest = np.argsort(-(questions @ matrix(made).T), axis=1, kind="stable")[:, :5]
    found = snapshot.retrieve_batch(QUESTIONS, method="dense", k=5, parameters={"title": 0.0})
    assert [[ids[row] for row in row_of] for row_of in nearest] == [[hit.id for hit in hits] for hits in found]


def of_summaries(snapshot: Snapshot) -> list[Hit]:
    found = summaries_of(snapshot)
    return found.hits(np.arange(len(found)), np.zeros(len(found)))


def of_tree(snapshot: Snapshot) -> list[Hit]:
    found = communities_of(snapshot)
    count = len(found.tree.parents)
    return found.hits(range(count), [0.0] * count)


def of_graph(snapshot: Snapshot) -> list[Hit]:
    graph = heterograph_of(snapshot)
    chosen = graph.graph.rows("S", "H")
    return graph.hits(np.arange(chosen.start, chosen.stop), np.zeros(chosen.stop - chosen.start), None)


@pytest.mark.parametrize(
    ("of_family", "names"),
    [
        (of_summaries, ["summaries"]),
        (of_tree, ["described", "communities"]),
        (of_graph, ["units", "attributes", "elements"]),
    ],
    ids=["lsh_tree", "community_tree", "heterograph"],
)
def test_texts_of_families_have_the_documents_that_their_hits_name(
    snapshot: Snapshot, of_family: Callable[[Snapshot], list[Hit]], names: list[str]
) -> None:
    made = tables(snapshot)
    found = {identity: row for name in names for identity, row in rows(made[name]).items()}
    hits = of_family(snapshot)
    assert {hit.id for hit in hits} == found.keys()
    for hit in hits:
        row = found[hit.id]
        assert tuple(row["document_ids"]) == hit.document_ids
        assert hit.text == (row["text"] or row["title"])
        assert row.get("title", hit.title) == hit.title


def test_vectors_of_communities_and_entities_find_what_their_search_finds(snapshot: Snapshot) -> None:
    made, questions = tables(snapshot), snapshot.encode(QUESTIONS)
    tree = communities_of(snapshot).tree
    (entities, *_) = tree.index.search(questions, 3)
    ids = made["described"]["id"].to_pylist()
    for question, expected in zip(questions, tree.index_rows[entities.rows].tolist(), strict=True):
        scores = matrix(made["described"]) @ question
        assert [ids[row] for row in np.argsort(-scores, kind="stable")[:3]] == [ids[row] for row in expected]


def test_entities_have_the_vectors_of_their_names_where_they_have_any(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "store")
    writer.tri_graph(every_name=2)
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot:
        made, known = tables(snapshot)["entities"], rows_of_entities(snapshot)
    assert 0 < len(made) < len(known)
    for row in made.to_pylist():
        table = known[row["id"]]
        assert (row["title"], row["text"]) == (table["surface"], table["name"])
        assert row["mentions"] == table["mentions"]
        assert row["vector"] == unit_vectors(directions_of(EMBEDDER.encode([row["text"]])))[0].tolist()


def rows_of_entities(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    return {row["entity_id"]: row for row in snapshot.table("entities").to_pylist()}


def test_the_lists_of_a_piece_are_bounded_and_rows_the_same(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tables(snapshot)
    monkeypatch.setattr("indexmill.export.export_tables._MOST", 2)
    lengths = {one.name: [len(piece) for piece in one.pieces] for one in vector_tables.tables(snapshot)}
    assert max(lengths["summaries"]) == 1
    assert tables(snapshot) == whole


def test_a_snapshot_without_passages_has_no_vectors(tmp_path: Path) -> None:
    SnapshotWriter(tmp_path / "store").publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(FamilyNotFound, match="no passages"):
        next(vector_tables.tables(snapshot))


def test_metadata_that_is_no_object_is_damage(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    writer.shard("p0", WORLD["p0"])
    table = read_written(writer, "documents/p0")
    place = table.schema.get_field_index("metadata")
    writer.artifacts = [one for one in writer.artifacts if one.name != "documents/p0"]
    writer.table("documents/p0", table.set_column(place, "metadata", pa.array(["[]"] * len(table))), DOCUMENTS)
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="expected a JSON object"):
        tables(snapshot)


def test_passages_have_pages_where_a_document_has_some(tmp_path: Path) -> None:
    report = Text("a", "A", "One.\n\nTwo.\n\nThree.", locations=((4, 2, None), (12, 5, [0.0, 0.0, 1.0, 1.0])))
    world = {"p0": (report, Text("b", "B", "Four.")), "p1": (Text("c", "C", "Five."),)}
    publish(tmp_path / "store", world)
    with indexmill.open(tmp_path / "store") as snapshot:
        passages = tables(snapshot)["passages"]
    assert passages.schema.field("page").type == pa.int32()
    pages = {row["text"]: row["page"] for row in passages.to_pylist()}
    assert pages == {"One.": None, "Two.": 2, "Three.": 5, "Four.": None, "Five.": None}
    assert "locations" not in passages.column_names
    publish(tmp_path / "plain", {"p1": world["p1"]})
    with indexmill.open(tmp_path / "plain") as snapshot:
        assert "page" not in tables(snapshot)["passages"].column_names
