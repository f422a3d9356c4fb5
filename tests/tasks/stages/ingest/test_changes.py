"""Changes since a cursor, applied to what was read before, are what a reading of everything gives."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import StoreError
from schemas.corpus import CorpusSettings
from schemas.sources import FeedSettings
from schemas.tables import DOCUMENTS, QUARANTINE
from tasks.stages.ingest import shard_plan, spill
from tasks.stages.ingest.file_counts import FileCounts
from tasks.stages.ingest.listing import list_corpus
from tasks.stages.ingest.shard_plan import ShardPlan
from tasks.stages.ingest.spill import ScanResult
from tasks.stages.ingest.spill_files import CARRIED_ROW
from tests.deep import examples

Event = tuple[str, str, str]  # op, id, text

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "refused"]),
        st.sampled_from("abcdefgh"),
        st.text("xyz"),
    ),
    max_size=12,
)


def line_of(event: Event) -> str:
    op, name, text = event
    if op == "delete":
        return json.dumps({"op": "delete", "id": name})
    # A text of spaces is refused, and so the document is gone: a reading of everything would refuse it, too.
    return json.dumps({"op": "upsert", "id": name, "text": " " if op == "refused" else f"The text {text}."})


def expected(events: Iterable[Event]) -> dict[str, str]:
    held: dict[str, str] = {}
    for op, name, text in events:
        held.pop(name, None)
        if op == "upsert":
            held[name] = f"The text {text}."
    return held


class Feed:
    """A change feed that is read night by night, in one process and without a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "feed.jsonl"
        self.file.touch()
        self.settings = CorpusSettings(sources=(FeedSettings(paths=(str(self.file),)),))
        self.cursor: Any = None
        self.rows = CARRIED_ROW.empty_table()
        self.refused = QUARANTINE.empty_table()
        self.documents = DOCUMENTS.empty_table()
        self.nights = 0

    def append(self, events: Sequence[Event]) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.writelines(line_of(event) + "\n" for event in events)

    def read(self, *, full: bool = False) -> tuple[ShardPlan, dict[str, str]]:
        """The documents after a night, which the next one goes on from."""
        self.nights += 1
        spilled = self.folder / f"spill{self.nights}"
        spilled.mkdir()
        (listed,) = list_corpus(self.settings, self.folder / "places").files
        result = spill.scan([replace(listed, cursor=None if full else self.cursor)], self.settings, spilled)
        results: list[ScanResult] = [result]
        if not result.until.whole:
            ids = spill.ids_of(result, spilled).to_pylist()
            stay = pa.array([name not in ids for name in self.rows.column("document_id").to_pylist()], pa.bool_())
            results.append(spill.carry(self.rows.filter(stay), self.refused, {listed.name: FileCounts()}, spilled))
        plan = shard_plan.plan(results, spilled, 8)
        tables = [shard_plan.documents_of(shard, spilled, [self.documents]) for shard in plan.shards]
        self.documents = pa.concat_tables([DOCUMENTS.empty_table(), *tables])
        self.rows, self.cursor = shard_plan.known_rows(spilled), result.until.cursor
        names, texts = (self.documents.column(name).to_pylist() for name in ("document_id", "text"))
        return plan, dict(zip(names, texts, strict=True))


@examples(11, deep=60)
@given(nights=st.lists(EVENTS, min_size=1, max_size=4))
def test_nights_of_changes_give_what_one_reading_gives(nights: list[list[Event]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        feed = Feed(Path(folder))
        told: list[Event] = []
        for events in nights:
            feed.append(events)
            told += events
            plan, held = feed.read()
            assert held == expected(told)
            assert plan.lacking == ()
        whole, held = feed.read(full=True)
        assert (whole.fingerprint, whole.shards) == (plan.fingerprint, plan.shards)
        assert held == expected(told)


def test_what_is_carried_is_known_again_and_taken_from_the_version_before(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.append([("upsert", "a", "x"), ("upsert", "b", "y")])
    feed.read()
    feed.append([("upsert", "b", "z")])
    feed.read()
    plan, held = feed.read()
    assert held == {"a": "The text x.", "b": "The text z."}
    assert feed.rows.column("published").to_pylist() == [True, True]
    feed.documents = feed.documents.slice(0, 1)
    with pytest.raises(StoreError, match="as planned"):
        feed.read()
    assert plan.documents == 2


def test_a_carried_row_that_becomes_a_document_is_told_by_its_file(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.append([("upsert", "a", "x")])
    feed.read()
    at = feed.rows.schema.get_field_index("published")
    lost = feed.rows.set_column(at, "published", pa.array([False]))
    (tmp_path / "next").mkdir()
    carried = spill.carry(lost, QUARANTINE.empty_table(), {"feed": FileCounts()}, tmp_path / "next")
    assert shard_plan.plan([carried], tmp_path / "next").lacking == (feed.rows.column("file")[0].as_py(),)
