from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from indexmill.errors import CorruptBlob, UnsupportedFormat
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.store.canonical import canonical_json
from indexmill.store.manifest import Alias, Corpus, FamilyRecord, Manifest, Ref

DIGEST = "ab" * 32
CORPUS = Corpus(fingerprint="cd" * 32, documents=2, passages=5)
PASSAGES = Artifact(name="passages/p0", kind="table", digest=DIGEST, bytes=10, rows=5, schema=[{"name": "text"}])
VECTORS = Artifact(name="vectors/p0", kind="arrays", digest=DIGEST, bytes=20)
MANIFEST = Manifest(
    corpus=CORPUS,
    configuration={"split": {"tokens": 256}},
    models={"encoder": None},
    artifacts=(PASSAGES, VECTORS),
    families={"tri_graph": FamilyRecord(parameters={"damping": 0.5}, counts={"entities": 7})},
    lineage=DIGEST,
)
REF = Ref(version=7, manifest=DIGEST, parent=6, epoch=3, run_id="run1", created="2026-01-31T02:00:00Z")

words = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
artifacts = st.builds(
    Artifact,
    name=st.lists(words, min_size=1, max_size=3).map("/".join),
    kind=st.sampled_from(["table", "arrays", "file"]),
    digest=digests,
    bytes=st.integers(0, 2**50),
    rows=st.none() | st.integers(0, 2**40),
    schema=values,
)
manifests = st.builds(
    Manifest,
    corpus=st.builds(Corpus, fingerprint=texts, documents=st.integers(0, 9), passages=st.integers(0, 9)),
    configuration=st.dictionaries(texts, values, max_size=3),
    environment=st.dictionaries(texts, values, max_size=3),
    artifacts=st.lists(artifacts, max_size=5, unique_by=lambda artifact: artifact.name).map(tuple),
    families=st.dictionaries(
        words,
        st.builds(FamilyRecord, parameters=st.dictionaries(texts, values, max_size=2), history_dependent=st.booleans()),
        max_size=2,
    ),
    lineage=digests,
)


def changed(record: Any, **changes: Any) -> bytes:
    return canonical_json(json.loads(record.to_bytes()) | changes)


def listing(**changes: Any) -> bytes:
    """The bytes of a manifest whose first group of artifacts says something else."""
    data = json.loads(MANIFEST.to_bytes())
    data["artifacts"][0] |= changes
    return canonical_json(data)


@pytest.mark.slow
@given(manifests)
def test_a_manifest_comes_back_and_its_bytes_are_canonical(manifest: Manifest) -> None:
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data) == manifest
    assert Manifest.from_bytes(data).to_bytes() == data
    assert canonical_json(json.loads(data)) == data


@given(st.permutations([PASSAGES, VECTORS, PASSAGES.model_copy(update={"name": "passages/p1"})]))
def test_the_order_of_artifacts_does_not_matter(shuffled: list[Artifact]) -> None:
    manifest = MANIFEST.model_validate({**dict(MANIFEST), "artifacts": shuffled})
    assert [artifact.name for artifact in manifest.artifacts] == ["passages/p0", "passages/p1", "vectors/p0"]
    assert [artifact.name for artifact in manifest.under("passages")] == ["passages/p0", "passages/p1"]
    assert manifest.artifact("vectors/p0") == VECTORS
    assert manifest.artifact("vectors") is None


def pack(name: str, rows: int, dtype: str = "<f4") -> Artifact:
    schema = {
        "sentences": {"dtype": dtype, "shape": [rows, 384]},
        "passages": {"dtype": "<f4", "shape": [rows // 2, 384]},
    }
    return Artifact(name=name, kind="arrays", digest=DIGEST, bytes=100 * rows, schema=schema)


def test_what_artifacts_of_a_folder_share_is_said_once() -> None:
    packs = (pack("vectors/p1", 8), pack("vectors/p0", 6), pack("vectors/p2", 6, "|i1"), pack("vectors/p3", 8))
    table = PASSAGES.model_copy(update={"name": "passages/p1", "rows": 4, "bytes": 9})
    manifest = MANIFEST.model_validate({**dict(MANIFEST), "artifacts": [*packs, table, PASSAGES]})
    alike = {"digests": [DIGEST] * 2, "folder": "passages", "kind": "table", "labels": ["p0", "p1"]}
    opened = {"sentences": {"dtype": "<f4", "shape": [None, 384]}, "passages": {"dtype": "<f4", "shape": [None, 384]}}
    whole, other, steps = json.loads(manifest.to_bytes())["artifacts"]
    assert whole == {**alike, "bytes": [10, 9], "rows": [5, 4], "schema": [{"name": "text"}]}
    assert (other["labels"], other["schema"], other["lengths"]) == (["p0", "p1", "p3"], opened, [[3, 4, 4], [6, 8, 8]])
    assert (steps["labels"], steps["schema"]) == (["p2"], packs[2].schema_)
    assert "lengths" not in steps
    assert "rows" not in other


def test_an_artifact_is_found_by_its_name() -> None:
    names = ["a/b/c", "a/b", "a-b/p", "a", "b/p"]
    some = [Artifact(name=name, kind="file", digest=DIGEST, bytes=1) for name in names]
    manifest = MANIFEST.model_validate({**dict(MANIFEST), "artifacts": some})
    for read in (manifest, Manifest.from_bytes(manifest.to_bytes())):
        assert [one.name for one in read.artifacts] == sorted(names)
        assert [read.artifact(name) for name in names] == some
        assert [one.name for one in read.under("a")] == ["a/b", "a/b/c"]
        assert [one.name for one in read.under("a/b")] == ["a/b/c"]
        assert read.under("c") == ()
        assert read.artifacts == tuple(sorted(some, key=lambda one: one.name))
        assert read.artifacts != ()


def test_the_bytes_of_a_ref() -> None:
    assert REF.to_bytes() == (
        b'{"cost":{},"created":"2026-01-31T02:00:00Z","epoch":3,"manifest":"' + DIGEST.encode() + b'",'
        b'"note":"","parent":6,"run_id":"run1","version":7}\n'
    )
    assert Ref.from_bytes(REF.to_bytes(), "here") == REF


def test_a_writer_refuses_fields_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="colour"):
        Artifact(name="a", kind="file", digest=DIGEST, bytes=1, colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="colour"):
        Manifest.model_validate({**dict(MANIFEST), "colour": "red"})


def test_a_reader_drops_fields_it_does_not_know_wherever_they_are() -> None:
    data = json.loads(MANIFEST.to_bytes())
    data["format_version"] = 3
    data["colour"] = "red"
    data["corpus"]["colour"] = "red"
    data["artifacts"][0]["colour"] = "red"
    data["families"]["tri_graph"]["colour"] = "red"
    read = Manifest.from_bytes(canonical_json(data))
    assert read == MANIFEST.model_copy(update={"format_version": 3})


@pytest.mark.parametrize("field", ["configuration", "environment", "models"])
def test_free_objects_keep_what_the_reader_does_not_know(field: str) -> None:
    read = Manifest.from_bytes(changed(MANIFEST, **{field: {"new": {"deep": [1]}}}))
    assert getattr(read, field) == {"new": {"deep": [1]}}


def test_a_manifest_that_needs_a_newer_reader_says_so() -> None:
    for more in ({}, {"artifacts": "in another form"}):
        with pytest.raises(UnsupportedFormat, match=r"/store/blob needs a reader of format 6.*reads format 5"):
            Manifest.from_bytes(changed(MANIFEST, minimum_reader_version=6, **more), "/store/blob")
    assert Manifest.from_bytes(changed(MANIFEST, format_version=3)).minimum_reader_version == 5


@pytest.mark.parametrize("versions", [{"format_version": 1}, {"minimum_reader_version": 4}])
def test_a_manifest_from_before_the_first_release_says_what_to_do(versions: dict[str, int]) -> None:
    for more in ({}, {"artifacts": "in another form"}):
        with pytest.raises(UnsupportedFormat, match=r"/store/blob was written before .*build a new store"):
            Manifest.from_bytes(changed(MANIFEST, **versions, **more), "/store/blob")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MANIFEST.to_bytes()[:-20],
        MANIFEST.to_bytes()[:1],
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe\x00",
        changed(MANIFEST, lineage="../../etc/passwd"),
        changed(MANIFEST, corpus=None),
        changed(MANIFEST, minimum_reader_version="1"),
        changed(MANIFEST, minimum_reader_version=0),
        changed(MANIFEST, format_version=0),
        changed(MANIFEST, artifacts={"passages": []}),
        changed(MANIFEST, artifacts=[json.loads(PASSAGES.to_bytes())]),
        listing(folder=".."),
        listing(labels=["../x"]),
        listing(labels=["p0", "p1"]),
        listing(labels=[], digests=[], bytes=[], rows=[]),
        listing(digests=["AB" * 32]),
        listing(bytes=[-1]),
        listing(bytes=[10.5]),
        listing(rows=[]),
        listing(kind="pickle"),
        listing(lengths=[[3]]),
        listing(labels=["p0"] * 2, digests=[DIGEST] * 2, bytes=[1] * 2, rows=[1] * 2),
    ],
)
def test_a_truncated_or_garbled_manifest_is_named(data: bytes) -> None:
    with pytest.raises(CorruptBlob, match="/store/blob is not a readable manifest"):
        Manifest.from_bytes(data, "/store/blob")


@given(st.integers(0, len(REF.to_bytes()) - 2))
def test_a_truncated_ref_is_never_read(length: int) -> None:
    with pytest.raises(CorruptBlob, match="here is not a readable ref"):
        Ref.from_bytes(REF.to_bytes()[:length], "here")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": "7"},
        {"version": 8},
        {"parent": None},
        {"created": "yesterday"},
        {"created": "2026-01-31T02:00:00+01:00"},
        {"run_id": "a/b"},
        {"epoch": True},
    ],
)
def test_a_ref_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptBlob, match="ref"):
        Ref.from_bytes(changed(REF, **changes), "here")


def test_what_json_cannot_hold_is_refused() -> None:
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(ValueError):  # noqa: PT011 - pydantic's and json's own words differ
            Manifest(corpus=CORPUS, configuration={"x": value}, lineage=DIGEST).to_bytes()


def test_records_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        REF.version = 8  # type: ignore[misc]


def test_an_alias_points_or_is_removed() -> None:
    alias = Alias(alias="prod", number=2, version=None, created=REF.created)
    assert Alias.from_bytes(alias.to_bytes(), "here") == alias


def test_the_schema_of_a_table_as_a_manifest_states_it() -> None:
    schema = pa.schema([pa.field("text", pa.string(), nullable=False), pa.field("line", pa.int64())])
    assert describe_table(schema) == [
        {"name": "text", "type": "string", "nullable": False},
        {"name": "line", "type": "int64", "nullable": True},
    ]
