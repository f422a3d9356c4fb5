"""What differs between a snapshot and the next."""

from __future__ import annotations

import pyarrow as pa

from schemas.tables import DOCUMENTS
from tasks.pipeline.plan.changes import Change, DocumentChanges, changed, document_changes


def table(**texts: str) -> pa.Table:
    """Documents by id; the source of each is its id, as that of a text file is."""
    rows = [
        {"document_id": name, "title": "T", "text": text, "source": name, "metadata": "{}", "content_hash": name + text}
        for name, text in texts.items()
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


def test_a_renamed_file_is_moved_and_a_copy_is_added() -> None:
    before = [table(a="one", b="two"), table(c="three")]
    assert document_changes(before, [table(b="two", z="one"), table(c="four")], 5) == DocumentChanges(
        changed=1, moved=1, unchanged=6
    )
    assert document_changes(before, [table(a="one", b="two", z="one", c="three")], 0) == DocumentChanges(
        added=1, unchanged=3
    )


def test_a_document_takes_the_place_of_one_that_is_gone_once() -> None:
    found = document_changes([table(a="one")], [table(x="one", y="one")], 0)
    assert found == DocumentChanges(added=1, moved=1)
    assert document_changes([table(a="one", b="one")], [table(x="one")], 0) == DocumentChanges(removed=1, moved=1)


def test_values_that_differ_have_dotted_names() -> None:
    was = {"split": {"tokens": 256, "overlap": 0}, "families": {"bm25": {"enabled": True}}}
    now = {"split": {"tokens": 64, "overlap": 0}, "families": {"bm25": 1}, "new": None, "other": 2}
    assert changed(was, now) == [
        Change("families.bm25", {"enabled": True}, 1),
        Change("other", None, 2),
        Change("split.tokens", 256, 64),
    ]
