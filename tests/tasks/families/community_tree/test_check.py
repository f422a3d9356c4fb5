"""What `check` refuses of community_tree: reports that do not fit their communities, a tree or index that is none."""

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
from tasks.families.community_tree.check import check_communities
from tasks.pipeline.check import STAGE
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.storage.quick import quick_folder

Outputs = dict[tuple[str, str], Mapping[str, str]]
Pack = dict[str, Any]


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[FolderStore, Outputs, dict[str, int]]]:
    """A store with a tree of several levels, what its stages made by stage and shard, and how many rows there are."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", documents(60))
        small = {"community_tree": {"enabled": True, "fewest": 3, "grain": 20, "largest": 12, "group": 4}}
        outcome = children.build(children.settings(folder / "store", corpus, families=small))
        store = open_store(folder / "store")
        manifest = Manifest.from_bytes(store.get_blob(refs.read(store, outcome.version).manifest))
        rows = {
            name: sum(artifact.rows or 0 for artifact in manifest.under(table))
            for name, table in (
                *(("passages", "passages"), ("entities", "described")),
                *(("communities", "communities"), ("related", "related")),
            )
        }
        entries = lineage.read(store, manifest.lineage).entries
        yield store, {(entry.stage, entry.shard): entry.outputs for entry in entries}, rows


@pytest.fixture
def packs(built: tuple[FolderStore, Outputs, dict[str, int]]) -> tuple[Pack, Pack]:
    store, outputs, _ = built
    names = outputs["community_tree", "all"]
    tree, index = (open_pack(store.open_local(names[name])) for name in ("tree", "index"))
    return {name: np.array(array) for name, array in tree.items()}, {n: np.array(array) for n, array in index.items()}


def test_a_sound_tree_passes(built: Any, packs: tuple[Pack, Pack]) -> None:
    check_communities(*packs, **built[2])
    assert len(packs[0]["level_offsets"]) >= 4  # two levels of communities, or the rest tells little
    assert built[2]["related"] > 10


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("parents", lambda array: array[:-1], "rows for"),
        ("stand_ins", lambda array: array[1:], "rows for"),
        ("bounds", lambda array: np.array([1, *array[1:]]), "levels of"),
        ("bounds", lambda array: np.array([array[0], 10_000, array[2]]), "levels of"),
        ("parents", lambda array: np.r_[-1, array[1:]], "not in the level above|not in the layer above"),
        ("parents", lambda array: np.r_[array[:-1], len(array) - 2], "a root has a parent"),
        ("children.indices", lambda array: array[::-1], "children and parents do not agree"),
        ("passages.indices", lambda array: array + 10_000, "passages of entities"),
        ("passages.indptr", lambda array: array[1:], "passages of entities"),
        ("passages.about", lambda array: array[1:], "what passages are about"),
        ("entity_keys", lambda array: array[1:], "keys are not the entities'"),
        ("entity_keys", lambda array: array[::-1], "keys are not the entities'"),
        ("relations.indptr", lambda array: np.r_[array[:-1], array[-1] + 1], "relations of entities"),
        ("relations.indices", lambda array: np.roll(array, 1), "does not lead both ways"),
        ("relations.rows", lambda array: np.zeros_like(array), "related pair"),
    ],
)
def test_a_tree_that_is_none_is_refused(built: Any, packs: tuple[Pack, Pack], name: str, change: Any, why: str) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree | {name: change(tree[name])}, index, **built[2])


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("rows", lambda array: array[:-1], "does not hold each"),
        ("rows", lambda array: np.r_[array[1], array[1:]], "does not hold each"),
        ("rows", lambda array: array[::-1], "another level"),
        ("indices", lambda array: array[:-1], "links of the index"),
        ("indptr", lambda array: array * 100, "links of the index"),
    ],
)
def test_an_index_of_something_else_is_refused(
    built: Any, packs: tuple[Pack, Pack], name: str, change: Any, why: str
) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree, index | {name: change(index[name])}, **built[2])


def group(built: Any) -> Job:
    """The check of a group of reports on entities."""
    store, outputs, _ = built
    label = next(shard for stage, shard in outputs if stage == "community_reports" and shard.startswith("s"))
    members = outputs["community_levels", "k1"][f"community_members/{label}"]
    inputs = {**outputs["community_reports", label], "members": members}
    return Job("tasks.pipeline.check", "", label, store.url, "run", inputs, {})


def check(job: Job) -> None:
    STAGE.compute(Inputs(open_store(job.store_url), job, STAGE))


def test_reports_that_do_not_fit_their_communities_are_refused(built: Any) -> None:
    store, job = built[0], group(built)
    check(job)
    table = read_table(store, job.inputs["communities"])

    def with_column(name: str, values: Any) -> Job:
        changed = table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)
        return dataclasses.replace(job, inputs={**job.inputs, "communities": put_table(store, changed)[0]})

    shorter = put_table(store, table.slice(1))[0]
    with pytest.raises(CheckError, match="not one row for each of members"):
        check(dataclasses.replace(job, inputs={**job.inputs, "communities": shorter}))
    with pytest.raises(CheckError, match="another layer"):
        check(with_column("level", pc.add(table["level"], pa.scalar(1, pa.int32()))))
    for name in ("text", "title"):
        with pytest.raises(CheckError, match="not that of its digest"):
            check(with_column(name, pc.binary_join_element_wise(table[name], "changed", " ")))


@pytest.mark.parametrize(
    ("name", "why"), [("keys", "of other nodes"), ("text_keys", "of other texts"), ("vectors", "unit length")]
)
def test_vectors_of_something_else_are_refused(built: Any, name: str, why: str) -> None:
    store, job = built[0], group(built)
    digest = job.inputs["community_vectors"]
    arrays = {key: np.array(array) for key, array in open_pack(store.open_local(digest)).items()}
    assert len(arrays["keys"]) > 1
    changed = arrays[name] * 2 if name == "vectors" else arrays[name][::-1]
    other, _ = put_pack(store, "run", arrays | {name: changed})
    with pytest.raises(CheckError, match=why):
        check(dataclasses.replace(job, inputs={**job.inputs, "community_vectors": other}))
