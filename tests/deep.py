"""Property tests that try few examples in the default run, and many in `make test-slow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

DEEP = os.environ.get("INDEXMILL_TESTS") == "deep"
"""True in `make test-slow`."""

Test = TypeVar("Test", bound=Callable[..., object])


def examples(few: int, *, deep: int) -> Callable[[Test], Test]:
    """Decorate a property test: `few` examples cost at most a second, `deep` as many as the property deserves."""

    def decorate(test: Test) -> Test:
        decorated: Test = pytest.mark.deep(settings(max_examples=deep if DEEP else few)(test))
        return decorated

    return decorate
