"""A family is what its folder declares: the reader names it nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import indexmill
from indexmill.diff import compare
from indexmill.errors import FamilyNotFound
from indexmill.retrieve.base import PassageRetriever, QueryBatch, Ranking
from indexmill.retrieve.family import ReaderFamily, load
from indexmill.retrieve.registry import METHODS, families_of, provided
from indexmill.store.manifest import Family
from schemas.tables import TABLES
from tests.indexmill.running import Run
from tests.indexmill.small_communities import write_communities
from tests.indexmill.small_heterograph import write_heterograph
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter
from tests.paths import ROOT

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

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
        *((module, ("check", "SCHEMAS", "tables")) for module in family.forms.values()),
    ):
        assert module is None or all(hasattr(load(module), name) for name in names)
    parameters = load(family.parameters).__dataclass_fields__
    assert {option.parameter for option in family.options} <= set(parameters)
    columns = {name.partition("/<")[0]: table.schema.names for name, table in TABLES.items()}
    assert all(key in columns[table] for table, key in family.tables.items())


@pytest.mark.parametrize("folder", [pytest.param(path, id=path.name) for path in FOLDERS])
def test_no_other_part_of_the_reader_names_a_family(folder: Path) -> None:
    allowed = {ROOT / "indexmill/retrieve/registry.py", *(ROOT / "indexmill/store").rglob("*.py")}
    modules = set((ROOT / "indexmill").rglob("*.py")) - allowed - set(folder.rglob("*.py"))
    assert [path for path in sorted(modules) if folder.name in path.read_text(encoding="utf-8")] == []


def test_the_registry_is_light() -> None:
    program = (
        "import sys, indexmill.retrieve.registry; "
        "print(*(name for name in ('numpy', 'pyarrow', 'pydantic', 'click') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


class FirstPassages(PassageRetriever):
    """The first passages of the corpus, whatever the question."""

    uses_vectors = False

    def rank(self, asked: QueryBatch, k: int) -> Iterator[Ranking]:
        rows = np.arange(min(k, len(self.passages)))
        return (Ranking(rows, np.ones(len(rows))) for _ in asked.questions)


def labels(artifacts: Artifacts) -> list[str]:
    return [one.name for one in artifacts.shards("passages")]


TOY = ReaderFamily(
    name="toy",
    retriever=f"{__name__}:FirstPassages",
    parameters="indexmill.retrieve.base:NoParameters",
    tables={"passages": "passage_id"},
    provides={"labels": f"{__name__}:labels"},
)


def test_a_family_that_is_declared_is_retrieved_from_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SnapshotWriter(tmp_path)
    writer.shard("p0", WORLD["p0"])
    writer.families["toy"] = Family()
    writer.publish()
    with indexmill.open(tmp_path) as snapshot:
        assert "toy" not in snapshot.methods
    monkeypatch.setitem(METHODS, "toy", TOY)
    with indexmill.open(tmp_path) as snapshot:
        assert snapshot.methods[-1] == families_of(snapshot.manifest)[-1].name == "toy"
        (hit,) = snapshot.retrieve("any", method="toy", k=1)
        assert hit.id == snapshot.table("passages")["passage_id"][0].as_py()
        assert provided(snapshot, "labels") == ["passages/p0"]
        assert provided(snapshot, "tables") is None
        assert compare(snapshot, snapshot).rows["passages"] == (0, 0)
        with pytest.raises(FamilyNotFound, match=r"has fused, .*, toy"):
            snapshot.retriever("lsh_tree")


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
        (["--communities", "--tree"], "give one of them"),
    ],
)
def test_what_cannot_be_drawn_is_refused(published: Path, run: Run, options: list[str], message: str) -> None:
    assert run("show", *options, "--store", published) == 2
    assert message in run.err
