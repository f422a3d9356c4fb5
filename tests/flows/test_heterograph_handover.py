"""What a build's heterograph is shown and handed over as."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import igraph
import pytest

import indexmill
from indexmill.command import main
from indexmill.families.heterograph.nodes import SHOWN
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """A store that a build has made of a small corpus, with a heterograph, and descriptions beside it."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", documents(24, words=110))
        families = {"heterograph": {"enabled": True}}
        described = {"description": {"enabled": True}}
        assert build(settings(folder / "store", corpus, families=families, resolve=described)).published
        yield folder / "store"


@pytest.mark.slow
def test_graphml_has_every_node_and_edge_of_a_build(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path / "out"), "--store", str(built), "--graphml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 3  # with the data card
    read = igraph.Graph.Read_GraphML(str(tmp_path / "out" / "heterograph.graphml"))
    with indexmill.open(built) as snapshot:
        nodes = snapshot.table("heterograph/nodes").to_pydict()
        edges = snapshot.table("heterograph/edges").to_pydict()
        entities = snapshot.table("entities").num_rows
        surfaces = set(snapshot.table("entities")["surface"].to_pylist())
    ids = read.vs["id"]
    kinds = {SHOWN[kind] for kind in nodes["kind"]}
    assert dict(zip(ids, read.vs["kind"], strict=True)) == {
        one: SHOWN[kind] for one, kind in zip(nodes["node_id"], nodes["kind"], strict=True)
    }
    assert kinds == set(SHOWN.values())
    assert 0 < nodes["kind"].count("N") <= entities
    assert set(read.vs.select(kind="entity")["label"]) <= surfaces
    assert all(read.vs.select(kind_in=["text", "unit", "attribute", "high-level", "relation"])["text"])
    ends = ((ids[one], ids[other]) for one, other in read.get_edgelist())
    assert Counter(zip(ends, read.es["kind"], strict=True)) == Counter(
        zip(zip(edges["source"], edges["target"], strict=True), edges["kind"], strict=True)
    )


@pytest.mark.slow
def test_show_counts_what_a_build_made(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--store", str(built), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    with indexmill.open(built) as snapshot:
        nodes = Counter(snapshot.table("heterograph/nodes")["kind"].to_pylist())
        edges = Counter(snapshot.table("heterograph/edges")["kind"].to_pylist())
        bytes_of = {one.name: one.bytes for one in snapshot.manifest.artifacts}
    told = shown["heterograph"]
    assert {kind: one["nodes"] for kind, one in told["nodes"].items()} == {kind: nodes[kind] for kind in SHOWN}
    assert {kind: count for kind, count in told["edges"].items() if count} == edges
    held = {name: length for name, length in bytes_of.items() if name.startswith(("attributes/", "elements/"))}
    assert told["nodes"]["A"]["texts"] + told["nodes"]["H"]["texts"] == sum(held.values()) > 0
    assert all(told["nodes"][kind]["vectors"] > 0 for kind in "TSAH")
    assert main(["show", "--store", str(built)]) == 0
    text = capsys.readouterr().out
    assert f"{told['all_nodes']:,} nodes and {told['all_edges']:,} edges" in text
    assert "edges mention" not in text
