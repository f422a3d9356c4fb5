"""Imports point one way, and the reader stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

ROOMS = ("indexmill_pipeline", "flows", "tasks", "storage", "schemas", "indexmill")
"""From the top row down: a room imports from itself and from those after it."""

FLOORS = {
    "tasks": ("pipeline export", "registry", "families", "stages", "core", "llm", "text"),
    "indexmill": (
        "command",
        "mcp",
        "serve",
        "adapters",
        "explore report",
        "evaluate diff follower",
        "opening",
        "snapshot",
        "families",
        "answer export",
        "retrieve",
        "store text models",
    ),
}
"""The same inside a room; those of a row may import each other. Modules on no floor are for all."""

BASICS = {"errors", "extras", "forks", "hits", "mistakes", "results", "telemetry", "telemetry_sdk"}
"""Modules of the reader on no floor."""

COMMAND = "indexmill.command"
"""Finds the pipeline by name when one of its commands is called: the one declared exception."""

FAMILY = re.compile(r"indexmill\.families\.\w+\.family")
READER_ENTRIES = ("indexmill.__main__", "indexmill.adapters.", "indexmill.command")
"""What a user of the reader calls, besides the package itself."""

ORCHESTRATORS = {"dask", "distributed", "prefect"}
HEAVY = ("dask", "distributed", "faiss", "igraph", "leidenalg", "openai", "polars", "prefect", "spacy", "torch")
HEAVY += ("haystack", "langchain_core", "llama_index")


@cache
def modules() -> Mapping[str, tuple[tuple[str, int], ...]]:
    """By module of every room, what it imports anywhere in its text, and in which line."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = tuple(imports(ast.parse(path.read_text(encoding="utf-8"), str(path))))
    return {
        name: tuple((of_module(target, found), line) for target, line in targets) for name, targets in found.items()
    }


@pytest.fixture(scope="module", autouse=True)
def parsed() -> None:
    """All modules, which are parsed once."""
    modules()


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names, those of what is imported from a module with it, and those of ``import_module("...")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: rooms are imported by their full names"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in {"import_module", "find_spec", "__import__"} and isinstance(first, ast.Constant):
                yield str(first.value), node.lineno


def texts(module: str) -> frozenset[str]:
    """The modules of ours that a module names in its texts, as declarations of families do: `module:attribute`."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(
        node.value.partition(":")[0] for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def of_module(target: str, known: Mapping[str, object]) -> str:
    """The module of ours that a dotted name leads to; the name where it leads to none."""
    parent = target.rpartition(".")[0]
    return target if target in known or parent not in known else parent


def importing(room: str, wanted: set[str]) -> list[str]:
    """Where a room imports one of some packages."""
    return [
        f"{name}:{line} imports {target}"
        for name, targets in modules().items()
        for target, line in targets
        if in_room(name, room) and target.partition(".")[0] in wanted
    ]


def in_room(name: str, room: str) -> bool:
    return name.partition(".")[0] == room


def within(room: str) -> Iterator[tuple[list[str], list[str]]]:
    """What imports what inside a room, as parts of their names."""
    for name, targets in modules().items():
        for target, _ in targets:
            if in_room(name, room) and in_room(target, room) and "." in name and "." in target:
                yield name.split("."), target.split(".")


def circles() -> Iterator[list[str]]:
    """Groups of modules each of which imports all others of its group, through others or itself."""
    reached: dict[str, set[str]] = {}
    graph = {name: {target for target, _ in targets if target != name} for name, targets in modules().items()}
    for name in graph:
        ahead, seen = [name], set[str]()
        while ahead:
            fresh = graph.get(ahead.pop(), set()) - seen
            seen |= fresh
            ahead += fresh
        reached[name] = seen
    for name in sorted(graph):
        circle = sorted(one for one in reached[name] if name in reached.get(one, ()))
        if circle and circle[0] == name:
            yield circle


def test_imports_point_one_way() -> None:
    wrong = [line for number, room in enumerate(ROOMS) for line in importing(room, set(ROOMS[:number]))]
    assert [line for line in wrong if not line.startswith(f"{COMMAND}:")] == []


def test_only_flows_import_the_command() -> None:
    assert {
        name.partition(".")[0]
        for name, targets in modules().items()
        for target, _ in targets
        if f"{target}.".startswith(f"{COMMAND}.")
    } == {"flows", "indexmill"}


def test_the_reader_holds_nothing_that_only_the_pipeline_calls() -> None:
    reader = {name for name in modules() if in_room(name, "indexmill")}
    ahead = [
        name for name in reader if name == "indexmill" or name.startswith(READER_ENTRIES) or FAMILY.fullmatch(name)
    ]
    reached = set[str]()
    while ahead:
        name = ahead.pop()
        if name in reader - reached:
            reached.add(name)
            ahead += [name.rpartition(".")[0], *(target for target, _ in modules()[name]), *texts(name)]
    assert reader - reached == set()


@pytest.mark.parametrize("room", FLOORS)
def test_imports_point_one_way_inside_a_room(room: str) -> None:
    floors = {name: number for number, names in enumerate(FLOORS[room]) for name in names.split()}
    on_none = {name.split(".")[1] for name in modules() if in_room(name, room) and name.count(".")} - floors.keys()
    assert on_none - {"__main__"} == (BASICS if room == "indexmill" else set())
    assert {
        f"{room}.{one[1]} -> {room}.{other[1]}"
        for one, other in within(room)
        if one[1] in floors and other[1] in floors and floors[one[1]] > floors[other[1]]
    } == set()


def test_a_family_imports_no_other_family() -> None:
    found = {
        f"{'.'.join(one)} imports {'.'.join(other)}"
        for room in FLOORS
        for one, other in within(room)
        if one[1] == other[1] == "families" and one[2:3] != other[2:3]
        if ROOT.joinpath(*one[:3]).is_dir() and ROOT.joinpath(*other[:3]).is_dir()
    }
    assert found == set()


def test_formats_import_neither_sources_nor_what_reads_files() -> None:
    ingest = "tasks.stages.ingest"
    imported = {
        target
        for name, targets in modules().items()
        for target, _ in targets
        if name.startswith(f"{ingest}.formats.") and target.startswith(f"{ingest}.")
    }
    allowed = (f"{ingest}.formats", f"{ingest}.documents", f"{ingest}.memory")
    assert [target for target in imported if not target.startswith(allowed)] == []


def test_no_modules_import_each_other() -> None:
    assert list(circles()) == []


def test_the_command_looks_up_the_pipeline_and_no_room_of_it() -> None:
    rooms = {name.partition(".")[0] for name, _ in modules()[COMMAND]} & set(ROOMS)
    assert rooms == {"indexmill_pipeline", "indexmill"}


def test_some_packages_are_for_few_rooms() -> None:
    wrong = [line for room in ROOMS[2:] for line in importing(room, ORCHESTRATORS)]
    wrong += [line for room in ROOMS for line in importing(room, {"benchmarks", "tests"})]
    wrong += importing("indexmill", {"igraph", "leidenalg"})  # under the GPL
    assert wrong == []


def declared(*extras: str) -> set[str]:
    """The distributions that the project requires, and those of some extras and of the extras that these name."""
    project, pipeline = (
        tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
        for path in ("pyproject.toml", "infra/wheel/pyproject.toml")
    )
    names, ahead = set[str](), [*project["dependencies"]]
    ahead += [text for extra in extras for text in project["optional-dependencies"][extra]]
    while ahead:
        requirement = Requirement(ahead.pop())
        if requirement.name == project["name"]:
            ahead += [text for extra in requirement.extras for text in project["optional-dependencies"][extra]]
        if requirement.name == pipeline["name"] and pipeline["name"] not in names:
            ahead += pipeline["dependencies"]
        names.add(canonicalize_name(requirement.name))
    return names


def test_what_is_imported_is_declared() -> None:
    distributions = packages_distributions()
    required = declared("pipeline", "formats", "haystack", "int8", "lake", "langchain", "lineage", "llamaindex", "sql")
    undeclared = {
        f"{name}:{line} imports {package}"
        for name, targets in modules().items()
        for target, line in targets
        if (package := target.partition(".")[0]) not in {*sys.stdlib_module_names, *ROOMS}
        if not {canonicalize_name(one) for one in distributions.get(package, [package])} & required
    }
    assert undeclared == set()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        *((name, HEAVY) for name in ("indexmill.opening", "indexmill.evaluate.recall", "indexmill.answer.answers")),
        *((name, (*HEAVY, "numpy", "pyarrow", "pydantic", "scipy")) for name in ("indexmill", "indexmill.command")),
    ],
)
def test_importing_the_reader_loads_nothing_heavy(module: str, unwanted: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*(name for name in {unwanted!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
