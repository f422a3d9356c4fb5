"""Fixtures that the contracts share with the tests of stages."""

from tests.tasks.conftest import quick, store

__all__ = ["quick", "store"]
