"""What `check` refuses of the heterograph: texts and vectors that do not fit each other, and a graph that is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indexmill.families.heterograph.search import Heterograph
from tasks.core.checks import CheckError
from tasks.families.heterograph.check import GraphTables, check_graph, rows_of_kinds
from tests.corpora import told_of
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built, Check


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """A store with a small heterograph."""
    with quick_folder() as folder:
        small = {"enabled": True, "neighbours": 4, "grain": 0, "largest": 12, "group": 4}
        Index(folder / "store", families={"heterograph": small}).build(told_of(16))
        yield Built(folder / "store")


@pytest.fixture(scope="module")
def ids(built: Built) -> dict[str, pa.Array]:
    return rows_of_kinds(Check(built.store, "all", built.named("heterograph")).opened())


@pytest.fixture
def made(built: Built) -> GraphTables:
    tables = (built.table("heterograph", name) for name in ("nodes", "edges", "relations"))
    return GraphTables(*tables, built.pack("heterograph", "graph"), built.pack("heterograph", "names"))


def test_a_sound_graph_passes(made: GraphTables, ids: dict[str, pa.Array]) -> None:
    check_graph(made, ids)
    assert (np.diff(made.graph["offsets"]) > 2).all()  # of every kind of nodes, or the rest tells little


def swapped(array: np.ndarray) -> np.ndarray:
    return np.r_[array[1], array[0], array[2:]]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("offsets", lambda array: array - np.eye(len(array), dtype=np.int64)[2], "offsets of kinds"),
        ("links.indices", lambda array: np.roll(array, 1), "the links differ from the edges"),
        ("links.kinds", lambda array: np.where(array == 0, 1, array), "wrong kinds of links"),
        ("edges", lambda array: array + 1, "wrong numbers of edges by kind"),
        ("rows", swapped, "a row of another node"),
        ("rows", lambda array: np.r_[array[:-1], 10_000_000], "a node's row does not exist"),
        ("entity_keys", lambda array: array + np.uint64(1), "wrong keys of entities"),
        ("relation_tokens", lambda array: array[1:], "'relation_tokens' has the shape"),
        ("relation_tokens", np.zeros_like, "a relation has no tokens"),
        ("passages.indices", lambda array: array + 10_000, "expected less than"),
        ("passages.indices", swapped, "a text does not come from itself"),
        ("passages.indptr", lambda array: np.r_[array[0], array[2], array[2:]], "comes from no passage"),
    ],
)
def test_arrays_that_do_not_fit_the_tables_are_refused(
    made: GraphTables, ids: dict[str, pa.Array], name: str, change: Callable[[Any], Any], why: str
) -> None:
    broken = dataclasses.replace(made, graph={**made.graph, name: change(made.graph[name])})
    with pytest.raises(CheckError, match=why):
        check_graph(broken, ids)


def test_a_unit_that_comes_from_another_passage_is_refused(made: GraphTables, ids: dict[str, pa.Array]) -> None:
    graph = Heterograph.of(made.graph)
    assert graph.passages is not None
    wrong = graph.passages.indices.copy()
    place = graph.passages.indptr[graph.rows("S").start]
    wrong[place] = (wrong[place] + 1) % len(ids["T"])
    with pytest.raises(CheckError, match="the text that states it"):
        check_graph(dataclasses.replace(made, graph={**made.graph, "passages.indices": wrong}), ids)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("starts", lambda array: np.r_[0, array], "names for"),
        ("keys", lambda array: array * np.uint64(0), "a word is repeated"),
        ("words", lambda array: array + 10_000, "expected less than"),
        ("words", lambda array: np.roll(array, 1), "contradicts the names"),
        ("holders.indices", lambda array: array[::-1], "contradicts the names"),
    ],
)
def test_words_of_other_names_are_refused(
    made: GraphTables, ids: dict[str, pa.Array], name: str, change: Callable[[Any], Any], why: str
) -> None:
    broken = dataclasses.replace(made, names={**made.names, name: change(made.names[name])})
    with pytest.raises(CheckError, match=why):
        check_graph(broken, ids)


def edges_but(made: GraphTables, kind: str) -> GraphTables:
    """The graph without the first edge of a kind."""
    place = made.edges["kind"].to_pylist().index(kind)
    return dataclasses.replace(made, edges=pa.concat_tables([made.edges.slice(0, place), made.edges.slice(place + 1)]))


@pytest.mark.parametrize("kind", ["text", "source", "target", "attribute", "overview"])
def test_a_node_without_its_only_edge_is_refused(made: GraphTables, ids: dict[str, pa.Array], kind: str) -> None:
    with pytest.raises(CheckError, match=f"do not have exactly one edge {kind}"):
        check_graph(edges_but(made, kind), ids)


def test_tables_that_are_no_graph_are_refused(made: GraphTables, ids: dict[str, pa.Array]) -> None:
    for name, table, why in (
        ("nodes", made.nodes.slice(1), "is not a node of kind"),  # a dangling id
        ("nodes", made.nodes.take(pa.array([1, 0, *range(2, len(made.nodes))])), "heterograph/nodes: rows repeat"),
        ("edges", pa.concat_tables([made.edges, made.edges.slice(0, 1)]), "heterograph/edges: rows repeat"),
        ("edges", made.edges.slice(0, len(made.edges) - 1), "the links differ from the edges"),
        ("edges", _with(made.edges, "kind", pa.array(["text"] * len(made.edges))), "is not a node of kind"),
        ("edges", _with(made.edges, "kind", pa.array(["other"] * len(made.edges))), "are unknown"),
        ("relations", made.relations.slice(1), "'relation_tokens' has the shape"),
        (
            "relations",
            _with(made.relations, "text", pc.utf8_upper(made.relations["text"])),
            "id does not match its content",
        ),
    ):
        with pytest.raises(CheckError, match=why):
            check_graph(dataclasses.replace(made, **{name: table}), ids)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def test_rows_of_fewer_units_than_nodes_are_refused(made: GraphTables, ids: dict[str, pa.Array]) -> None:
    with pytest.raises(CheckError, match=r"rows of kind S: \d+ nodes for"):
        check_graph(made, {**ids, "S": ids["S"].slice(1)})


def test_vectors_of_other_units_are_refused(built: Built) -> None:
    label = min(label for stage, label in built.outputs if stage == "hetero_units")
    check = built.check(label, "ingest", "split", "embed", "extract", "hetero_units")
    keys = check.pack("unit_vectors")["text_keys"]
    assert len(keys) > 1
    with pytest.raises(CheckError, match="belong to other texts"):
        check.with_arrays("unit_vectors", text_keys=keys[::-1]).run()
