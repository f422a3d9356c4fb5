"""The links of mentions over a whole corpus: what shards hold, put together, against loops over the mentions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.retrieve import mention_matrices as module
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.mention_matrices import MentionLinks, mention_links_of
from indexmill.snapshot import Snapshot
from indexmill.store.artifact_listing import Artifact
from indexmill.store.manifest import Corpus, Manifest
from indexmill.store.packs import open_pack, write_pack
from indexmill.text.canonical_names import NameIndex, entity_id
from tasks.stages.resolve.mention_links import mention_links
from tests.deep import examples
from tests.indexmill.damage import changed
from tests.indexmill.small_snapshot import writer_of
from tests.storage.quick import quick_folder

NAMES = [f"name {number}" for number in range(9)]
UNLINKED = ("date", "number")

Pack_ = Mapping[str, np.ndarray]


class Said(NamedTuple):
    """A mention: the row of its passage in the shard, its sentence in the passage (-1: the title), name and kind."""

    passage: int
    sentence: int
    name: str
    kind: str


class Shard(NamedTuple):
    """The documents of a shard as the numbers of sentences of their passages, what they mention, and what is told."""

    documents: Sequence[Sequence[int]]
    mentions: Sequence[Said]
    told: Sequence[str] = ()

    @property
    def lengths(self) -> list[int]:
        """The sentences of each passage."""
        return [length for passages in self.documents for length in passages]

    @property
    def owners(self) -> list[int]:
        """The document of each passage."""
        return [number for number, passages in enumerate(self.documents) for _ in passages]

    def pack(self) -> dict[str, np.ndarray]:
        """The arrays that the stage makes of the shard's tables."""
        spoken = [f"p{row:03}" for row, length in enumerate(self.lengths) for _ in range(length)]
        mentions = {
            "passage_id": pa.array([f"p{one.passage:03}" for one in self.mentions], pa.string()),
            "sentence": pa.array([one.sentence for one in self.mentions], pa.int32()),
            "entity_id": pa.array([entity_id(one.name) for one in self.mentions], pa.string()),
            "kind": pa.array([one.kind for one in self.mentions], pa.string()),
        }
        return mention_links(
            pa.table({"document_id": pa.array([f"d{row}" for row in range(len(self.documents))], pa.string())}),
            pa.table(
                {
                    "passage_id": pa.array([f"p{row:03}" for row in range(len(self.lengths))], pa.string()),
                    "document_id": pa.array([f"d{row}" for row in self.owners], pa.string()),
                }
            ),
            pa.table({"passage_id": pa.array(spoken, pa.string())}),
            pa.table(mentions),
            pa.table({"entity_id": pa.array([entity_id(name) for name in self.told], pa.string())}),
        )


@st.composite
def shards(draw: st.DrawFn) -> list[Shard]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        documents = draw(st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=4))
        lengths = [length for passages in documents for length in passages]
        mentions = []
        for _ in range(draw(st.integers(0, 12)) if lengths else 0):
            passage = draw(st.integers(0, len(lengths) - 1))
            kinds = (
                ["title", "part", "date"] if not lengths[passage] else ["title", "part", "name", "subject", "number"]
            )
            kind = draw(st.sampled_from(kinds))
            inside = kind in ("name", "subject", "number")
            sentence = draw(st.integers(0, lengths[passage] - 1)) if inside else -1
            mentions.append(Said(passage, sentence, draw(st.sampled_from(NAMES)), kind))
        found.append(Shard(documents, mentions, draw(st.lists(st.sampled_from(NAMES), max_size=2))))
    return found


def snapshot_of(folder: Path, packs: Mapping[str, Pack_], entities: int | None = None) -> Snapshot:
    """A snapshot that has these packs alone; its manifest claims the tables of the rows that they have."""
    artifacts, files = [], dict[str, Path]()
    for label, arrays in packs.items():
        rows = {"documents": "document_passages", "passages": "passage_sentences", "sentences": "mentions.indptr"}
        for table, pointers in rows.items():
            count = len(arrays[pointers]) - 1
            claim = Artifact(name=f"{table}/{label}", kind="table", digest="0" * 64, bytes=1, rows=count)
            artifacts.append(claim)
        data = write_pack(None, arrays)
        digest = hashlib.sha256(data).hexdigest()
        files[digest] = folder / digest
        files[digest].write_bytes(data)
        schema: Any = dict(open_pack(files[digest]).schema)
        name = f"mention_links/{label}"
        artifacts.append(Artifact(name=name, kind="arrays", digest=digest, bytes=len(data), schema=schema))
    every = np.unique(np.concatenate([np.empty(0, np.uint64), *(pack["entity_keys"] for pack in packs.values())]))
    rows_of = len(every) if entities is None else entities
    artifacts.append(Artifact(name="entities/e0", kind="table", digest="0" * 64, bytes=1, rows=rows_of))
    manifest = Manifest(
        corpus=Corpus(fingerprint="f" * 64, documents=0, passages=0),
        artifacts=tuple(sorted(artifacts, key=lambda one: one.name)),
        lineage="0" * 64,
    )
    return Snapshot(folder, lambda one: files[one.digest], manifest, None)


def dense(matrix: Sparse, width: int) -> np.ndarray:
    """The full matrix: a link's value plus one, or one; rows ascend in columns, and no link is there twice."""
    owners = np.arange(len(matrix)).repeat(np.diff(matrix.indptr))
    places = owners * max(width, 1) + matrix.indices
    assert (np.diff(places) > 0).all()
    full = np.zeros((len(matrix), width), np.int64)
    full[owners, matrix.indices] = 1 if matrix.counts is None else matrix.counts.astype(np.int64) + 1
    return full


class Expected:
    """The full matrices of a corpus, by loops over its mentions; contents and documents plus one where linked."""

    def __init__(self, corpus: Sequence[Shard]) -> None:
        names = {one.name for shard in corpus for one in shard.mentions}
        names |= {name for shard in corpus for name in shard.told}
        self.names = sorted(names, key=entity_id)
        lengths = [length for shard in corpus for length in shard.lengths]
        begins = [0, *accumulate(lengths)]
        documents = sum(len(shard.documents) for shard in corpus)
        self.mentions = np.zeros((begins[-1], len(self.names)), np.int64)
        self.contents = np.zeros((len(lengths), len(self.names)), np.int64)
        self.documents = np.zeros((documents, len(self.names)), np.int64)
        self.sentence_passage = [row for row, length in enumerate(lengths) for _ in range(length)]
        self.passage_document: list[int] = []
        first_document = first_passage = 0
        for shard in corpus:
            self.passage_document += [owner + first_document for owner in shard.owners]
            for one in shard.mentions:
                if one.kind not in UNLINKED:
                    self._add(one, first_passage, begins, [s for s in shard.mentions if s.kind == "subject"])
            first_document += len(shard.documents)
            first_passage += len(shard.lengths)

    def _add(self, one: Said, first: int, begins: list[int], subjects: list[Said]) -> None:
        passage, entity = one.passage + first, self.names.index(one.name)
        begin, end = begins[passage], begins[passage + 1]
        marked = one.kind in ("title", "subject")
        self.contents[passage, entity] += (self.contents[passage, entity] == 0) + (
            8 if one.sentence < 0 or one.kind == "subject" else 1
        )
        document = self.passage_document[passage]
        self.documents[document, entity] = max(self.documents[document, entity], 2 if marked else 1)
        if one.kind == "subject":
            later = [s.sentence for s in subjects if s.passage == one.passage and s.sentence > one.sentence]
            self.mentions[begin + one.sentence : min([end, *(begin + s for s in later)]), entity] = 1
        elif one.sentence >= 0:
            self.mentions[begin + one.sentence, entity] = 1
        elif one.kind == "title":
            self.mentions[begin:end, entity] = 1

    def compare(self, links: MentionLinks) -> None:
        """Assert that assembled links are these."""
        width = len(self.names)
        assert links.keys.tolist() == NameIndex.keys([entity_id(name) for name in self.names]).tolist()
        mentions, mentioned_in = links.sentences()
        contents, contained_in = links.passages()
        documents, documents_of = links.documents()
        assert (dense(mentions, width) == self.mentions).all()
        assert (dense(mentioned_in, len(self.mentions)) == self.mentions.T).all()
        assert (dense(contents, width) == self.contents).all()
        assert (dense(contained_in, len(self.contents)) == self.contents.T).all()
        assert (dense(documents, width) == self.documents).all()
        assert (dense(documents_of, len(self.documents)) == (self.documents.T > 0)).all()
        assert links.strengths().tolist() == np.maximum(self.contents - 1, 0).sum(axis=0).tolist()
        assert links.sentence_passage.tolist() == self.sentence_passage
        assert links.passage_document.tolist() == self.passage_document


def labelled(corpus: Sequence[Shard]) -> dict[str, Pack_]:
    return {f"p{number}": shard.pack() for number, shard in enumerate(corpus)}


@examples(12, deep=60)
@given(shards())
def test_what_shards_hold_is_put_together_as_loops_over_all_mentions_find_it(corpus: list[Shard]) -> None:
    with quick_folder() as folder, snapshot_of(folder, labelled(corpus)) as snapshot:
        links = mention_links_of(snapshot)
        Expected(corpus).compare(links)
        held = [
            array
            for both in (links.sentences(), links.passages(), links.documents())
            for one in both
            for array in (one.indptr, one.indices)
        ]
        assert {array.dtype for array in held} == {np.dtype(np.int32)}


TOWN = Shard(
    [[2, 3], [], [1]],
    [
        Said(0, -1, "name 1", "title"),
        Said(0, 1, "name 2", "name"),
        Said(0, 1, "name 2", "name"),
        Said(1, 0, "name 3", "subject"),
        Said(1, 2, "name 4", "subject"),
        Said(1, 1, "name 2", "name"),
        Said(2, 0, "name 5", "date"),
    ],
    ["name 6"],
)
RIVER = Shard([[1]], [Said(0, 0, "name 2", "name"), Said(0, -1, "name 7", "part")])


def test_more_links_than_fit_into_32_bits_are_numbered_with_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NARROW", 3)
    with quick_folder() as folder, snapshot_of(folder, labelled([TOWN, RIVER])) as snapshot:
        links = mention_links_of(snapshot)
        assert {links.sentences()[one].indptr.dtype for one in (0, 1)} == {np.dtype(np.int64)}
        assert links.strengths().dtype == np.int64
        Expected([TOWN, RIVER]).compare(links)


def test_a_pack_is_small_and_says_nothing_of_other_shards() -> None:
    pack = TOWN.pack()
    assert {name: array.dtype.name for name, array in pack.items() if name != "entity_keys"} == dict.fromkeys(
        set(pack) - {"entity_keys"}, "uint8"
    )
    assert len(pack["entity_keys"]) == 6


def test_threads_share_what_one_of_them_puts_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    across = module._across

    def counted(*given: Any) -> Sparse:
        made.append(1)
        return across(*given)

    monkeypatch.setattr(module, "_across", counted)
    with quick_folder() as folder, snapshot_of(folder, labelled([TOWN, RIVER])) as snapshot:
        together = Barrier(8)

        def ask(_: int) -> int:
            together.wait(timeout=60)
            return id(mention_links_of(snapshot).sentences()[0].indices)

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(ask, range(8)))) == 1
    assert made == [1]


def fewer(held: np.ndarray) -> np.ndarray:
    return held[:-1]


def beyond(held: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(held)) == 1, 200, held).astype(held.dtype)


DAMAGE: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    *((name, fewer) for name in TOWN.pack() if name != "titles"),
    *((name, beyond) for name in ("mentions.indices", "contents.indices", "mentions.indptr", "contents.indptr")),
    *((name, beyond) for name in ("document_passages", "passage_sentences", "titles")),
    ("entity_keys", lambda held: held[::-1]),
    ("entity_keys", lambda held: held[[0, 0, *range(2, len(held))]]),
    ("mentions.indices", lambda held: held[[0, 2, 1, *range(3, len(held))]]),
    ("contents.indices", lambda held: held * 0),
    ("contents.counts", lambda held: held * 0),
    ("titles", lambda held: held[::-1]),
    ("mentions.indptr", lambda held: held[::-1]),
    ("mentions.indices", lambda held: held.astype(np.int16) - 9),
    ("contents.indices", lambda held: held.astype(np.float32)),
    ("contents.indptr", lambda held: held[:, None]),
]


@pytest.mark.parametrize(("array", "change"), DAMAGE)
def test_arrays_that_do_not_fit_each_other_are_refused_by_name(
    array: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    sound, damaged = TOWN.pack(), TOWN.pack()
    damaged[array] = change(damaged[array])
    with quick_folder() as folder:
        claims = snapshot_of(folder, {"p0": sound, "p1": RIVER.pack()}).manifest
        other = snapshot_of(folder, {"p0": damaged, "p1": RIVER.pack()})
        packs = {one.name: one for one in other.manifest.artifacts if one.kind == "arrays"}
        artifacts = tuple(packs.get(one.name, one) for one in claims.artifacts)
        manifest = claims.model_copy(update={"artifacts": artifacts})
        snapshot = Snapshot(folder, lambda one: folder / one.digest, manifest, None)
        assert open_pack(folder / packs["mention_links/p0"].digest)
        with pytest.raises(CorruptBlob, match="mention_links/p0"):
            mention_links_of(snapshot)


@pytest.mark.parametrize("array", sorted(TOWN.pack()))
def test_a_pack_without_an_array_is_refused_by_name(tmp_path: Path, array: str) -> None:
    writer = writer_of(tmp_path)
    writer.tri_graph()
    changed("mention_links/p0", array, None)(writer)
    writer.publish()
    with indexmill.open(tmp_path) as snapshot, pytest.raises(CorruptBlob, match=f"mention_links/p0.*{array}"):
        snapshot.retrieve("Ada Venn", method="tri_graph")


def test_shards_that_do_not_fit_the_other_artifacts_are_refused(tmp_path: Path) -> None:
    packs = labelled([TOWN, RIVER])
    with snapshot_of(tmp_path, packs, entities=9) as snapshot, pytest.raises(CorruptBlob, match="expected 9"):
        mention_links_of(snapshot)
    with snapshot_of(tmp_path, packs) as snapshot:
        some = tuple(one for one in snapshot.manifest.artifacts if one.name != "mention_links/p1")
        less = snapshot.manifest.model_copy(update={"artifacts": some})
        fewer_shards = Snapshot(tmp_path, lambda one: tmp_path / one.digest, less, None)
        with pytest.raises(CorruptBlob, match="not in the same shards"):
            mention_links_of(fewer_shards)
