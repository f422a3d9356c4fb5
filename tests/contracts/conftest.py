"""The contracts of stores and of whole indexes are tested where every size that cuts work or data is tiny."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tiny_sizes import make_tiny

_SUITES = ("test_stores", "test_families", "test_update_equals_rebuild", "test_writers")


@pytest.fixture(scope="module", autouse=True)
def tiny_sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    """All other tests build with the usual sizes."""
    if request.module.__name__.rpartition(".")[2] not in _SUITES:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        patch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)  # S3 takes no smaller part than 5 MiB, but the last
        yield
