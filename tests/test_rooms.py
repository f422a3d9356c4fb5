"""Imports point one way, and the reader stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

ROOMS = ("flows", "tasks", "storage", "schemas", "indexmill")
"""From the top row down: a room imports from itself and from those after it."""

COMMAND = "indexmill/command/__init__.py"
"""Finds the pipeline's commands by name when one is called: the one declared exception."""

ORCHESTRATORS = frozenset({"dask", "distributed", "prefect"})
HEAVY = ("dask", "distributed", "faiss", "igraph", "leidenalg", "openai", "polars", "prefect", "spacy", "torch")


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """The top-level packages that a module imports anywhere in its text, ``import_module("...")`` included."""
    package = path.relative_to(ROOT).parts[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0] if not node.level else package, node.lineno
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in {"import_module", "find_spec", "__import__"} and isinstance(first, ast.Constant):
                yield str(first.value).partition(".")[0], node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    above = set(ROOMS[: ROOMS.index(room)])
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(room)
        for name, line in imported(path)
        if name in above and path.relative_to(ROOT).as_posix() != COMMAND
    ]
    assert wrong == []


def test_the_command_looks_up_flows_and_no_other_room() -> None:
    above = {name for name, _ in imported(ROOT / COMMAND)} & set(ROOMS)
    assert above == {"flows", "indexmill"}


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "flows"])
def test_only_flows_knows_an_orchestrator(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(room)
        for name, line in imported(path)
        if name in ORCHESTRATORS
    ]
    assert wrong == []


def test_no_room_imports_tests_or_benchmarks() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for room in ROOMS
        for path in modules(room)
        for name, line in imported(path)
        if name in {"benchmarks", "tests"}
    ]
    assert wrong == []


def test_the_reader_uses_no_library_under_the_gpl() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("indexmill")
        for name, line in imported(path)
        if name in {"igraph", "leidenalg"}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    ["indexmill", "indexmill.command", "indexmill.snapshot", "indexmill.evaluate.recall", "indexmill.answer.answers"],
)
def test_importing_the_reader_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("module", ["indexmill", "indexmill.command"])
def test_importing_the_package_or_the_command_loads_no_numbers_either(module: str) -> None:
    program = (
        f"import sys, {module}; print(*(n for n in ('numpy', 'pyarrow', 'pydantic', 'scipy') if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
