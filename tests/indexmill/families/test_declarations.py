"""A family is what its folder declares: the reader names it nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import indexmill
import tasks.registry  # noqa: F401 - declares the tables of families
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import ReaderFamily, load
from indexmill.retrieve.retrieval_method import PassageRetriever
from schemas.tables import TABLES
from tests.indexmill.running import Run
from tests.indexmill.small_communities import write_communities
from tests.indexmill.small_heterograph import write_heterograph
from tests.indexmill.small_snapshot import SnapshotWriter
from tests.paths import ROOT

FOLDERS = sorted(path.parent for path in (ROOT / "indexmill" / "families").glob("*/family.py"))
NAMED = [pytest.param(family, id=name) for name, family in METHODS.items()]


def test_every_folder_is_registered_under_its_name() -> None:
    assert [path.name for path in FOLDERS] == sorted(name for name, family in METHODS.items() if not family.always)


@pytest.mark.parametrize("family", NAMED)
def test_what_a_declaration_names_is_there(family: ReaderFamily) -> None:
    assert issubclass(load(family.retriever), PassageRetriever)
    assert load(family.parameters)() == load(family.parameters)()
    for place in (family.answering, *family.provides.values(), *family.graphs.values()):
        assert callable(load(place))
    for module, names in (
        (family.view and family.view.module, ("outline", "drawing")),
        (family.statistics and family.statistics.module, ("statistics", "listing", "other_counts")),
        (family.distributions or None, ("sizes",)),
        *((module, ("check", "SCHEMAS", "tables")) for module in family.forms.values()),
    ):
        assert module is None or all(hasattr(load(module), name) for name in names)
    parameters = load(family.parameters).__dataclass_fields__
    assert {option.parameter for option in family.options} <= set(parameters)
    columns = {name.partition("/<")[0]: table.schema.names for name, table in TABLES.items()}
    assert all(key in columns[table] for table, key in family.tables.items())


@pytest.mark.parametrize("folder", [pytest.param(path, id=path.name) for path in FOLDERS])
def test_no_other_part_of_the_reader_names_a_family(folder: Path) -> None:
    allowed = {ROOT / "indexmill/retrieve/method_registry.py", *(ROOT / "indexmill/store").rglob("*.py")}
    modules = set((ROOT / "indexmill").rglob("*.py")) - allowed - set(folder.rglob("*.py"))
    assert [path for path in sorted(modules) if folder.name in path.read_text(encoding="utf-8")] == []


def test_the_registry_is_light() -> None:
    program = (
        "import sys, indexmill.retrieve.method_registry; "
        "print(*(name for name in ('numpy', 'pyarrow', 'pydantic', 'click') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("method", "write"),
    [
        ("lsh_tree", lambda writer: writer.lsh_tree([])),
        ("community_tree", lambda writer: write_communities(writer, [], [])),
        ("heterograph", lambda writer: write_heterograph(writer, [])),
    ],
)
def test_an_empty_snapshot_has_no_hits(tmp_path: Path, method: str, write: Callable[[SnapshotWriter], object]) -> None:
    writer = SnapshotWriter(tmp_path)
    write(writer)
    writer.publish()
    with indexmill.open(tmp_path) as snapshot:
        assert snapshot.retrieve("stone", method=method) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tree"], "so it has no summaries"),
        (["--communities"], "so it has no communities"),
        (["--communities", "--tree"], "give only one"),
    ],
)
def test_what_cannot_be_drawn_is_refused(published: Path, run: Run, options: list[str], message: str) -> None:
    assert run("show", *options, "--store", published) == 2
    assert message in run.err
