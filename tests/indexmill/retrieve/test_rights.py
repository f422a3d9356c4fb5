"""Who may read which documents: what metadata say, and what a manifest does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill import UNRESTRICTED, BadInput, ConfigurationError, CorruptBlob
from indexmill.retrieve.rights import Access, groups_of, principals_of
from indexmill.snapshot import Snapshot
from indexmill.store.manifest import Corpus, Manifest
from tests.indexmill.small_snapshot import SnapshotWriter, Text

REQUIRED, OPTIONAL = Access("groups", required=True), Access("groups", required=False)


@pytest.mark.parametrize(
    ("metadata", "groups"),
    [
        ({"groups": "staff"}, {"staff"}),
        ({"groups": ["staff", "legal", "staff"]}, {"staff", "legal"}),
        ({"groups": "staff, legal"}, {"staff, legal"}),  # one group of that name
        ({"groups": [" "]}, {" "}),
        ({"groups": ["a"], "metadata": {"groups": ["b"]}}, {"a"}),
    ],
)
def test_a_field_names_groups(metadata: dict[str, Any], groups: set[str]) -> None:
    for access in (REQUIRED, OPTIONAL):
        assert groups_of(metadata, access) == groups


@pytest.mark.parametrize(
    "said", [None, "", [], [""], ["a", ""], ["a", None], ["a", 3], ["a", ["b"]], 3, True, {"a": 1}, {}]
)
def test_a_field_that_names_no_group_never_means_everyone(said: Any) -> None:
    for access in (REQUIRED, OPTIONAL):
        with pytest.raises(ValueError, match="neither a string nor a list of strings") as wrong:
            groups_of({"groups": said, "other": "content"}, access)
        assert "content" not in str(wrong.value)


def test_a_document_without_the_field_is_for_everyone_unless_it_is_required() -> None:
    for metadata in ({}, {"Groups": "a"}, {"other": {"groups": "a"}}, {"a.groups": "b"}):
        assert groups_of(metadata, OPTIONAL) is None
        with pytest.raises(ValueError, match="no field 'groups'"):
            groups_of(metadata, REQUIRED)


def test_groups_left_inside_the_objects_of_metadata_are_no_reason_to_publish() -> None:
    for access in (REQUIRED, OPTIONAL):
        with pytest.raises(ValueError, match="inside `metadata`"):
            groups_of({"lang": "en", "metadata": {"lang": "de", "groups": "a"}}, access)


def test_principals() -> None:
    assert principals_of(None) == principals_of(()) == frozenset()
    assert principals_of(["a", "a", "b"]) == {"a", "b"}
    assert principals_of(UNRESTRICTED) is UNRESTRICTED
    with pytest.raises(BadInput, match="expected a list of groups"):
        principals_of("staff")
    with pytest.raises(BadInput, match="not empty"):
        principals_of([""])


def manifest(**configuration: Any) -> Manifest:
    corpus = Corpus(fingerprint="f", documents=0, passages=0)
    return Manifest(corpus=corpus, configuration=configuration, lineage="0" * 64)


def test_a_manifest_says_which_field_or_nothing() -> None:
    assert Access.of(manifest(), "here") is None
    assert Access.of(manifest(corpus={}), "here") is None
    said = {"access": {"field": "groups", "required": False}}
    assert Access.of(manifest(corpus=said), "here") == OPTIONAL


@pytest.mark.parametrize(
    "corpus",
    [
        "groups",
        {"access": "groups"},
        {"access": {"field": "groups"}},
        {"access": {"field": "groups", "required": 1}},
        {"access": {"field": 3, "required": True}},
        {"access": {"field": "groups", "required": True, "deny": ["x"]}},
        {"access": []},
    ],
)
def test_a_manifest_that_says_it_in_another_way_is_not_read_as_saying_nothing(corpus: Any) -> None:
    with pytest.raises(ConfigurationError, match="install a newer one"):
        Access.of(manifest(corpus=corpus), "here")


# A snapshot whose metadata no build has looked at


def published(path: Path, required: bool, **metadata: Any) -> Path:
    writer = SnapshotWriter(path)
    texts = [
        Text(name, name.title(), f"The bridge of {name}.", {} if said is ... else {"groups": said})
        for name, said in metadata.items()
    ]
    writer.shard("p0", texts[:2])
    writer.shard("p1", texts[2:])
    writer.bm25()
    writer.configuration = {"corpus": {"access": {"field": "groups", "required": required}}}
    writer.publish()
    return path


WORLD = {"public": ..., "one": "a", "both": ["a", "b"], "null": None, "empty": [], "number": 7, "object": {"a": 1}}


def found(snapshot: Snapshot, principals: Any) -> set[str]:
    return {hit.document_ids[0] for hit in snapshot.retrieve("bridge", method="bm25", k=50, principals=principals)}


def test_what_a_build_would_have_refused_nobody_reads(tmp_path: Path) -> None:
    with indexmill.open(published(tmp_path / "store", False, **WORLD)) as snapshot:
        assert found(snapshot, None) == found(snapshot, ["c"]) == {"public"}
        assert found(snapshot, ["a"]) == {"public", "one", "both"}
        assert found(snapshot, ["b"]) == {"public", "both"}
        assert found(snapshot, ["7", "None", "null"]) == {"public"}
        assert found(snapshot, UNRESTRICTED) == set(WORLD)
        readable = snapshot.readable_documents(["b"])
        assert readable is not None
        assert not readable.flags.writeable
        ids = snapshot.table("documents")["document_id"].to_pylist()
        assert {ids[row] for row in np.flatnonzero(readable)} == {"public", "both"}
    with indexmill.open(published(tmp_path / "strict", True, **WORLD)) as snapshot:
        assert found(snapshot, None) == set()
        assert found(snapshot, ["a"]) == {"one", "both"}


def test_an_index_without_rights_is_read_by_everyone_whoever_asks(snapshot: Snapshot) -> None:
    assert snapshot.access is None
    everything = snapshot.retrieve("bridge", method="dense", k=50)
    for principals in (None, [], ["a"], UNRESTRICTED):
        assert snapshot.retrieve("bridge", method="dense", k=50, principals=principals) == everything
    assert snapshot.readable_documents([]) is None


def test_metadata_that_are_no_objects_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "store"
    writer = SnapshotWriter(path)
    writer.shard("p", [Text("a", "A", "one", [1])])  # type: ignore[arg-type]
    writer.configuration = {"corpus": {"access": {"field": "groups", "required": True}}}
    writer.publish()
    with indexmill.open(path) as snapshot, pytest.raises(CorruptBlob, match="expected a JSON object"):
        snapshot.retrieve("one", method="dense", principals=["a"])
