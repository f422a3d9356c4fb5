from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage import faults


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.arm(0)
    faults.install(None)
