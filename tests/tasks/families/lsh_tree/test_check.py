"""What `check` refuses of lsh_tree: summaries that do not fit their segments, and a tree that is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from storage import lineage, refs
from storage.arrays import put_pack
from storage.folder import FolderStore, open_store
from storage.tables import put_table, read_table
from tasks.core.checks import CheckError
from tasks.core.stage import Inputs, Job
from tasks.families.lsh_tree.check import check_tree
from tasks.pipeline.check import STAGE
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.storage.quick import quick_folder

Outputs = dict[tuple[str, str], Mapping[str, str]]


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[FolderStore, Outputs]]:
    """A store with a tree of several layers, and what its stages made by stage and shard."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", documents(40))
        small = {"lsh_tree": {"smallest": 2, "largest": 4}}
        outcome = children.build(children.settings(folder / "store", corpus, families=small))
        store = open_store(folder / "store")
        manifest = refs.read(store, outcome.version).manifest
        entries = lineage.read(store, Manifest.from_bytes(store.get_blob(manifest)).lineage).entries
        yield store, {(entry.stage, entry.shard): entry.outputs for entry in entries}


@pytest.fixture
def pack(built: tuple[FolderStore, Outputs]) -> dict[str, Any]:
    store, outputs = built
    found = open_pack(store.open_local(outputs["lsh_tree", "all"]["tree"]))
    return {name: np.array(array) for name, array in found.items()}


def refuses(pack: dict[str, Any], why: str) -> None:
    passages, summaries = 40, len(pack["stand_ins"])
    with pytest.raises(CheckError, match=why):
        check_tree(pack, passages, summaries)


def test_a_sound_tree_passes(pack: dict[str, Any]) -> None:
    check_tree(pack, 40, len(pack["stand_ins"]))
    assert len(pack["layer_offsets"]) >= 4  # two layers of summaries, or the rest tells little


def test_rows_that_are_missing_are_refused(pack: dict[str, Any]) -> None:
    refuses(pack | {"codes": pack["codes"][:-1]}, "rows for 40 passages")
    with pytest.raises(CheckError, match="for 39 passages"):
        check_tree(pack, 39, len(pack["stand_ins"]) + 1)


def test_a_tree_that_is_too_high_or_not_high_enough_is_refused(pack: dict[str, Any]) -> None:
    smallest, largest, _, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([smallest, largest, 1, seed])}, "layers of")
    top = int(np.diff(pack["layer_offsets"])[-1])
    refuses(pack | {"bounds": np.array([smallest, top - 1, 16, seed])}, "roots, and no layer over them")


def test_segments_out_of_bounds_are_refused(pack: dict[str, Any]) -> None:
    _, largest, layers, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([largest, largest, layers, seed])}, "segments are not of 4 to 4")


def test_a_passage_that_no_root_reaches_is_refused(pack: dict[str, Any]) -> None:
    parents = pack["parents"].copy()
    parents[3] = -1
    refuses(pack | {"parents": parents}, "parent is not in the layer above")
    parents[3] = len(parents) - 1  # a root, over the layers between
    refuses(pack | {"parents": parents}, "parent is not in the layer above")
    parents = pack["parents"].copy()
    parents[-1] = len(parents) - 2
    refuses(pack | {"parents": parents}, "a root has a parent")


def test_children_that_are_not_those_of_their_parents_are_refused(pack: dict[str, Any]) -> None:
    indices = pack["children.indices"].copy()
    low = int(pack["children.indptr"][1])
    indices[[0, low]] = indices[[low, 0]]
    refuses(pack | {"children.indices": indices}, "children and parents do not agree")
    refuses(pack | {"children.indices": pack["children.indices"][:-1]}, "children and parents do not agree")


def group(built: tuple[FolderStore, Outputs]) -> Job:
    """The check of the summaries of passages."""
    store, outputs = built
    inputs = {**outputs["lsh_summaries", "a"], **outputs["lsh_vectors", "a"]}
    inputs["segments"] = outputs["lsh_segments", "l1"]["segments/a"]
    return Job("tasks.pipeline.check", "", "a", store.url, "run", inputs, {})


def check(job: Job) -> None:
    STAGE.compute(Inputs(open_store(job.store_url), job, STAGE))


def test_summaries_that_fit_pass(built: tuple[FolderStore, Outputs]) -> None:
    check(group(built))


def test_summaries_that_do_not_fit_their_segments_are_refused(built: tuple[FolderStore, Outputs]) -> None:
    store, job = built[0], group(built)
    table = read_table(store, job.inputs["summaries"])

    def with_table(changed: pa.Table) -> Job:
        return dataclasses.replace(job, inputs={**job.inputs, "summaries": put_table(store, changed)[0]})

    def with_column(name: str, values: Any) -> Job:
        return with_table(table.set_column(table.schema.get_field_index(name), table.schema.field(name), values))

    with pytest.raises(CheckError, match="not one row for each of segments"):
        check(with_table(table.slice(1)))
    with pytest.raises(CheckError, match="another layer"):
        check(with_column("layer", pc.add(table["layer"], pa.scalar(1, pa.int32()))))
    with pytest.raises(CheckError, match="not that of its digest"):
        check(with_column("text", pc.binary_join_element_wise(table["text"], "changed", " ")))
    with pytest.raises(CheckError, match="belongs to another group"):
        check(dataclasses.replace(job, shard="a0"))


@pytest.mark.parametrize(
    ("name", "why"), [("keys", "of other nodes"), ("text_keys", "of other texts"), ("vectors", "unit length")]
)
def test_vectors_of_something_else_are_refused(built: tuple[FolderStore, Outputs], name: str, why: str) -> None:
    store, job = built[0], group(built)
    arrays = {key: np.array(array) for key, array in open_pack(store.open_local(job.inputs["summary_vectors"])).items()}
    changed = arrays[name] * 2 if name == "vectors" else arrays[name][::-1]
    digest, _ = put_pack(store, "run", arrays | {name: changed})
    with pytest.raises(CheckError, match=why):
        check(dataclasses.replace(job, inputs={**job.inputs, "summary_vectors": digest}))
