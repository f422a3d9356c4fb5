"""The labels of entities for a reader with limited rights: no surface, and no text with one, that only others write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill import CorruptBlob
from indexmill.retrieve.entity_labels import EntityLabels, entity_labels_of
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import entity_id
from schemas.tables import ENTITIES, EXTRACTED, MENTIONS
from tests.indexmill.small_communities import Group, Related, Thing, write_communities
from tests.indexmill.small_snapshot import SnapshotWriter, Text, read_written

DOCUMENTS = [
    Text("d0", "", "Ada Venn built a bridge.", {"groups": "all"}),
    Text("d1", "", "Ada Venn lives in Tallow.", {"groups": "all"}),
    Text("d2", "", "The secret smith sold a bridge.", {"groups": "few"}),
    Text("d3", "", "The Ilse is cold.", {"groups": "all"}),
]
MENTIONED = [(0, "ada venn", "Ada Venn"), (1, "ada venn", "Ada Venn"), (1, "tallow", "Tallow"), (3, "ilse", "Ilse")]
HIDDEN = [(2, "ada venn", "The secret smith"), (2, "ilse", "The Ilse")]
"""A language model has told the recogniser whom the text means."""
SHOWN = {"ada venn": "The secret smith", "tallow": "Tallow", "ilse": "Ilse"}
NAMES = sorted(SHOWN, key=entity_id)
MAY = np.array([True, True, False, True])


def written(path: Path, mentioned: Sequence[tuple[int, str, str]] = (*MENTIONED, *HIDDEN)) -> SnapshotWriter:
    writer = SnapshotWriter(path)
    writer.shard("p", DOCUMENTS)
    ids = read_written(writer, "passages/p")["passage_id"].to_pylist()
    rows: list[dict[str, Any]] = [
        {
            "passage_id": ids[row],
            "sentence": 0,
            "start": 0,
            "end": 1,
            "surface": surface,
            "name": name,
            "entity_id": entity_id(name),
            "kind": "name",
        }
        for row, name, surface in sorted(mentioned)
    ]
    writer.table("mentions/p", pa.Table.from_pylist(rows, MENTIONS), MENTIONS)
    counts = {"mentions": 1, "passages": 1, "documents": 1}
    entities = [{"entity_id": entity_id(name), "name": name, "surface": SHOWN[name], **counts} for name in NAMES]
    writer.table("entities/e", pa.Table.from_pylist(entities, ENTITIES), ENTITIES)
    return writer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "store"
    writer = written(path)
    things = [
        Thing("The secret smith", "who built a bridge", [0, 1], name="ada venn"),
        Thing("Tallow", "a town of lamps", [1]),
        Thing("Ilse", "a cold river", [3]),
    ]
    levels = [[Group("The secret smith, Tallow", "a town and a smith", [0, 1]), Group("Ilse", "a cold river", [2])]]
    write_communities(writer, things, levels, [Related(0, 1, "The secret smith lives in Tallow")])
    writer.configuration = {"corpus": {"access": {"field": "groups", "required": True}}}
    writer.publish()
    return path


@pytest.fixture(scope="module")
def snapshot(store: Path) -> Iterator[Snapshot]:
    with indexmill.open(store) as opened:
        yield opened


def rows_of(*names: str) -> np.ndarray:
    return np.array([NAMES.index(name) for name in names], dtype=np.int64)


def test_a_surface_is_shown_if_a_readable_passage_writes_it(snapshot: Snapshot) -> None:
    labels = entity_labels_of(snapshot)
    rows = rows_of("ilse", "ada venn", "tallow")
    assert labels.shown(rows, None) == ["Ilse", "The secret smith", "Tallow"]
    assert labels.shown(rows, MAY) == ["Ilse", "ada venn", "Tallow"]
    assert labels.shown(rows, ~MAY) == ["ilse", "The secret smith", "tallow"]
    assert labels.shown(rows[:0], MAY) == []
    assert labels.ids(rows) == [entity_id(one) for one in ("ilse", "ada venn", "tallow")]


def test_a_passage_is_plain_if_all_its_names_are_shown_as_some_readable_passage_writes_them(
    snapshot: Snapshot,
) -> None:
    labels = entity_labels_of(snapshot)
    assert labels.plain(np.ones(4, np.bool_)).tolist() == [True] * 4
    assert labels.plain(MAY).tolist() == [False, False, False, True]
    assert labels.plain(np.array([False, False, True, True])).tolist() == [False, False, True, True]
    assert labels.plain(MAY) is labels.plain(MAY.copy())


def test_what_is_extracted_from_a_passage_names_an_entity_too(tmp_path: Path) -> None:
    def opened(name: str, surface: str) -> Snapshot:
        """A snapshot in which passage 3 is told to name an entity."""
        writer = written(tmp_path / surface / "store")
        (passage,) = read_written(writer, "passages/p")["passage_id"].to_pylist()[3:]
        row = {"passage_id": passage, "entity_id": entity_id(name), "name": name, "surface": surface}
        rows = [row | {"type": "", "description": ""}]
        writer.table("extracted/p", pa.Table.from_pylist(rows, EXTRACTED), EXTRACTED)
        writer.publish()
        return indexmill.open(tmp_path / surface / "store")

    with opened("ada venn", "Ada Venn") as otherwise:
        assert entity_labels_of(otherwise).shown(rows_of("ada venn"), MAY) == ["ada venn"]
        assert entity_labels_of(otherwise).plain(MAY).tolist() == [False] * 4
    with opened("ada venn", "The secret smith") as alike:
        assert entity_labels_of(alike).shown(rows_of("ada venn"), MAY) == ["The secret smith"]
        assert entity_labels_of(alike).plain(MAY).tolist() == MAY.tolist()


def test_rows_are_found_by_ids(snapshot: Snapshot) -> None:
    asked = pa.array([entity_id("tallow"), entity_id("nobody")])
    assert entity_labels_of(snapshot).rows_of(asked).tolist() == [NAMES.index("tallow"), -1]


def test_descriptions_and_reports_that_name_an_entity_as_others_do_are_hidden(snapshot: Snapshot) -> None:
    question = "Who is the smith that built a bridge in Tallow by the Ilse?"
    for explain in (True, False):
        hits = snapshot.retrieve(question, method="community_tree", k=50, explain=explain, principals=["all"])
        assert {hit.title for hit in hits if hit.kind != "passage"} == {"Tallow", "Ilse"}
        assert "secret" not in str([hit.to_dict() for hit in hits])
    hits = snapshot.retrieve(question, method="community_tree", k=50, principals=["all", "few"])
    assert {hit.title for hit in hits} >= {"The secret smith", "Tallow", "The secret smith, Tallow"}
    filtered = snapshot.retrieve(
        question, method="community_tree", k=50, where={"groups": "all"}, principals=indexmill.UNRESTRICTED
    )
    own = snapshot.retrieve(question, method="community_tree", k=50, principals=["all"])
    passages = [[(hit.id, hit.score) for hit in some if hit.kind == "passage"] for some in (own, filtered)]
    assert passages[0] == passages[1]


def test_without_mentions_no_surface_is_known_to_be_readable(tmp_path: Path) -> None:
    writer = written(tmp_path / "store")
    writer.artifacts = [one for one in writer.artifacts if not one.name.startswith("mentions/")]
    writer.publish()
    with indexmill.open(tmp_path / "store") as bare:
        labels = EntityLabels(bare)
        assert labels.shown(rows_of("ilse", "tallow"), MAY) == ["ilse", "tallow"]
        assert labels.plain(MAY).tolist() == MAY.tolist()


def test_a_mention_of_an_unknown_entity_is_damage(tmp_path: Path) -> None:
    writer = written(tmp_path / "store", [*MENTIONED, (0, "nobody", "Nobody")])
    writer.publish()
    with indexmill.open(tmp_path / "store") as damaged, pytest.raises(CorruptBlob, match="mentions/p"):
        EntityLabels(damaged).spelled(MAY)
