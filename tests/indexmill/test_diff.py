"""What changed between two snapshots, against plain sets."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill import diff as module
from indexmill.diff import Difference, Entities, compare, diff
from indexmill.errors import SnapshotNotFound
from indexmill.store.artifact_listing import Artifact
from indexmill.store.canonical import content_id
from indexmill.store.manifest import FamilyRecord
from schemas.tables import ENTITIES
from tests.deep import examples
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter, Text, publish
from tests.storage.quick import quick_folder

World = dict[str, str]
"""Text by document id."""

WORLDS = st.dictionaries(st.sampled_from("abcdefghijkl"), st.sampled_from(["one", "two", "one\n\ntwo", "three\n\none"]))


def sharded(world: World, depth: int) -> dict[str, list[Text]]:
    """The documents in shards by the first bits of their id's hash: so many bits where it begins with 0, one else."""
    shards: dict[str, list[Text]] = {}
    for one, text in world.items():
        bits = f"{int(hashlib.sha256(one.encode()).hexdigest()[:4], 16):016b}"
        label = "p" + (bits[:depth] if bits[0] == "0" else bits[: min(depth, 1)])
        shards.setdefault(label, []).append(Text(one, "", text))
    return shards


def passages(world: World) -> set[str]:
    return {content_id("passage", one, part, "0") for one, text in world.items() for part in text.split("\n\n")}


def expected(a: World, b: World) -> dict[str, object]:
    """The same, from sets and dictionaries."""
    gone, come = sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys())
    moved: list[tuple[str, str]] = []
    for text in {a[one] for one in gone}:
        moved += zip([i for i in gone if a[i] == text], [i for i in come if b[i] == text], strict=False)
    changed = sorted(one for one in a.keys() & b.keys() if a[one] != b[one])
    return {
        "added": [one for one in come if one not in {to for _, to in moved}],
        "removed": [one for one in gone if one not in {start for start, _ in moved}],
        "changed": changed,
        "moved": sorted(moved, key=lambda pair: pair[1]),
        "unchanged": len(a.keys() & b.keys()) - len(changed),
        "passages": (len(passages(b) - passages(a)), len(passages(a) - passages(b))),
    }


def told(found: Difference) -> dict[str, object]:
    documents = found.documents
    return {
        "added": documents.added.to_pylist(),
        "removed": documents.removed.to_pylist(),
        "changed": documents.changed.to_pylist(),
        "moved": list(zip(documents.moved_from.to_pylist(), documents.moved_to.to_pylist(), strict=True)),
        "unchanged": documents.unchanged,
        "passages": (found.passages_added, found.passages_removed),
    }


@examples(12, deep=60)
@given(a=WORLDS, b=WORLDS, depths=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_documents_and_passages_are_told_as_sets_would(a: World, b: World, depths: tuple[int, int]) -> None:
    with quick_folder() as folder:
        publish(folder / "s", sharded(a, depths[0]), 1)
        publish(folder / "s", sharded(b, depths[1]), 2)
        found = diff(folder / "s")
    assert told(found) == expected(a, b)
    counts = found.to_json()["documents"]
    assert sum(counts.values()) - counts["removed"] == len(b)
    assert found.equal == (a == b and sharded(a, depths[0]).keys() == sharded(b, depths[1]).keys())


def test_a_renamed_file_is_moved(tmp_path: Path) -> None:
    def world(*names: str, text: str = "The same text.", other: str = "kept") -> dict[str, list[Text]]:
        shards = {name: [Text(name, "Title", text, {"lang": "en"}, source=name)] for name in names}
        return {**{f"p{i:04b}": shard for i, shard in enumerate(shards.values())}, "q": [Text("q", "", other)]}

    publish(tmp_path / "s", world("notes/a.txt", "notes/b.txt", "notes/c.txt"), 1)
    publish(tmp_path / "s", world("notes/d.txt", "notes/b.txt", "papers/a.txt", other="edited"), 2)
    found = diff(tmp_path / "s")
    assert told(found) | {"passages": None} == {
        "added": [],
        "removed": [],
        "changed": ["q"],
        "moved": [("notes/a.txt", "notes/d.txt"), ("notes/c.txt", "papers/a.txt")],
        "unchanged": 1,
        "passages": None,
    }
    assert found.to_json()["document_ids"]["moved"][0] == {"from": "notes/a.txt", "to": "notes/d.txt"}
    publish(tmp_path / "s", world("notes/e.txt", "notes/b.txt", "papers/a.txt", text="Another text."), 3)
    found = diff(tmp_path / "s")
    assert (told(found)["added"], told(found)["removed"], told(found)["moved"]) == (
        ["notes/e.txt"],
        ["notes/d.txt"],
        [],
    )


def test_shards_that_both_have_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path / "s", WORLD, 1)
    new = (*WORLD["p1"], Text("new", "New", "A new one."))
    publish(tmp_path / "s", {**WORLD, "p1": new}, 2)
    read: Counter[str] = Counter()
    real = module.read_table

    def counted(path: Path, artifact: Artifact, columns: list[str]) -> object:
        read[artifact.name] += 1
        assert "text" not in columns
        return real(path, artifact, columns)

    monkeypatch.setattr(module, "read_table", counted)
    found = diff(tmp_path / "s")
    assert told(found)["added"] == ["new"]
    assert read == {"documents/p1": 2, "passages/p1": 2}
    assert diff(tmp_path / "s", 1, 1).equal
    assert read.total() == 4


def test_bytes_that_are_shared_are_not_new(tmp_path: Path) -> None:
    one = publish(tmp_path / "s", WORLD, 1)
    other = publish(tmp_path / "s", {"p0": WORLD["p0"]}, 2)
    found = diff(tmp_path / "s", 2, 1)
    sizes = {artifact.digest: artifact.bytes for artifact in one.artifacts}
    fewer = {artifact.digest: artifact.bytes for artifact in other.artifacts}
    assert (found.bytes.b, found.bytes.a) == (sum(sizes.values()), sum(fewer.values()))
    assert found.bytes.new == sum(sizes.values()) - sum(fewer.values()) > 0
    assert found.bytes.new == sum(one.new for one in found.bytes_of.values())
    assert diff(tmp_path / "s", 1, 2).bytes.new == 0


def test_entities_are_named_the_most_mentioned_first(tmp_path: Path) -> None:
    def entities(version: int, mentions: dict[str, int]) -> None:
        writer = SnapshotWriter(tmp_path / "s")
        for label, first in (("e0", "01234567"), ("e1", "89abcdef")):
            rows = [
                {"entity_id": one, "name": one, "surface": one.upper(), "mentions": n, "passages": n, "documents": n}
                for one, n in sorted(mentions.items())
                if one[0] in first
            ]
            writer.table(f"entities/{label}", pa.Table.from_pylist(rows, ENTITIES), ENTITIES)
        writer.families["tri_graph"] = FamilyRecord(
            parameters={"damping": version / 10}, counts={"entities": len(mentions)}
        )
        writer.publish(version)

    entities(1, {"1a": 3, "2b": 4, "9c": 1, "fd": 9})
    entities(2, {"1a": 3, "2b": 5, "fd": 9, "0e": 1, "3f": 7, "8a": 7, "ab": 2})
    found = diff(tmp_path / "s", names=3)
    assert (found.entities.added, found.entities.removed) == (4, 1)
    assert found.entities.added_names == ("3F", "8A", "AB")
    assert found.entities.removed_names == ("9C",)
    assert found.to_json(2)["entity_names"] == {"added": ["3F", "8A"], "removed": ["9C"]}
    assert found.families() == {
        "tri_graph": {"a": {"entities": 4}, "b": {"entities": 7}, "parameters": {"damping": (0.1, 0.2)}}
    }
    with indexmill.open(tmp_path / "s", 1) as a, indexmill.open(tmp_path / "s", 2) as b:
        assert compare(b, a, names=0).entities == Entities(1, 4, (), ())


def test_the_first_version_has_nothing_before_it(tmp_path: Path) -> None:
    publish(tmp_path / "s", WORLD, 1)
    with pytest.raises(SnapshotNotFound, match="pass the version to compare with"):
        diff(tmp_path / "s")
    assert diff(tmp_path / "s", a=1).equal
