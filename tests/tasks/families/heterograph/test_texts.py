"""The texts of units and relations."""

from __future__ import annotations

import pyarrow as pa
import pytest

from schemas.tables import HETERO_RELATIONS
from tasks.families.heterograph.graph import relation_ids, relation_nodes
from tasks.families.heterograph.reading import about_entities, capped
from tasks.families.heterograph.texts import digested, relation_table, relation_text, relation_texts, unit_texts
from tasks.stages.embed.embed import row_key
from tests.tasks.families.heterograph.graphs import ids, prize

NAMES = ("hinton", "nobel prize", "stockholm", "backpropagation")
SHOWN = pa.table({"entity_id": ids(*NAMES), "surface": [name.title() for name in NAMES]})


def test_a_relation_reads_from_its_source_to_its_target() -> None:
    found = relation_table(relation_nodes(prize().relations), SHOWN)
    assert found.schema.equals(HETERO_RELATIONS)
    assert found["node_id"].to_pylist() == sorted(set(relation_ids(prize().relations).to_pylist()))
    assert sorted(found["said"].to_pylist()) == [
        "Hinton invented Backpropagation",
        "Hinton received Nobel Prize",
        "Nobel Prize is awarded in Stockholm",
    ]
    assert relation_text("Hinton", "'s student", "Sutskever") == "Hinton's student Sutskever"


def test_an_entity_without_a_surface_is_refused() -> None:
    with pytest.raises(ValueError, match="of a relation has no surface"):
        relation_table(relation_nodes(prize().relations), SHOWN.slice(0, 3))


def test_texts_are_what_reading_takes() -> None:
    corpus = prize()
    graph = corpus.first()
    said = relation_table(relation_nodes(corpus.relations), SHOWN)
    texts = pa.concat_tables([unit_texts(corpus.units), relation_texts(said)])
    read = capped(about_entities(graph, pa.array([True] * 4).to_numpy(False)), digested(texts), {"S": 9, "R": 9}, 999)
    assert len(read) == 8 + 6  # every mention, and both ends of every relation
    text = dict(zip(texts["node_id"].to_pylist(), texts["text"].to_pylist(), strict=True))
    assert read["text"].to_pylist() == [text[one] for one in read["node_id"].to_pylist()]
    assert read["digest"].to_pylist() == [row_key(text[one]).hex() for one in read["node_id"].to_pylist()]
    assert read["tokens"].to_pylist() == [len(text[one]) // 4 + 1 for one in read["node_id"].to_pylist()]
