"""How deep tests go: few examples in the default run, many in `make test-slow`, all cases where there are hours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

WHOLE = os.environ.get("INDEXMILL_TESTS") == "whole"
"""True where every case of every test is to be tried."""

DEEP = WHOLE or os.environ.get("INDEXMILL_TESTS") == "deep"
"""True in `make test-slow`, too."""

Case = TypeVar("Case")
Test = TypeVar("Test", bound=Callable[..., object])


def examples(few: int, *, deep: int) -> Callable[[Test], Test]:
    """Decorate a property test: `few` examples cost at most a second, `deep` as many as the property deserves."""

    def decorate(test: Test) -> Test:
        decorated: Test = pytest.mark.deep(settings(max_examples=deep if DEEP else few)(test))
        return decorated

    return decorate


def share(cases: Sequence[Case], one_in: int, first: int = 0) -> Sequence[Case]:
    """One case in so many, from the number `first` on; all of them with `INDEXMILL_TESTS=whole`."""
    return cases if WHOLE else cases[first::one_in]
