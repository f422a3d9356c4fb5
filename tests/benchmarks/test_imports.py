"""Benchmarks run rarely: what they import has to be there all the time."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import indexmill
from tests.paths import ROOT


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names at the top of a module, and the modules of a package."""
    names = {below.stem for below in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return frozenset(names)


def missing(tree: ast.AST) -> Iterator[str]:
    """What a module imports and is not there; other libraries are looked up and not loaded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if importlib.util.find_spec(a.name.partition(".")[0]) is None)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            path = ROOT / node.module.replace(".", "/")
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if not (ROOT / node.module.partition(".")[0]).is_dir():
                if importlib.util.find_spec(node.module.partition(".")[0]) is None:
                    yield node.module
            elif not file.exists():
                yield node.module
            else:
                names = names_of(file) | {*(dir(indexmill) if node.module == "indexmill" else ())}  # made when asked
                yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in names)


@pytest.fixture(scope="module")
def missing_imports() -> dict[str, list[str]]:
    """By benchmark."""
    return {
        path.relative_to(ROOT).as_posix(): [*missing(ast.parse(path.read_text(encoding="utf-8")))]
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    }


def test_benchmarks_import_what_there_is(missing_imports: dict[str, list[str]]) -> None:
    assert {name: gone for name, gone in missing_imports.items() if gone} == {}
