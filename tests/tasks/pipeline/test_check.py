"""The check refuses what does not fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from schemas.tables import DOCUMENTS
from storage import lineage, refs
from storage.arrays import put_pack
from storage.folder import open_store
from storage.tables import put_table, read_table
from tasks.core.checks import CheckError
from tasks.core.stage import Job
from tasks.families.bm25.check import check_postings
from tasks.families.bm25.postings import postings
from tasks.stages.embed.embed import row_key
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.storage.quick import quick_folder
from tests.tasks.checking import MODULE, check

WHOLE = postings(["", "", ""], ["a lamp", "lamp lamp", "river"], 0)


def test_whole_postings_pass() -> None:
    check_postings(WHOLE, 3, "bm25/p")
    check_postings(postings([], [], 0), 0, "bm25/p")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": WHOLE["lengths"][:2]}, "2 lengths for 3 passages"),
        ({"lengths": WHOLE["lengths"][::-1]}, "add up"),
        ({"counts": WHOLE["counts"] + np.uint8(1)}, "add up"),
        ({"counts": WHOLE["counts"][:-1]}, "fit each other"),
        ({"keys": WHOLE["keys"][::-1]}, "order of their keys"),
        ({"keys": WHOLE["keys"][:-1]}, "fit each other"),
        ({"indptr": WHOLE["indptr"][::-1]}, "fit each other"),
        ({"indptr": WHOLE["indptr"][:0]}, "fit each other"),
        ({"passages": WHOLE["passages"][::-1]}, "order of their rows"),
        ({"passages": WHOLE["passages"] + np.uint8(3)}, "order of their rows"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_postings(WHOLE | changed, 3, "bm25/p")


@pytest.fixture(scope="module")
def jobs() -> Iterator[dict[str, Job]]:
    """The checks of a built store, by shard."""
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", documents(50))
        small = {"lsh_tree": {"smallest": 2, "largest": 3, "group": 8}}
        children.build(children.settings(folder / "store", corpus, families=small))
        store = open_store(folder / "store")
        newest = refs.newest(store)
        assert newest is not None
        entries = lineage.read(store, Manifest.from_bytes(store.get_blob(newest.manifest)).lineage).entries
        of_shard: dict[str, dict[str, str]] = {}
        segments: dict[str, str] = {}
        for entry in (one for one in entries if one.stage != "zoom_links"):
            kept = segments if entry.stage == "lsh_segments" else of_shard.setdefault(entry.shard, {})
            kept.update(entry.outputs)
        for group in [label for label in of_shard if f"segments/{label}" in segments]:
            of_shard[group]["segments"] = segments[f"segments/{group}"]
        whole = of_shard.pop("all")
        found = {}
        for label, outputs in of_shard.items():
            named = {name: whole[f"{name}/{label}"] for name in ("entities",) if f"{name}/{label}" in whole}
            found[label] = Job(MODULE, "", label, store.url, "run", {**outputs, **named}, {})
        inputs = {f"mentions/{label}": outputs["mentions"] for label, outputs in of_shard.items() if label[0] == "p"}
        inputs |= {f"checked/{label}": outputs["checked"] for label, outputs in of_shard.items()}
        found["all"] = Job(MODULE, "", "all", store.url, "run", inputs, {})
        yield found


def test_a_sound_store_passes(jobs: dict[str, Job]) -> None:
    assert len(jobs) > 4
    for job in jobs.values():
        check(job)


@pytest.mark.parametrize("letter", ["p", "e", "a"])
def test_what_belongs_to_another_shard_is_refused(jobs: dict[str, Job], letter: str) -> None:
    labels = sorted(label for label in jobs if label[0] == letter and label != "all")
    strange = labels[-1][:-1] + ("0" if labels[-1][-1] == "1" else "1") if labels[-1] != letter else letter + "0"
    with pytest.raises(CheckError, match="belong"):
        check(dataclasses.replace(jobs[labels[-1]], shard=strange))


def test_passages_of_another_shard_are_refused(jobs: dict[str, Job]) -> None:
    one, other = sorted(label for label in jobs if label[0] == "p")[:2]
    mixed = {**jobs[one].inputs, "passages": jobs[other].inputs["passages"]}
    with pytest.raises(CheckError, match="belong to no document"):
        check(dataclasses.replace(jobs[one], inputs=mixed))


def test_a_shard_that_is_missing_or_there_twice_is_refused(jobs: dict[str, Job]) -> None:
    whole = jobs["all"]
    entities = next(name for name in whole.inputs if name.startswith("checked/e"))
    left = {name: digest for name, digest in whole.inputs.items() if name != entities}
    with pytest.raises(CheckError, match="ids mentioned or extracted"):
        check(dataclasses.replace(whole, inputs=left))
    twice = {**whole.inputs, f"{entities}0": whole.inputs[entities]}
    with pytest.raises(CheckError, match="holds another"):
        check(dataclasses.replace(whole, inputs=twice))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("text_keys", lambda held: held[::-1], "of other titles"),
        ("vectors", lambda held: held * 2, "unit length"),
        ("vectors", lambda held: held * 0, "unit length"),
        ("vectors", lambda held: held[:-1], "rows for"),
        ("passage_document", lambda held: held[::-1], "of other documents"),
        ("passage_document", lambda held: held[:-1], "of other documents"),
    ],
)
def test_titles_that_do_not_fit_are_refused(
    jobs: dict[str, Job], name: str, wrong: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    job = jobs[min(label for label in jobs if label[0] == "p")]
    store = open_store(job.store_url)
    arrays = {key: np.array(held) for key, held in open_pack(store.open_local(job.inputs["titles"])).items()}
    digest, _ = put_pack(store, "run", arrays | {name: wrong(arrays[name])})
    with pytest.raises(CheckError, match=message):
        check(dataclasses.replace(job, inputs={**job.inputs, "titles": digest}))


def test_a_vector_of_a_title_that_is_not_there_is_refused(jobs: dict[str, Job]) -> None:
    job = jobs[min(label for label in jobs if label[0] == "p")]
    store = open_store(job.store_url)
    documents = read_table(store, job.inputs["documents"], DOCUMENTS)
    titles = ["", *documents["title"].to_pylist()[1:]]
    at = documents.schema.get_field_index("title")
    untitled = put_table(store, documents.set_column(at, documents.schema.field(at), [titles]), DOCUMENTS)[0]
    arrays = {key: np.array(held) for key, held in open_pack(store.open_local(job.inputs["titles"])).items()}
    arrays["text_keys"][0] = list(row_key(""))
    digest, _ = put_pack(store, "run", arrays)
    with pytest.raises(CheckError, match="without a title has a vector"):
        check(dataclasses.replace(job, inputs={**job.inputs, "documents": untitled, "titles": digest}))
    arrays["vectors"][0] = 0
    digest, _ = put_pack(store, "run", arrays)
    check(dataclasses.replace(job, inputs={**job.inputs, "documents": untitled, "titles": digest}))
