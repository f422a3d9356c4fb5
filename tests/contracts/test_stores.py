"""What every store promises (`storage.protocol.Store`), whatever its kind and however bad the network."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.byte_rate import ByteRateLimit, TransferStopped
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path
from storage.overlay import OverlayStore
from storage.protocol import Store
from storage.stores import init_store, open_store
from tests.deep import examples
from tests.storage.ceph import CephService, ceph_service, missing
from tests.storage.node_services import azure_environment, azurite, container_of
from tests.storage.quick import quick_folder
from tests.storage.services import FAULTS, FaultProxy, bucket_of, s3_environment

STORES: dict[str, tuple[str | None, Callable[[Path, Any], Store]]] = {
    "folder": (None, lambda root, _: init_store(root / "store")),
    "overlay": (None, lambda root, _: OverlayStore(root / "above?%", init_store(root / "store"))),
    "overlay over nothing": (None, lambda root, _: OverlayStore(root / "above?%", None)),
    "memory": (None, lambda root, _: init_store(in_memory(root))),
    "overlay over memory": (None, lambda root, _: OverlayStore(root / "above?%", init_store(in_memory(root)))),
    "s3": ("s3", lambda _, service: init_store(f"{bucket_of(service)}/some/prefix")),
    "s3 through a bad network": ("s3_proxy", lambda _, proxy: through_proxy(proxy)),
    "ceph": ("ceph", lambda _, service: in_ceph(service)),
    "azure": ("azure", lambda _, service: init_store(f"{container_of(service)}/some/prefix")),
    "azure through a bad network": ("azure_proxy", lambda _, proxy: through_azure_proxy(proxy)),
}
"""The fixture of the service that each kind of store needs, and what makes a store of it in a folder."""
KINDS = [pytest.param(kind, marks=pytest.mark.slow) if kind.startswith(("ceph", "azure")) else kind for kind in STORES]


@pytest.fixture(scope="module")
def s3_proxy(s3: str) -> Iterator[tuple[str, str]]:
    with FaultProxy(s3, FAULTS) as proxy:
        yield s3, proxy.url


@pytest.fixture(scope="module")
def ceph() -> Iterator[CephService]:
    if absent := missing():
        pytest.skip(absent)
    with quick_folder() as folder, ceph_service(folder) as service:
        yield service


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite(tmp_path_factory.mktemp("azurite")) as service:
        yield service


@pytest.fixture(scope="module")
def azure_proxy(azure: str) -> Iterator[tuple[str, str]]:
    with FaultProxy(azure, FAULTS) as proxy:
        yield azure, proxy.url


def in_memory(root: Path) -> str:
    """The URL of a place in the memory of this process, which has the name of a folder that is used once."""
    return f"memory://{root.name}/some/prefix"


def through_proxy(endpoints: tuple[str, str]) -> Store:
    """A store in S3 behind a proxy. endpoints: of the service and the proxy."""
    service, proxy = endpoints
    url = bucket_of(service)
    with s3_environment(proxy):
        return init_store(url)


def through_azure_proxy(endpoints: tuple[str, str]) -> Store:
    """A store in Azure behind a proxy. endpoints: of the service and the proxy."""
    service, proxy = endpoints
    url = container_of(service)
    with azure_environment(proxy):
        return init_store(url)


def in_ceph(service: CephService) -> Store:
    """A store in Ceph."""
    with s3_environment(service.endpoint, service.access_key, service.secret_key):
        return init_store(f"{service.bucket()}/some/prefix")


@contextmanager
def new_store(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store in a folder of its own, which holds the cache of object stores, too."""
    fixture, make = STORES[kind]
    # A service starts before the environment is changed for one test, since it changes that for the module.
    service = request.getfixturevalue(fixture) if fixture else None
    with quick_folder() as folder, patch.dict(os.environ, {"INDEXMILL_CACHE": str(folder / "cache")}):
        (folder / "above?%").mkdir()
        yield make(folder, service)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with new_store(request.param, request) as store:
        yield store


def test_a_store_travels_to_another_process_by_its_url(store: Store) -> None:
    digest = store.put_blob(b"data")
    for other in (open_store(store.url), pickle.loads(pickle.dumps(store))):  # noqa: S301
        assert other.url == store.url
        assert other.get_blob(digest) == b"data"


@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 1_000_000])
def test_a_blob_is_named_by_its_content(store: Store, data: bytes) -> None:
    digest = store.put_blob(data)
    assert digest == digest_of(data) == store.put_blob(data)
    assert store.get_blob(digest) == data
    assert store.open_local(digest).read_bytes() == data
    assert store.blob_size(digest) == len(data)


def test_a_file_becomes_a_blob_and_stays_the_callers(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(b"1" * 3_000_000)
    digest = store.put_blob(path)
    path.write_bytes(b"2")
    assert store.get_blob(digest) == b"1" * 3_000_000


def test_a_blob_outlives_the_scratch_folder_that_its_file_was_written_in(store: Store) -> None:
    scratch = store.scratch("run")
    (scratch / "vectors").write_bytes(b"1" * 1000)
    digest = store.put_blob(scratch / "vectors")
    assert not any(name.startswith("tmp/") for name in store.list(""))
    store.drop_scratch("run")
    assert not scratch.exists()
    assert store.get_blob(digest) == b"1" * 1000


def test_a_damaged_blob_is_put_again_or_discarded_and_a_whole_one_stays(store: Store, tmp_path: Path) -> None:
    digest = store.put_blob(b"data" * 1000)
    (tmp_path / "copy").write_bytes(b"data" * 1000)
    assert not store.discard_blob(digest)
    assert store.get_blob(digest) == b"data" * 1000
    for mend in (lambda: store.put_blob(tmp_path / "copy"), lambda: store.discard_blob(digest)):
        store.replace(blob_path(digest), b"dat4" * 1000)
        assert mend() in (digest, True)
        assert not store.discard_blob(digest)
    assert store.blob_sizes([digest]) == {}
    assert store.put_blob(b"data" * 1000) == digest
    assert open_store(store.url).get_blob(digest) == b"data" * 1000


def test_a_missing_blob_is_named(store: Store) -> None:
    digest = digest_of(b"never put")
    assert store.blob_size(digest) is None
    for read in (store.open_local, store.get_blob):
        with pytest.raises(CorruptBlob, match=f"{digest} is missing"):
            read(digest)


@pytest.mark.parametrize("count", [3, 30])
def test_sizes_of_blobs_are_those_of_this_moment(store: Store, count: int) -> None:
    sizes = {store.put_blob(b"x" * (number + 1)): number + 1 for number in range(count)}
    assert store.blob_sizes([*sizes, digest_of(b"never put")]) == sizes
    gone = min(sizes, key=sizes.__getitem__)
    open_store(store.url).delete(blob_path(gone))  # by another process
    assert store.blob_sizes(sizes) == {digest: size for digest, size in sizes.items() if digest != gone}
    assert store.blob_sizes([]) == {}


@pytest.mark.slow
def test_a_limit_slows_files_and_changes_none(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(os.urandom(1000) * 10_000)
    pace = ByteRateLimit(100e6)
    store.limit(pace)
    digest = store.put_blob(path)
    assert digest == digest_of(path.read_bytes()) == digest_of(store.open_local(digest).read_bytes())
    pace.stop()
    path.write_bytes(b"other" * 1_000_000)
    if not store.url.startswith("overlay"):
        with pytest.raises(TransferStopped):
            store.put_blob(path)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "AB" * 32, "0" * 63, "0" * 65, "g" * 64, "0" * 63 + "/"])
def test_a_path_is_made_from_a_digest_only(store: Store, digest: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        store.open_local(digest)


def test_the_first_record_of_a_name_stays(store: Store) -> None:
    assert store.create("work/split/ab.json", b"first")
    assert not store.create("work/split/ab.json", b"second")
    assert store.get("work/split/ab.json") == b"first"


def test_a_name_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match=r"work/split/ab\.json"):
        store.get("work/split/ab.json")
    with pytest.raises(NotFound):
        store.get("store.json/below")
    store.delete("work/split/ab.json")


def test_names_are_listed_by_prefix_in_order(store: Store) -> None:
    for name in ("work/split/b.json", "work/split/a.json", "work/splitter/a.json", "runs/x/start.json"):
        store.create(name, b"{}")
    store.put_blob(b"x")
    assert store.list("work/split/") == ["work/split/a.json", "work/split/b.json"]
    assert store.list("work/split/b") == ["work/split/b.json"]
    assert store.list("work/split") == ["work/split/a.json", "work/split/b.json", "work/splitter/a.json"]
    assert store.list("nothing/here/") == []
    store.delete("work/split/a.json")
    assert store.list("work/split/") == ["work/split/b.json"]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a\0b", "a\nb", "a" * 201]
)
def test_a_name_stays_inside_the_store(store: Store, name: str) -> None:
    for call in (lambda: store.create(name, b""), lambda: store.get(name), lambda: store.delete(name)):
        with pytest.raises(ValueError, match="not a valid name"):
            call()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "s3 through a bad network"])
@examples(4, deep=12)
@given(operations=st.lists(st.tuples(st.sampled_from(["create", "delete"]), st.integers(0, 3), st.binary(max_size=20))))
def test_a_store_behaves_like_a_dictionary_of_first_writers(
    request: pytest.FixtureRequest, kind: str, operations: list[tuple[str, int, bytes]]
) -> None:
    expected: dict[str, bytes] = {}
    with new_store(kind, request) as store:
        for operation, number, data in operations:
            name = f"work/stage/{number}.json"
            if operation == "create":
                assert store.create(name, data) == (name not in expected)
                expected.setdefault(name, data)
            else:
                store.delete(name)
                expected.pop(name, None)
            assert store.list("work/") == sorted(expected)
        assert {name: store.get(name) for name in expected} == expected


def test_a_record_is_replaced(store: Store) -> None:
    store.create("runs/a/end.json", b"old")
    store.replace("runs/a/end.json", json.dumps({"new": 1}).encode())
    assert store.get("runs/a/end.json") == b'{"new": 1}'
    assert store.list("runs/") == ["runs/a/end.json"]


def test_size_and_time_are_told_of_what_is_there(store: Store) -> None:
    digest = store.put_blob(b"four")
    store.create("runs/a/end.json", b"{}")
    for name, size in ((blob_path(digest), 4), ("runs/a/end.json", 2)):
        found = store.stat(name)
        assert found is not None
        assert (found.bytes, abs(found.modified - store.now()) < 300) == (size, True)
        assert store.stats(name.rpartition("/")[0] + "/") == {name: found}
        store.delete(name)
        assert store.stat(name) is None
    assert store.stat("work/split/none.json") is None
    assert store.blob_size(digest) is None
