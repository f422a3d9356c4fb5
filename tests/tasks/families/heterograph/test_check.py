"""What `check` refuses of the heterograph: texts and vectors that do not fit each other, and a graph that is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indexmill.families.heterograph.search import Heterograph
from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from schemas.tables import HETERO_EDGES, HETERO_NODES, HETERO_RELATIONS
from storage import lineage, refs
from storage.arrays import put_pack
from storage.folder import FolderStore, open_store
from storage.tables import put_table, read_table
from tasks.core.checks import CheckError
from tasks.core.stage import Inputs, Job
from tasks.families.heterograph.check import Made, check_graph, rows_of_kinds
from tests.corpora import told_of, write_corpus
from tests.flows import children
from tests.storage.quick import quick_folder
from tests.tasks.checking import MODULE, check

Outputs = dict[tuple[str, str], Mapping[str, str]]
Pack = dict[str, Any]


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[FolderStore, Outputs]]:
    """A store with a small heterograph, and what its stages made by stage and shard."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", told_of(16))
        small = {"heterograph": {"enabled": True, "neighbours": 4, "grain": 0, "largest": 12, "group": 4}}
        outcome = children.build(children.settings(folder / "store", corpus, families=small))
        store = open_store(folder / "store")
        manifest = Manifest.from_bytes(store.get_blob(refs.read(store, outcome.version).manifest))
        entries = lineage.read(store, manifest.lineage).entries
        yield store, {(entry.stage, entry.shard): entry.outputs for entry in entries}


@pytest.fixture(scope="module")
def ids(built: tuple[FolderStore, Outputs]) -> dict[str, pa.Array]:
    store, outputs = built
    inputs: dict[str, str] = {}
    for (stage, label), made in outputs.items():
        if stage != "heterograph":
            inputs |= {name if "/" in name else f"{name}/{label}": digest for name, digest in made.items()}
    return rows_of_kinds(Inputs(store, Job(MODULE, "", "all", store.url, "run", inputs, {})))


@pytest.fixture
def made(built: tuple[FolderStore, Outputs]) -> Made:
    store, outputs = built
    names = outputs["heterograph", "all"]
    graph, words = (open_pack(store.open_local(names[name])) for name in ("graph", "names"))
    return Made(
        read_table(store, names["nodes"], HETERO_NODES),
        read_table(store, names["edges"], HETERO_EDGES),
        read_table(store, names["relations"], HETERO_RELATIONS),
        {name: np.array(array) for name, array in graph.items()},
        {name: np.array(array) for name, array in words.items()},
    )


def test_a_sound_graph_passes(made: Made, ids: dict[str, pa.Array]) -> None:
    check_graph(made, ids)
    assert (np.diff(made.graph["offsets"]) > 2).all()  # of every kind of nodes, or the rest tells little


def swapped(array: np.ndarray) -> np.ndarray:
    return np.r_[array[1], array[0], array[2:]]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("offsets", lambda array: array - np.eye(len(array), dtype=np.int64)[2], "begin elsewhere"),
        ("offsets", lambda array: array[:-1], "has kinds that begin"),
        ("links.indices", lambda array: np.roll(array, 1), "not those of the edges"),
        ("links.indptr", lambda array: np.r_[array[0], array[1] + 1, array[2:]], "not those of the edges"),
        ("links.kinds", lambda array: np.where(array == 0, 1, array), "kind of each link"),
        ("links.kinds", lambda array: array[1:], "has kinds that begin"),
        ("edges", lambda array: array + 1, "edges of each kind"),
        ("rows", lambda array: array[1:], "rows for"),
        ("rows", swapped, "a row of another node"),
        ("rows", lambda array: array - 1, "no such row"),
        ("rows", lambda array: np.r_[array[:-1], 10_000_000], "no such row"),
        ("entity_keys", lambda array: array + np.uint64(1), "keys of the entities"),
        ("relation_tokens", lambda array: array[1:], "tokens of each relation"),
        ("relation_tokens", np.zeros_like, "tokens of each relation"),
        ("passages.indices", lambda array: array + 10_000, "ascending rows of passages"),
        ("passages.indices", swapped, "a text does not come from itself"),
        ("passages.indptr", lambda array: np.r_[array[0], array[2], array[2:]], "comes from none"),
    ],
)
def test_arrays_that_do_not_fit_the_tables_are_refused(
    made: Made, ids: dict[str, pa.Array], name: str, change: Callable[[Any], Any], why: str
) -> None:
    broken = dataclasses.replace(made, graph={**made.graph, name: change(made.graph[name])})
    with pytest.raises(CheckError, match=why):
        check_graph(broken, ids)


def test_a_unit_that_comes_from_another_passage_is_refused(made: Made, ids: dict[str, pa.Array]) -> None:
    graph = Heterograph.of(made.graph)
    assert graph.passages is not None
    wrong = graph.passages.indices.copy()
    place = graph.passages.indptr[graph.rows("S").start]
    wrong[place] = (wrong[place] + 1) % len(ids["T"])
    with pytest.raises(CheckError, match="the text that says it"):
        check_graph(dataclasses.replace(made, graph={**made.graph, "passages.indices": wrong}), ids)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("starts", lambda array: array[1:], "names for"),
        ("keys", lambda array: array[::-1], "order of their keys"),
        ("words", lambda array: array + 10_000, "no such word"),
        ("words", lambda array: np.roll(array, 1), "do not agree"),
        ("holders.indices", lambda array: array[::-1], "do not agree"),
    ],
)
def test_words_of_other_names_are_refused(
    made: Made, ids: dict[str, pa.Array], name: str, change: Callable[[Any], Any], why: str
) -> None:
    broken = dataclasses.replace(made, names={**made.names, name: change(made.names[name])})
    with pytest.raises(CheckError, match=why):
        check_graph(broken, ids)


def edges_but(made: Made, kind: str) -> Made:
    """The graph without the first edge of a kind."""
    place = made.edges["kind"].to_pylist().index(kind)
    return dataclasses.replace(made, edges=pa.concat_tables([made.edges.slice(0, place), made.edges.slice(place + 1)]))


@pytest.mark.parametrize("kind", ["text", "source", "target", "attribute", "overview"])
def test_a_node_without_its_only_edge_is_refused(made: Made, ids: dict[str, pa.Array], kind: str) -> None:
    with pytest.raises(CheckError, match=f"have not one edge {kind}"):
        check_graph(edges_but(made, kind), ids)


def test_tables_that_are_no_graph_are_refused(made: Made, ids: dict[str, pa.Array]) -> None:
    for name, table, why in (
        ("nodes", made.nodes.slice(1), "is no node of kind"),  # a dangling id
        ("nodes", made.nodes.take(pa.array([1, 0, *range(2, len(made.nodes))])), "heterograph/nodes: not each once"),
        ("edges", pa.concat_tables([made.edges, made.edges.slice(0, 1)]), "heterograph/edges: not each once"),
        ("edges", made.edges.slice(0, len(made.edges) - 1), "not those of the edges"),
        ("edges", _with(made.edges, "kind", pa.array(["text"] * len(made.edges))), "is no node of kind"),
        ("edges", _with(made.edges, "kind", pa.array(["other"] * len(made.edges))), "are not known"),
        ("relations", made.relations.slice(1), "nodes for"),
        ("relations", _with(made.relations, "text", pc.utf8_upper(made.relations["text"])), "id of what it says"),
    ):
        with pytest.raises(CheckError, match=why):
            check_graph(dataclasses.replace(made, **{name: table}), ids)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def test_rows_of_fewer_passages_than_texts_are_refused(made: Made, ids: dict[str, pa.Array]) -> None:
    with pytest.raises(CheckError, match=r"rows of kind T: \d+ nodes for"):
        check_graph(made, {**ids, "T": ids["T"].slice(1)})


# Shards and groups


def job_of(built: tuple[FolderStore, Outputs], stage: str) -> Job:
    """The check of a shard, or of a group, that has texts of a stage."""
    store, outputs = built
    rows = {
        label: len(read_table(store, held[stage])) for (made_by, label), held in outputs.items() if made_by == stage
    }
    label = max(rows, key=lambda one: (rows[one], one))
    inputs = dict(outputs[stage, label])
    if stage == "attributes":
        inputs["entities"] = outputs["resolve", "all"][f"entities/{label}"]
        inputs["names"] = outputs["embed_names", label]["names"]
    return Job(MODULE, "", label, store.url, "run", inputs, {})


@pytest.mark.parametrize("stage", ["attributes", "elements"])
def test_texts_that_do_not_fit_what_they_are_made_of_are_refused(
    built: tuple[FolderStore, Outputs], stage: str
) -> None:
    store, job = built[0], job_of(built, stage)
    check(job)
    table = read_table(store, job.inputs[stage])
    assert len(table) > 1

    def other(changed: pa.Table) -> Job:
        return dataclasses.replace(job, inputs={**job.inputs, stage: put_table(store, changed)[0]})

    with pytest.raises(CheckError, match="order of their ids"):
        check(other(table.take(pa.array(range(len(table) - 1, -1, -1)))))
    with pytest.raises(CheckError, match=r"not that of its digest"):
        check(other(_with(table, "digest", pa.array(["0" * 32] * len(table)))))
    with pytest.raises(CheckError, match="rows for"):
        check(other(table.slice(1)))
    key = "entity_id" if stage == "attributes" else "text"
    with pytest.raises(CheckError, match="has not the id of its"):
        check(other(_with(table, key, table[key].combine_chunks().take(pa.array(range(len(table) - 1, -1, -1))))))


def test_an_element_of_another_group_is_refused(built: tuple[FolderStore, Outputs]) -> None:
    job = job_of(built, "elements")
    wrong = "H" + "".join("1" if bit == "0" else "0" for bit in job.shard[1:])
    with pytest.raises(CheckError, match="belongs to another group"):
        check(dataclasses.replace(job, shard=wrong if len(wrong) > 1 else "H0101010101010101"))


@pytest.mark.parametrize(
    ("stage", "pack"),
    [("attributes", "attribute_vectors"), ("elements", "element_vectors"), ("hetero_units", "unit_vectors")],
)
@pytest.mark.parametrize(("name", "why"), [("text_keys", "of other texts"), ("vectors", "unit length")])
def test_vectors_of_something_else_are_refused(
    built: tuple[FolderStore, Outputs], stage: str, pack: str, name: str, why: str
) -> None:
    store, outputs = built
    job = job_of(built, stage) if stage != "hetero_units" else _of_documents(store, outputs)
    arrays = {key: np.array(array) for key, array in open_pack(store.open_local(job.inputs[pack])).items()}
    assert len(arrays["text_keys"]) > 1
    changed = arrays[name] * 2 if name == "vectors" else arrays[name][::-1]
    digest, _ = put_pack(store, "run", arrays | {name: changed})
    with pytest.raises(CheckError, match=why):
        check(dataclasses.replace(job, inputs={**job.inputs, pack: digest}))


def _of_documents(store: FolderStore, outputs: Outputs) -> Job:
    """The check of a shard of documents with units."""
    label = min(label for stage, label in outputs if stage == "hetero_units")
    inputs: dict[str, str] = {}
    for stage in ("ingest", "split", "embed", "extract", "hetero_units"):
        inputs |= outputs[stage, label]
    return Job(MODULE, "", label, store.url, "run", inputs, {})
