"""Benchmarks run rarely: what they import has to be there all the time."""

from __future__ import annotations

import importlib

import pytest

from tests.paths import ROOT


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_benchmark_imports_what_there_is(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
