"""GraphRAG's tables of a snapshot: their columns, what they say of a small graph, and where references lead."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.export.entity_graph import unique_titles
from indexmill.families.community_tree import graphrag
from indexmill.text.canonical_names import entity_id
from schemas.tables import DESCRIBED
from tests.indexmill.damage import changed
from tests.indexmill.graphrag_tables import Tables, by, check_references
from tests.indexmill.small_communities import Group
from tests.indexmill.small_knowledge import KNOWLEDGE, Knowledge, Said, publish_knowledge, random_knowledge
from tests.indexmill.small_snapshot import SnapshotWriter, read_written
from tests.storage.quick import quick_folder

LEVELS = [
    [
        Group(title, f"About {title}.", [KNOWLEDGE.names.index(name) for name in names], rating, findings=findings)
        for names, title, findings, rating in (
            (("marrow bridge", "ilse"), "Bridge and river", [("It is cold.", "The Ilse is.")], 7.3),
            (("ada venn", "tallow"), "Ada Venn", [("She paid.", "For it."), ("Born there.", "In Tallow.")], 10.0),
            (("mercury god", "mercury planet"), "Mercury", [], 0.0),
        )
    ],
    [Group("The town", "All of it.", [0, 1], 5.0), Group("Mercury", "Alone.", [2], 1.5)],
]
"""Two levels over all entities: the bridge's and Ada Venn's communities make one, Mercury's stays alone."""


def exported(knowledge: Knowledge) -> Tables:
    with quick_folder() as folder:
        publish_knowledge(folder / "store", knowledge)
        return read(folder / "store")


def read(path: Path) -> Tables:
    with indexmill.open(path) as snapshot:
        made = {}
        for table in graphrag.tables(snapshot):
            pieces = list(table.pieces)
            assert {piece.schema for piece in pieces} <= {table.schema}
            made[table.name] = [row for piece in pieces for row in piece.to_pylist()]
        return made


@pytest.fixture(scope="module")
def small() -> Tables:
    return exported(dataclasses.replace(KNOWLEDGE, levels=LEVELS))


COLUMNS = {
    "documents": "id human_readable_id title text text_unit_ids creation_date raw_data",
    "text_units": "id human_readable_id text n_tokens document_id entity_ids relationship_ids covariate_ids",
    "entities": "id human_readable_id title type description text_unit_ids frequency degree",
    "relationships": "id human_readable_id source target description weight combined_degree text_unit_ids",
    "communities": (
        "id human_readable_id community level parent children title entity_ids relationship_ids text_unit_ids "
        "period size"
    ),
    "community_reports": (
        "id human_readable_id community level parent children title summary full_content rank rating_explanation "
        "findings full_content_json period size"
    ),
}
"""As the `data_model/schemas.py` of GraphRAG 3.3.0 lists them."""


def test_the_columns_are_those_of_graphrag_3() -> None:
    assert {name: " ".join(schema.names) for name, schema in graphrag.SCHEMAS.items()} == COLUMNS


def test_the_types_are_those_that_pandas_gives_graphrag() -> None:
    types = {str(field.type) for schema in graphrag.SCHEMAS.values() for field in schema}
    assert {one.replace("item", "element") for one in types} == {
        "string",
        "int64",
        "double",
        "list<element: string>",
        "list<element: int64>",
        "list<element: struct<summary: string, explanation: string>>",
    }
    assert graphrag.SCHEMAS["community_reports"].field("rank").type == pa.float64()
    assert graphrag.SCHEMAS["relationships"].field("weight").type == pa.float64()


def test_documents_and_text_units_lead_to_each_other(small: Tables) -> None:
    documents = by(small["documents"], "id")
    assert [one["human_readable_id"] for one in small["documents"]] == [0, 1, 2]
    assert documents["bridge"]["raw_data"] == '{"year":1}'
    assert (documents["bridge"]["title"], documents["venn"]["title"]) == ("Marrow Bridge", "venn")
    units = small["text_units"]
    assert [len(documents[one]["text_unit_ids"]) for one in ("bridge", "venn", "ilse")] == [2, 1, 1]
    assert [one["id"] for one in units] == [one for row in small["documents"] for one in row["text_unit_ids"]]
    assert [one["document_id"] for one in units] == ["bridge", "bridge", "venn", "ilse"]
    first = units[0]
    assert first["text"] == "The Marrow Bridge crosses the Ilse."
    assert (first["n_tokens"], first["covariate_ids"]) == (6, [])
    assert set(first["entity_ids"]) == {entity_id("marrow bridge"), entity_id("ilse")}
    assert first["relationship_ids"] == [f"{entity_id('marrow bridge')}-{entity_id('ilse')}"]


def test_entities_have_distinct_titles_frequency_and_degree(small: Tables) -> None:
    entities = by(small["entities"], "title")
    assert entities.keys() == {
        *("Marrow Bridge", "Ilse", "Ada Venn", "Tallow"),
        *("Mercury (mercury god)", "Mercury (mercury planet)"),
    }
    counted = {title: (one["frequency"], one["degree"]) for title, one in entities.items()}
    assert counted == {
        "Marrow Bridge": (2, 2),
        "Ilse": (2, 1),
        "Ada Venn": (2, 2),  # with Tallow she is related in both directions: one neighbour
        "Tallow": (1, 1),
        "Mercury (mercury god)": (1, 0),
        "Mercury (mercury planet)": (1, 0),
    }
    venn = entities["Ada Venn"]
    assert (venn["id"], venn["type"], venn["description"]) == (entity_id("ada venn"), "thing", "all about ada venn")
    assert venn["text_unit_ids"] == [small["text_units"][1]["id"], small["text_units"][2]["id"]]


def test_relationships_name_titles(small: Tables) -> None:
    found = {(one["source"], one["target"]): one for one in small["relationships"]}
    assert found.keys() == {
        ("Marrow Bridge", "Ilse"),
        ("Ada Venn", "Marrow Bridge"),
        ("Ada Venn", "Tallow"),
        ("Tallow", "Ada Venn"),
    }
    paid = found["Ada Venn", "Marrow Bridge"]
    assert (paid["weight"], paid["combined_degree"]) == (1.0, 4)
    assert paid["description"] == "ada venn paid for marrow bridge"
    assert paid["text_unit_ids"] == [small["text_units"][1]["id"]]


def test_level_0_is_the_coarsest(small: Tables) -> None:
    reports = by(small["community_reports"], "community")
    communities = by(small["communities"], "community")
    titles = {number: reports[number]["title"] for number in communities}
    assert {titles[number] for number in (0, 1)} == {"The town", "Mercury"}
    assert [one["level"] for one in small["communities"]] == [0, 0, 1, 1, 1]
    assert [one["title"] for one in small["communities"]] == [f"Community {number}" for number in range(5)]
    town = next(number for number in (0, 1) if titles[number] == "The town")
    assert communities[town]["parent"] == -1
    assert {titles[one] for one in communities[town]["children"]} == {"Bridge and river", "Ada Venn"}
    assert communities[town]["size"] == 4
    assert len(communities[town]["entity_ids"]) == 4
    assert len(communities[town]["relationship_ids"]) == 4
    assert communities[town]["text_unit_ids"] == [one["id"] for one in small["text_units"][:3]]
    venn = next(one for one in small["communities"] if titles[one["community"]] == "Ada Venn")
    assert venn["parent"] == town
    assert venn["children"] == []
    assert set(venn["entity_ids"]) == {entity_id("ada venn"), entity_id("tallow")}
    assert len(venn["relationship_ids"]) == 2  # not the one that leads out of it
    assert venn["text_unit_ids"] == [small["text_units"][2]["id"]]


def test_a_report_is_told_as_text_and_as_json(small: Tables) -> None:
    reports = {row["title"]: row for row in small["community_reports"]}
    one = reports["Ada Venn"]
    assert one["summary"] == "About Ada Venn."
    assert one["full_content"] == (
        "# Ada Venn\n\nAbout Ada Venn.\n\n## She paid.\n\nFor it.\n\n## Born there.\n\nIn Tallow."
    )
    assert (one["rank"], one["rating_explanation"], one["period"], one["size"]) == (10.0, "rated 10.0", "", 2)
    assert one["findings"] == [
        {"summary": "She paid.", "explanation": "For it."},
        {"summary": "Born there.", "explanation": "In Tallow."},
    ]
    bridge = json.loads(reports["Bridge and river"]["full_content_json"])
    assert bridge == {
        "title": "Bridge and river",
        "summary": "About Bridge and river.",
        "findings": [{"summary": "It is cold.", "explanation": "The Ilse is."}],
        "rating": 7.3,
        "rating_explanation": "rated 7.3",
    }
    assert reports["Bridge and river"]["rank"] == 7.3


@pytest.mark.parametrize("seed", range(30))
def test_every_reference_leads_somewhere(seed: int) -> None:
    knowledge = random_knowledge(seed)
    found = exported(knowledge)
    check_references(found)
    assert {row["id"] for row in found["entities"]} == {entity_id(name) for name in knowledge.names}
    assert len(found["communities"]) == sum(map(len, knowledge.levels))
    assert len(found["text_units"]) == len(knowledge.said)
    weights = [row["weight"] for row in found["relationships"]]
    assert sum(weights) == sum(len(set(one.relations)) for one in knowledge.said)


@pytest.mark.slow
def test_the_lists_of_a_piece_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    knowledge = random_knowledge(3)
    whole = exported(knowledge)
    monkeypatch.setattr("indexmill.export.export_tables._MOST", 2)
    assert exported(knowledge) == whole
    with quick_folder() as folder:
        publish_knowledge(folder / "store", knowledge)
        with indexmill.open(folder / "store") as snapshot:
            pieces = {table.name: list(table.pieces) for table in graphrag.tables(snapshot)}
    assert all(
        len(piece) == 1 or sum(map(len, piece["text_unit_ids"].to_pylist())) <= 2 for piece in pieces["relationships"]
    )
    assert len(pieces["communities"]) > 1


@pytest.mark.parametrize("said", [KNOWLEDGE.said, [Said([])] * 4])
def test_a_graph_may_be_empty_and_so_may_the_tree(said: list[Said]) -> None:
    found = exported(dataclasses.replace(KNOWLEDGE, said=said, levels=[[]]))
    assert {row["id"] for row in found["entities"]} == {entity_id(name) for one in said for name in one.names}
    assert found["communities"] == found["community_reports"] == []
    assert len(found["text_units"]) == 4
    assert [row["entity_ids"] for row in found["text_units"]] == [sorted(map(entity_id, one.names)) for one in said]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    publish_knowledge(tmp_path / "extracted", KNOWLEDGE)
    with (
        indexmill.open(tmp_path / "extracted") as snapshot,
        pytest.raises(FamilyNotFound, match="community_tree") as one,
    ):
        next(graphrag.tables(snapshot))
    assert "families: {community_tree: {enabled: true}}" in str(one.value)
    writer = SnapshotWriter(tmp_path / "bare")
    for label, texts in KNOWLEDGE.texts.items():
        writer.shard(label, texts)
    writer.publish()
    with (
        indexmill.open(tmp_path / "bare") as snapshot,
        pytest.raises(FamilyNotFound, match="nothing was extracted") as one,
    ):
        next(graphrag.tables(snapshot))
    assert "families: {community_tree: {enabled: true}}" in str(one.value)


def test_a_tree_of_another_graph_is_refused(tmp_path: Path) -> None:
    writer = publish_knowledge(tmp_path / "store", dataclasses.replace(KNOWLEDGE, levels=LEVELS))
    parents = [5, 5, 6, 6, 7, 8, 8, 9, -1, -1]  # of five entities, and three communities below the others
    children = [0, 2, 4, 5, 7, 8]
    changed("community_tree/tree", "level_offsets", lambda _: np.array([0, 5, 8, 10]))(writer)
    changed("community_tree/tree", "parents", lambda _: np.array(parents, np.int32))(writer)
    changed("community_tree/tree", "children.indptr", lambda _: np.array(children))(writer)
    changed("community_tree/tree", "children.indices", lambda _: np.arange(8, dtype=np.int32))(writer)
    writer.publish(2)
    with (
        indexmill.open(tmp_path / "store") as snapshot,
        pytest.raises(CorruptBlob, match="is not a tree of 6 entities and 5 communities"),
    ):
        next(graphrag.tables(snapshot))


def test_tables_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    writer = publish_knowledge(tmp_path / "store", dataclasses.replace(KNOWLEDGE, levels=LEVELS))
    whole = list(writer.artifacts)
    related = read_written(writer, "related/e1")
    loops = related.set_column(related.schema.get_field_index("target"), "target", related["source"])
    for version, (name, table, message) in enumerate(
        (
            ("described/e0", read_written(writer, "described/e1"), "'described' has a duplicate entity"),
            ("described/e0", DESCRIBED.empty_table(), "names an entity that is not in the table 'described'"),
            ("related/e1", loops, "'relations' has a pair of entities that 'related' lacks"),
        ),
        start=2,
    ):
        writer.artifacts = [one for one in whole if one.name != name]
        writer.table(name, table, table.schema)
        writer.publish(version)
        with pytest.raises(CorruptBlob, match=message):
            read(tmp_path / "store")


@given(
    st.lists(
        st.tuples(st.sampled_from(["A", "B", "A (b)", "A (b) (c)", "B (a)", "A (d)"]), st.sampled_from("abcdefgh")),
        unique_by=lambda pair: pair[1],
    )
)
def test_no_two_titles_are_equal(pairs: list[tuple[str, str]]) -> None:
    surfaces, names = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    titles = unique_titles(surfaces, names).to_pylist()
    assert len(set(titles)) == len(pairs)
    for title, (surface, name) in zip(titles, pairs, strict=True):
        assert title in (surface, f"{surface} ({name})")
    counts = Counter(surface for surface, _ in pairs)
    if all("(" not in surface for surface in counts):
        expected = [one if counts[one] == 1 else f"{one} ({name})" for one, name in pairs]
        assert titles == expected
