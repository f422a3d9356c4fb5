"""The promises of object stores: a service that keeps them, and one that does not and is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.errors import StoreError
from indexmill.store.bucket import Bucket
from storage.probe import PROMISES, Probe, probe
from storage.stores import init_store
from tests.storage.node_services import azurite, container_of, s3rver
from tests.storage.services import bucket_of, s3_service


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[str]:
    """The URL of a bucket in which a second create of a name overwrites the record."""
    with s3rver(tmp_path / "s3rver") as endpoint:
        yield bucket_of(endpoint)


@pytest.mark.slow
def test_moto_keeps_every_promise_and_nothing_is_left() -> None:
    with s3_service() as endpoint:
        bucket = Bucket(bucket_of(endpoint))
        assert list(probe(bucket)) == [Probe(promise, "") for promise in PROMISES]
        assert bucket.entries("") == []


@pytest.mark.slow
def test_azurite_keeps_every_promise_and_nothing_is_left(tmp_path: Path) -> None:
    with azurite(tmp_path / "azurite") as endpoint:
        bucket = Bucket(container_of(endpoint))
        assert list(probe(bucket)) == [Probe(promise, "") for promise in PROMISES]
        assert bucket.entries("") == []


@pytest.mark.slow
def test_no_store_is_made_where_a_second_create_overwrites(careless: str) -> None:
    with pytest.raises(StoreError, match=r"cannot hold a store: create only: a second create of a name is not refused"):
        init_store(f"{careless}/x")
    assert Bucket(careless).entries("") == []


@pytest.mark.slow
def test_each_broken_promise_is_told(careless: str) -> None:
    bucket = Bucket(f"{careless}/x")
    problems = {tried.promise: tried.problem for tried in probe(bucket)}
    assert "a second create of a name is not refused" in problems.pop("create only")
    assert "20 created the same name at the same time" in problems.pop("one winner of a race")
    assert problems == dict.fromkeys(["read after write", "complete listing", "parts and ranges"], "")
    assert bucket.entries("") == []
