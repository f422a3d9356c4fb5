"""The texts of units and relations."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indexmill.families.heterograph.nodes import relation_text
from tasks.families.heterograph.graph import relation_ids, relation_nodes
from tasks.families.heterograph.tables import HETERO_RELATIONS
from tasks.families.heterograph.texts import digested, relation_table
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


def test_a_text_has_the_digest_of_its_vector_and_tokens_by_its_bytes() -> None:
    (row,) = digested(pa.table({"node_id": ["a"], "text": ["Ädä saw"]})).to_pylist()
    assert row == {"node_id": "a", "text": "Ädä saw", "digest": row_key("Ädä saw").hex(), "tokens": 3}
