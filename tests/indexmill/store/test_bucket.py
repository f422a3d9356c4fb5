"""Requests to an object store: retries, lost answers, refusals, forks, and what messages say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, NotFound, SnapshotNotFound, StoreError, StoreNotWritable
from indexmill.store import bucket as module
from indexmill.store.bucket import Bucket
from storage.stores import init_store, open_store
from tests.paths import ROOT
from tests.storage.services import FAULTS, FaultProxy, bucket_of


@pytest.fixture
def bucket(s3: str, fault_proxy: FaultProxy) -> Bucket:
    return Bucket(f"{bucket_of(s3)}/some/prefix")


@pytest.mark.parametrize(
    ("given", "url"),
    [("s3://bucket", "s3://bucket"), ("s3://bucket/", "s3://bucket"), ("gs://b/a/b/", "gs://b/a/b")],
)
def test_a_url_has_one_spelling(given: str, url: str) -> None:
    assert Bucket(given).url == url


@pytest.mark.parametrize(
    "url", ["s3://", "ftp://host/x", "s3://b/../x", "s3://b/a//b", "s3://KEY:hidden@b/x", "s3://b?k=1"]
)
def test_a_url_that_names_no_place_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Bucket(url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("fault", [*FAULTS, "409"])
def test_a_create_is_made_once_whatever_happens_to_its_answer(
    bucket: Bucket, fault_proxy: FaultProxy, fault: str
) -> None:
    fault_proxy.script = [fault]
    assert bucket.create("name", b"same")
    assert not bucket.create("name", b"same")
    fault_proxy.script = [fault]
    assert not bucket.create("name", b"same")
    assert bucket.read("name") == b"same"


@pytest.mark.slow
def test_requests_are_repeated_and_counted(bucket: Bucket, fault_proxy: FaultProxy, tmp_path: Path) -> None:
    data = os.urandom(17 << 20)
    (tmp_path / "file").write_bytes(data)
    fault_proxy.script = ["500", "reset"]
    bucket.put("blob", tmp_path / "file")
    with (tmp_path / "copy").open("wb") as file:
        fault_proxy.script = ["truncated", "503", "-", "lost"]
        bucket.fetch("blob", file.fileno(), len(data))
    assert (tmp_path / "copy").read_bytes() == data
    assert bucket.requests.bytes_written == bucket.requests.bytes_read == len(data)
    assert bucket.requests.reads == 3
    fault_proxy.script = ["500", "lost"]
    assert [(entry.name, entry.bytes) for entry in bucket.entries("")] == [("blob", len(data))]
    fault_proxy.script = ["lost"]
    bucket.delete("blob")
    assert bucket.stat("blob") is None


def test_an_object_that_is_longer_than_it_may_be_is_not_read(bucket: Bucket) -> None:
    bucket.put("long", b"x" * 1000)
    with pytest.raises(CorruptBlob, match="the maximum is 999 B"):
        bucket.read("long", 999)
    with pytest.raises(NotFound):
        bucket.read("none")


@pytest.mark.parametrize("name", ["../x", "a//b", ""])
def test_a_name_stays_below_the_prefix(bucket: Bucket, name: str) -> None:
    for call in (bucket.read, bucket.stat, bucket.delete):
        with pytest.raises(ValueError, match="not a valid name"):
            call(name)


def test_a_service_that_forbids_or_is_gone_is_told_in_one_line(
    s3: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PATIENCE", 0.3)
    fault_proxy.rates = {"403": 1.0}
    with pytest.raises(StoreNotWritable, match=r"403 Forbidden.*check the credentials") as refused:
        Bucket(bucket_of(s3)).put("x", b"")
    assert "\n" not in str(refused.value)
    fault_proxy.rates = {"500": 1.0}
    with pytest.raises(StoreError, match=r"s3://bucket-\S+/x cannot be read: .*500 Internal"):
        Bucket(bucket_of(s3)).read("x")


CHILD = """
import os, sys
from indexmill.errors import StoreError
from indexmill.store.bucket import Bucket
bucket = Bucket(sys.argv[1])
early = os.fork()  # before the first request
bucket.put(f"by-{'child' if not early else 'parent'}", b"x")
if not early:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(early, 0)[1]) == 0
late = os.fork()
if not late:
    try:
        bucket.read("by-parent")
    except StoreError as error:
        os._exit(7 if "forked" in str(error) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(late, 0)[1]) == 7
assert bucket.read("by-child") == b"x"
"""


@pytest.mark.slow
def test_a_child_forked_after_the_first_request_is_refused_and_does_no_harm(s3: str) -> None:
    command = [sys.executable, "-c", CHILD, bucket_of(s3)]
    subprocess.run(command, check=True, timeout=120, cwd=ROOT)


OTHER = """
import sys
from indexmill.errors import SnapshotNotFound
from storage.stores import open_store
try:
    open_store(sys.argv[1])
except SnapshotNotFound:
    sys.exit(7)
"""


@pytest.mark.slow
def test_a_store_in_memory_is_seen_by_this_process_alone(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick))
    url = init_store(f"memory://{quick.name}").url
    assert open_store(url).list("") == ["store.json"]
    with pytest.raises(SnapshotNotFound, match=f"there is no index in {url}/below"):
        open_store(f"{url}/below")
    other = subprocess.run([sys.executable, "-c", OTHER, url], check=False, timeout=120, cwd=ROOT)
    assert other.returncode == 7


def test_plain_http_is_for_this_machine_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint, allowed in (("http://127.0.0.1:1", True), ("http://minio.local", False), ("https://x", False)):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert module._plain_http_is_allowed() is allowed
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert module._plain_http_is_allowed()


def test_a_bucket_that_is_not_there_is_named(fault_proxy: FaultProxy) -> None:
    bucket = Bucket("s3://there-is-no-such-bucket/x")
    for write in (lambda: bucket.put("name", b""), lambda: bucket.create("name", b"")):
        with pytest.raises(StoreNotWritable, match="there is no such bucket"):
            write()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot be listed: .*NoSuchBucket"):
        bucket.entries("")
    assert time.monotonic() - began < 10


def test_a_message_keeps_the_code_of_the_service_and_drops_signatures() -> None:
    text = "403: <?xml version='1.0'?><Code>NotYours</Code>\nfor https://host/x?sig=SECRET now\n\nDebug source: x"
    told = module._message(Exception(text))
    assert told == "403: <?xml version='1.0'?><Code>NotYours</Code> for https://host/x now"
