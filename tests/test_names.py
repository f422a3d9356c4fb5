"""Names: a class or a module of the product has one to itself, and no name is a participle or a pronoun."""

from __future__ import annotations

import re
import symtable
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.paths import ROOT

PRODUCT = ("benchmarks", "flows", "indexmill", "infra", "schemas", "storage", "tasks")

WORDS = "answered asked found given held it its kept known left made one other own said taken those told wanted".split()  # noqa: SIM905
"""They say nothing as names. Only a comprehension, which ends in sight, may bind one."""

SERIALISED = {
    "Answer.found",
    "AnswerResponse.found",
    "Ended.answered",
    "FusedParameters.known",
    "GateMeasurement.asked",
    "GoldMeasurement.found",
    "GoldMeasurement.held",
    "Hold.held",
    "Missed.found",
    "PlanParts.made",
    "Reply.found",
    "StageRun.made",
    "ZoomGraphParameters.kept",
}
"""Settings, and fields of records and responses: another name would change files, or what users see."""

PUBLIC = {"IndexmillRetriever"}
"""What users import from the adapter of each framework."""

COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}


@cache
def modules() -> Mapping[str, str]:
    """The text of each module of the product, by path."""
    paths = sorted(path for room in PRODUCT for path in (ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def scopes() -> tuple[tuple[str, symtable.SymbolTable], ...]:
    """Every module, class and function of the product, each with its module's path."""
    return tuple(
        (path, scope) for path, text in modules().items() for scope in nested(symtable.symtable(text, path, "exec"))
    )


@pytest.fixture(scope="module", autouse=True)
def parsed() -> None:
    """All modules, which are parsed once."""
    scopes()


def nested(scope: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield scope
    for child in scope.get_children():
        yield from nested(child)


def repeated(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names that occur several times, with their paths."""
    paths = defaultdict(list)
    for name, path in names:
        paths[name].append(path)
    return {name: several for name, several in paths.items() if len(several) > 1}


def test_a_class_name_is_used_once() -> None:
    """A class with an underscore is seen by its module alone, so another module may have one of that name."""
    classes = ((scope.get_name(), path) for path, scope in scopes() if scope.get_type() == "class")
    assert repeated((name, path) for name, path in classes if name[0] != "_" and name not in PUBLIC) == {}


def test_a_module_name_is_used_once() -> None:
    """Declared exceptions: commands, benchmarks and families.

    A command, the module of `flows` that it runs, and a benchmark are named after what they do. The folders of families
    have the same modules; what all families share may have the name of a module that several of them have.
    """
    paths = [PurePosixPath(path) for path in modules() if not path.endswith("__.py")]
    commands = {path.stem for path in paths if path.parent.name == "command"}
    paths = [path for path in paths if path.parent.name != "command" and path.parts[0] != "benchmarks"]
    paths = [path for path in paths if path.parent.name != "flows" or path.stem not in commands]
    families = [path for path in paths if path.parent.parent.name == "families"]
    pattern = repeated((path.stem, str(path)) for path in families)
    named = [path for path in paths if path not in families or path.stem not in pattern]
    assert repeated((path.stem, str(path)) for path in named) == {}


def test_no_name_is_a_participle_or_a_pronoun() -> None:
    """A `left` beside a `right` is a side, and `__eq__` compares with an `other`."""
    spellings = {f"{before}{word}" for word in WORDS for before in ("", "_")}
    spellings |= {word.upper() for word in spellings}
    attribute = re.compile(rf"\.(?:_?(?:{'|'.join(WORDS)}))\b(?:: [^=\n]+)? [-+*/|&]?= ")
    bound = {match[0]: path for path, text in modules().items() for match in attribute.finditer(text)}
    for path, scope in scopes():
        names = spellings.intersection(scope.get_identifiers())
        if not names or scope.get_name() in COMPREHENSIONS:
            continue
        usual = {"left"} if "right" in scope.get_identifiers() else {"other"} if scope.get_name() == "__eq__" else set()
        for name in names - usual:
            symbol = scope.lookup(name)
            binds = symbol.is_parameter() or symbol.is_imported() or (symbol.is_local() and symbol.is_assigned())
            if binds or symbol.is_annotated():
                bound[f"{scope.get_name()}.{name}"] = path
    assert {name: path for name, path in bound.items() if name not in SERIALISED} == {}
    assert SERIALISED - bound.keys() == set()
