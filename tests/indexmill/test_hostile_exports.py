"""An export whose digests are right and whose contents are not gives results or an error, and nothing else."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import indexmill
from indexmill.store.manifest import Manifest
from tests.deep import share
from tests.indexmill import hostile_exports
from tests.indexmill.families.zoom_graph.test_search import built
from tests.indexmill.hostile_exports import changes_of
from tests.indexmill.small_communities import Group, Related, Thing, write_communities
from tests.indexmill.small_snapshot import WORLD, export, writer_of
from tests.indexmill.world_heterograph import publish_world

Change = tuple[str, str]


def _trees(path: Path) -> None:
    """dense with titles, bm25, tri_graph, lsh_tree and community_tree."""
    writer = writer_of(path)
    writer.titles()
    writer.bm25()
    writer.tri_graph(every_name=2)
    writer.lsh_tree(
        [
            [("Of a bridge.", [0, 1]), ("Of a clockmaker.", [2]), ("Of a river.", [3, 4])],
            [("Of a town and its bridge.", [0, 1]), ("Of water.", [2])],
            [("Of all.", [0, 1])],
        ]
    )
    write_communities(
        writer,
        [
            Thing("Marrow Bridge", "a bridge", [0, 1]),
            Thing("Ilse", "a river", [0, 3]),
            Thing("Ada Venn", "a clockmaker", [1, 2]),
            Thing("Tallow", "a town", [2, 4]),
        ],
        [
            [Group("Water", "the bridge and the river", [0, 1]), Group("People", "who lives where", [2, 3])],
            [Group("All", "the valley", [0, 1])],
        ],
        [Related(0, 1, "crosses"), Related(2, 3, "was born in"), Related(2, 0, "paid for")],
    )
    writer.publish()


def _nodes(path: Path) -> None:
    """heterograph."""
    publish_world(path)


def _zoom(path: Path) -> None:
    """What a build makes: bm25, tri_graph and zoom_graph among it."""
    rows = {text.id: (text.title, text.text) for texts in WORLD.values() for text in texts}
    families = {"zoom_graph": {"enabled": True}, "tri_graph": {"enabled": True}, "bm25": {"enabled": True}}
    built(path.parent, rows, families=families)


EXPORTS = {"trees": _trees, "nodes": _nodes, "zoom": _zoom}


@pytest.fixture(scope="module", params=EXPORTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp(request.param)
    EXPORTS[request.param](base / "store")
    with indexmill.open(base / "store") as snapshot:
        export(snapshot, base / "export")
    return base / "export"


BROKE = {
    ("community_tree/tree", "array:children.indptr:as large"),
    *(("documents/p", f"table:metadata:{what}") for what in ("text", "most", "least", "json")),
}
"""Changes that once gave another exception."""


def every_change(folder: Path) -> list[Change]:
    manifest = Manifest.from_bytes((folder / "manifest.json").read_bytes())
    return [(one.name, what) for one in manifest.artifacts for what in changes_of(one, folder, manifest)]


def outcomes(folder: Path, changes: Sequence[Change]) -> Iterator[tuple[Change, str]]:
    """What came of each change, in a process that is started anew where it ended."""
    left = list(changes)
    while left:
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", hostile_exports.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            while left:
                name, what = left.pop(0)
                before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                print(json.dumps([str(folder), name, what]), file=process.stdin, flush=True)
                said = process.stdout.readline()
                if said:
                    yield (name, what), json.loads(said)
                    continue
                told = process.communicate()[1][-500:]
                for path, data in before.items():
                    path.write_bytes(data)
                yield (name, what), f"ended with {process.returncode}: {told}"
                break


def wrong(folder: Path, changes: Sequence[Change]) -> list[str]:
    return [
        f"{name} {what}: {came}"
        for (name, what), came in outcomes(folder, changes)
        if came.startswith(("raised", "ended"))
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_changes_give_results_or_an_error(folder: Path) -> None:
    changes = every_change(folder)
    shuffled = random.Random(folder.parent.name).sample(changes, len(changes))  # noqa: S311 - the same each time
    chosen = share(shuffled, 24)
    assert wrong(folder, [*chosen, *(change for change in changes if change in BROKE)]) == []
