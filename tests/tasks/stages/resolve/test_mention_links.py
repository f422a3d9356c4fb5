"""What a shard's sentences and passages mention: by hand, and shard by shard from night to night."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from indexmill.text.canonical_names import NameIndex, entity_id
from tasks.stages.resolve.mention_links import layout_of, mention_links
from tests.corpora import documents
from tests.tasks.indexes import Index, edited

Arrays = dict[str, np.ndarray]

NAMES = sorted(("ada marl", "orrin bay", "vell", "1907", "told of alone"), key=entity_id)
ADA, ORRIN, VELL = (NAMES.index(name) for name in ("ada marl", "orrin bay", "vell"))

DOCUMENTS = pa.table({"document_id": ["d1", "d2", "d3"]})
PASSAGES = pa.table({"passage_id": ["p1", "p2", "p3"], "document_id": ["d1", "d1", "d3"]})
SENTENCES = pa.table({"passage_id": ["p1", "p1", "p3", "p3", "p3"]})


def linked(*mentions: tuple[str, int, str, str], told: Sequence[str] = ()) -> Arrays:
    """The arrays of mentions: passage, sentence, name and kind."""
    passage, sentence, name, kind = zip(*mentions, strict=True)
    ids = [entity_id(one) for one in name]
    rows = {"passage_id": passage, "sentence": pa.array(sentence, pa.int32()), "entity_id": ids, "kind": kind}
    extracted = pa.table({"entity_id": pa.array([entity_id(one) for one in told], pa.string())})
    return mention_links(DOCUMENTS, PASSAGES, SENTENCES, pa.table(rows), extracted)


def rows_of(arrays: Arrays, name: str) -> list[list[int]]:
    """The columns of each row of a matrix."""
    return [row.tolist() for row in np.split(arrays[f"{name}.indices"], arrays[f"{name}.indptr"][1:-1])]


def test_a_title_is_in_every_sentence_a_subject_up_to_the_next_and_both_are_marked() -> None:
    found = linked(
        ("p1", -1, "ada marl", "title"),
        ("p1", 1, "vell", "name"),
        ("p1", 1, "vell", "name"),
        ("p3", 0, "orrin bay", "subject"),
        ("p3", 2, "vell", "subject"),
        ("p3", 2, "vell", "name"),
        ("p3", 1, "1907", "date"),
        told=["told of alone"],
    )
    assert found["entity_keys"].tolist() == NameIndex.keys([entity_id(name) for name in NAMES]).tolist()
    assert found["document_passages"].tolist() == [0, 2, 2, 3]
    assert found["passage_sentences"].tolist() == [0, 2, 2, 5]
    both = sorted((ADA, VELL))
    assert rows_of(found, "mentions") == [[ADA], both, [ORRIN], [ORRIN], [VELL]]
    last = sorted((ORRIN, VELL))
    assert rows_of(found, "contents") == [both, [], last]
    counts = {ADA: 8, VELL: 2}, {ORRIN: 8, VELL: 9}
    assert found["contents.counts"].tolist() == [counts[0][one] for one in both] + [counts[1][one] for one in last]
    assert found["titles"].tolist() == [both.index(ADA), 2, 3]


def test_a_shard_without_mentions_has_rows_without_links() -> None:
    none = pa.table(
        {
            "passage_id": pa.array([], pa.string()),
            "sentence": pa.array([], pa.int32()),
            "entity_id": pa.array([], pa.string()),
            "kind": pa.array([], pa.string()),
        }
    )
    found = mention_links(DOCUMENTS, PASSAGES, SENTENCES, none)
    assert rows_of(found, "mentions") == [[]] * 5
    assert rows_of(found, "contents") == [[]] * 3
    assert len(found["entity_keys"]) == len(found["titles"]) == 0


def test_rows_that_do_not_stand_by_their_owners_are_refused() -> None:
    with pytest.raises(ValueError, match="order of their document_id"):
        layout_of(DOCUMENTS, PASSAGES.take(pa.array([2, 0, 1])), SENTENCES)
    with pytest.raises(ValueError, match="order of their passage_id"):
        layout_of(DOCUMENTS, PASSAGES, SENTENCES.take(pa.array([4, 0])))


@pytest.mark.slow
def test_an_edited_document_changes_the_links_of_its_shard_alone(quick: Path) -> None:
    """Also where the document adds entities, which moves the rows of others over the whole corpus."""
    index, rows = Index(quick / "store"), documents(40)
    index.build(rows)
    before = of_stage(index)
    index.build(edited(rows, "Then Zed Vex came to Krait Hall, and Abel Nox with him."))
    after = of_stage(index)
    assert len(after) == len(before) > 3
    (changed,) = [label for label in after if after[label] != before[label]]
    with index.snapshot() as snapshot:
        assert "doc-0007" in snapshot.table(f"documents/{changed}")["document_id"].to_pylist()


def of_stage(index: Index) -> dict[str, str]:
    """The packs of each shard, by digest."""
    return {
        label: held["mention_links"] for (stage, label), held in index.outputs().items() if stage == "mention_links"
    }
