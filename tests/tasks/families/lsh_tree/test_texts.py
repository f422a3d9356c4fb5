"""Where the texts of a tree's nodes come from: the tables, and the mapped files of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from indexmill.store.packs import open_pack
from storage import lineage
from tasks.core.stage import Part
from tasks.families.lsh_tree import summaries
from tasks.families.lsh_tree.texts import texts_of
from tasks.stages.embed.embed import row_key
from tests.corpora import documents
from tests.tasks.indexes import Index
from tests.tasks.making import part_with


@pytest.fixture
def index(quick: Path) -> Index:
    made = Index(quick / "store", "families.lsh_tree", families={"lsh_tree": {"smallest": 2, "largest": 4}})
    made.build(documents(40))
    return made


def outputs(index: Index) -> dict[str, dict[str, str]]:
    """The digests of the outputs of every part, by its label and stage."""
    with index.snapshot() as snapshot:
        entries = lineage.read(index.store(), snapshot.manifest.lineage).entries
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        found.setdefault(entry.shard, {}).update(entry.outputs)
    return found


def part(index: Index, title_in_passage: bool = True) -> Part[Any]:
    settings: Any = SimpleNamespace(title_in_passage=title_in_passage)
    return part_with(index.store(), summaries.STAGE, settings)


@pytest.mark.slow
def test_some_texts_of_a_shard_are_those_of_all_and_those_that_are_embedded(index: Index) -> None:
    reading = part(index)
    for label, digests in outputs(index).items():
        if "passages" not in digests:
            continue
        every = dict(texts_of(reading, digests))
        packs = [
            open_pack(index.store().open_local(one)) for name, one in sorted(digests.items()) if "vectors/" in name
        ]
        keys = [key.tobytes() for pack in packs for key in pack["passage_keys"]]
        assert [row_key(text) for text in every.values()] == keys
        some = list(every)[::3]
        assert dict(texts_of(reading, digests, pa.array([*some, "unknown"]))) == {one: every[one] for one in some}
        assert dict(texts_of(reading, digests, pa.array([], pa.string()))) == {}, label


def test_the_file_of_a_shard_is_made_once_in_a_run_and_goes_with_it(index: Index) -> None:
    digests = next(one for one in outputs(index).values() if "passages" in one)
    chosen = pa.array([next(iter(dict(texts_of(part(index), digests))))])
    found = list(texts_of(part(index), digests, chosen))
    (path,) = part(index).scratch().glob("texts-*.arrow")
    made = path.stat().st_mtime_ns
    assert list(texts_of(part(index), digests, chosen)) == found
    assert path.stat().st_mtime_ns == made
    # Another form of the texts has another file.
    assert list(texts_of(part(index, title_in_passage=False), digests, chosen)) != found
    assert len(list(part(index).scratch().iterdir())) == 2
    index.store().drop_scratch("run")
    assert not path.exists()
