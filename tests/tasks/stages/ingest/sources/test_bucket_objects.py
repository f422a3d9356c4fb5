"""Objects of a bucket as documents: what is listed, what counts as changed, hostile names, failures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from indexmill.errors import BadInput
from indexmill.store import bucket as requests_module
from schemas.corpus import CorpusSettings
from schemas.sources import BucketSettings
from storage.stores import init_store
from tasks.stages.ingest.listing import list_corpus
from tasks.stages.ingest.sources.bucket_objects import BucketSource
from tasks.stages.ingest.sources.source_interface import ChangedError, FileSource, SourceError
from tests.storage.services import FaultProxy, S3Bucket


@pytest.fixture
def bucket(s3: str, fault_proxy: FaultProxy) -> Bucket:
    return Bucket(s3)


class Bucket(S3Bucket):
    """A bucket, and the place that it is."""

    def place(self, prefix: str = "") -> BucketSource:
        return BucketSource(BucketSettings(url=f"{self.url}/{prefix}"), Path("/nowhere"))


def names(place: FileSource) -> list[str]:
    return [one.name for one in place.list({})]


def text(place: FileSource, name: str, token: str) -> bytes:
    with place.read(name, token) as file:
        return file.read()


@pytest.mark.slow
def test_a_listed_object_is_read_from_a_real_file(bucket: Bucket) -> None:
    bucket.put("docs/sub/a b+%25#?.md", b"# A")
    place = bucket.place("docs")
    (entry,) = place.list({})
    assert (entry.name, entry.size) == ("sub/a b+%25#?.md", 3)
    assert entry.modified is not None
    with bucket.place("docs/").read(entry.name, entry.token) as file:  # another process opens the place anew
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() == b"# A"
        assert file.seek(0) == 0
        assert file.read(1) == b"#"
    assert isinstance(place, FileSource)


def test_a_prefix_ends_at_a_slash(bucket: Bucket) -> None:
    for key in ("docs/a.md", "docs2/b.md", "docs.md", "other/docs/c.md"):
        bucket.put(key)
    assert names(bucket.place("docs")) == ["a.md"]
    assert names(bucket.place()) == ["docs.md", "docs/a.md", "docs2/b.md", "other/docs/c.md"]


def test_a_url_may_name_one_object(bucket: Bucket) -> None:
    bucket.put("docs/a.md", b"one")
    place = bucket.place("docs/a.md")
    (entry,) = place.list({})
    assert entry.name == "a.md"
    assert text(place, entry.name, entry.token) == b"one"


def test_a_token_changes_with_the_bytes_alone(bucket: Bucket) -> None:
    bucket.put("a.md", b"one")
    (first,) = bucket.place().list({})
    bucket.put("a.md", b"one")
    (same,) = bucket.place().list({})
    bucket.put("a.md", b"two")
    (other,) = bucket.place().list({})
    assert first.token == same.token != other.token


def test_an_object_that_was_replaced_or_removed_since_is_told(bucket: Bucket) -> None:
    bucket.put("a.md", b"one")
    bucket.put("b.md", b"one")
    place = bucket.place()
    first, second = place.list({})
    bucket.put("a.md", b"two")
    bucket.delete("b.md")
    with pytest.raises(ChangedError, match="replaced"):
        place.read(first.name, first.token)
    with pytest.raises(ChangedError, match="was deleted"):
        place.read(second.name, second.token)


def test_a_large_object_is_read_in_ranges_of_one_version(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "_PIECE", 1000)
    data = bytes(range(256)) * 20
    bucket.put("a.txt", data)
    place = bucket.place()
    (entry,) = place.list({})
    assert text(place, entry.name, entry.token) == data
    bucket.put("a.txt", data[::-1])
    with pytest.raises(ChangedError, match="replaced"):
        place.read(entry.name, entry.token)


def test_markers_of_folders_and_hidden_names_are_passed_over(bucket: Bucket) -> None:
    for key in ("a.md", "sub/", "old.md/", ".git/x.md", "sub/.x.md", "sub/b.md"):
        bucket.put(key, b"" if key.endswith("/") else b"text")
    place = bucket.place()
    assert names(place) == ["a.md", "sub/b.md"]
    assert place.warnings == []


@pytest.mark.parametrize(
    ("mark", "advice"),
    [
        ("_delta_log/00000000000000000000.json", "{{kind: table, format: delta, url: '{}/lake/pages'}}"),
        ("metadata/00001-8b1c.metadata.json", "{{kind: table, format: iceberg, url: '{}/lake/pages'}}"),
        (".hoodie/hoodie.properties", "write its rows to a folder of Parquet files"),
    ],
)
def test_a_table_is_refused(bucket: Bucket, tmp_path: Path, mark: str, advice: str) -> None:
    for key in ("lake/a.jsonl", f"lake/pages/{mark}", "lake/pages/part-0.parquet"):
        bucket.put(key, b"text")
    for url, remedy in ((f"{bucket.url}/lake", "add [pages/**] to"), (f"{bucket.url}/lake/pages/", "remove")):
        settings = CorpusSettings(sources=(BucketSettings(url=url),))
        with pytest.raises(BadInput) as refused:
            list_corpus(settings, tmp_path)
        assert advice.format(bucket.url) in str(refused.value)
        assert remedy in str(refused.value)


def test_an_empty_object_is_a_file_even_beside_a_marker_of_its_name(bucket: Bucket) -> None:
    bucket.put("a.md", b"")
    bucket.put("b.md", b"text")
    bucket.put("a.md/", b"")
    bucket.put("b.md/", b"")
    place = bucket.place()
    assert [(one.name, one.size) for one in place.list({})] == [("a.md", 0), ("b.md", 4)]
    assert place.warnings == []


def test_a_place_with_nothing_but_markers_is_empty_and_one_with_nothing_is_an_error(bucket: Bucket) -> None:
    bucket.put("empty/")
    bucket.put("docs2/a.md")
    assert names(bucket.place("empty")) == []
    with pytest.raises(SourceError, match="has no object: check its spelling"):
        bucket.place("docs").list({})


def test_names_are_composed_and_the_key_that_has_the_name_wins(bucket: Bucket) -> None:
    bucket.put("u\u0308.md", b"decomposed")
    (alone,) = bucket.place().list({})
    assert alone.name == "\xfc.md"
    assert text(bucket.place(), alone.name, alone.token) == b"decomposed"
    bucket.put("\xfc.md", b"composed")
    place = bucket.place()
    (entry,) = place.list({})
    assert text(place, entry.name, entry.token) == b"composed"
    assert len(place.warnings) == 1
    assert "1 file is left out: another object has the same name" in place.warnings[0]


def test_backslashes_are_letters(bucket: Bucket) -> None:
    bucket.put("a\\b.md", b"one")
    bucket.put("a/b.md", b"two")
    bucket.put("..\\..\\etc.md", b"three")
    place = bucket.place()
    found = {one.name: text(place, one.name, one.token) for one in place.list({})}
    assert found == {"a\\b.md": b"one", "a/b.md": b"two"}  # the third is hidden: it begins with a dot


@pytest.mark.parametrize("key", ["a//b.md", "a/../b.md", "a/./b.md", "a\x01.md", "a\t.md"])
def test_a_name_that_the_library_cannot_hold_hides_no_other_in_silence(bucket: Bucket, key: str) -> None:
    bucket.put("a/fine.md")
    bucket.put(key)
    with pytest.raises(SourceError, match="rename or remove it"):
        bucket.place().list({})


def test_control_characters_that_it_can_hold_are_left_out(bucket: Bucket) -> None:
    bucket.put("a\u2028.md")
    bucket.put("b.md")
    place = bucket.place()
    assert names(place) == ["b.md"]
    assert place.warnings == [
        "1 file is left out: their names have control characters, such as 'a\\u2028.md'",
    ]


@pytest.mark.parametrize("token", ["", "[]", "{}", '["x"]', '[1,"e","",0,"secret/other.md"]', '[1,"e","",0,"docs2/x"]'])
def test_a_token_of_no_listing_leads_nowhere(bucket: Bucket, token: str) -> None:
    bucket.put("docs/a.md")
    bucket.put("secret/other.md")
    with pytest.raises(OSError, match=r"was not listed|is not below"):
        bucket.place("docs").read("a.md", token)


def test_a_store_in_the_bucket_is_no_corpus(bucket: Bucket) -> None:
    bucket.put("docs/a.md")
    bucket.put("docs/store.json", json.dumps({"format_version": "of something else", "id": "x"}).encode())
    init_store(f"{bucket.url}/new")
    init_store(f"{bucket.url}/index")
    bucket.put(f"index/blobs/sha256/00/{'0' * 64}")
    bucket.put("index/refs/main/00000000000000000001.json")
    assert names(bucket.place()) == ["docs/a.md", "docs/store.json"]


@pytest.mark.slow
def test_a_long_listing_goes_on_where_an_answer_was_lost(
    bucket: Bucket, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    monkeypatch.setattr(requests_module, "_PAGE", 10)
    for number in range(45):
        bucket.put(f"{number:04d} %.md")
    fault_proxy.script = ["503", "reset", "-", "500", "lost", "-", "-"]
    assert names(bucket.place()) == [f"{number:04d} %.md" for number in range(45)]
    assert len(fault_proxy.requests) == 5 + 4  # pages, and those that failed


def test_a_read_that_fails_is_asked_for_again(bucket: Bucket, fault_proxy: FaultProxy) -> None:
    bucket.put("a.md", b"text" * 100)
    place = bucket.place()
    (entry,) = place.list({})
    fault_proxy.script = ["503", "truncated", "reset"]
    assert text(place, entry.name, entry.token) == b"text" * 100


def test_a_missing_bucket_and_a_service_that_refuses_say_what_to_do(
    s3: str, fault_proxy: FaultProxy, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="There is no such bucket: check the spelling of s3://there-is-none"):
        BucketSource(BucketSettings(url="s3://there-is-none/docs"), Path("/nowhere")).list({})
    bucket.put("a.md")
    place = bucket.place()
    fault_proxy.script = ["403"] * 5
    with pytest.raises(SourceError, match="check the credentials in the environment"):
        place.list({})
    monkeypatch.setattr(requests_module, "_PATIENCE", 0.2)
    monkeypatch.setattr(requests_module, "_FIRST_PATIENCE", 0.2)
    fault_proxy.script = ["503"] * 500
    with pytest.raises(SourceError, match="retried for a while"):
        place.list({})


@pytest.mark.parametrize("url", ["s3://KEY:hidden@b/x", "s3://b?k=hidden", "s3://b/a//b", "s3://b/../x", "s3:///x"])
def test_a_url_that_names_no_place_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SourceError) as refused:
        BucketSource(BucketSettings(url=url), Path("/nowhere"))
    assert "hidden" not in str(refused.value)
