"""The links from sentences, passages and documents to entities: bytes, and what putting them together costs a reader.

    python -m benchmarks.mention_links [--shards 256 --sentences 2200000 ...] [--times 5]
    python -m benchmarks.mention_links --store STORE [--times 5]

Without a store, shards of the given size are generated, entities by a power law, each shard half of its own; with one,
the shards of its newest version are put together. Links are asked for in the order in which the methods do: those of
tri_graph first, then what zoom_graph needs besides. Seconds are those of the fastest time. `held` are the bytes of the
arrays, `resident` is the growth of the process's own memory. A night of n documents, each in any shard, rewrites the
shards that it touches.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import indexmill
from benchmarks.machine import Stopwatch, argument_parser, describe_machine
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.mention_links import MENTION_LINKS, MentionLinks, mention_links_of
from indexmill.snapshot import Snapshot
from indexmill.store.listing import Artifact
from indexmill.store.manifest import Corpus, Manifest
from indexmill.store.pack_schema import smallest
from indexmill.store.packs import write_pack
from indexmill.store.reader import StoreReader
from storage.folder import FolderStore, init_folder
from storage.lineage import Lineage
from storage.lineage import put as put_lineage
from storage.publish import describe

_TABLE = "0" * 64
"""The digest of tables that nothing reads."""


class Size(NamedTuple):
    """The rows of a generated corpus, and its links: of sentences and of passages."""

    shards: int
    documents: int
    passages: int
    sentences: int
    entities: int
    sentence_links: int
    passage_links: int


def generated(size: Size) -> Iterator[dict[str, NDArray[Any]]]:
    """The packs of a corpus of about this size, shard by shard."""
    chance = np.random.default_rng(7)
    keys = np.unique(chance.integers(0, 1 << 63, size.entities, dtype=np.uint64))
    own = len(keys) // size.shards  # that no other shard mentions, half of what most shards mention
    common = chance.permutation(len(keys))
    weights = 1.0 / (np.arange(len(keys)) + 10.0)
    weights /= weights.sum()
    documents, passages, sentences = (number // size.shards for number in size[1:4])
    for shard in range(size.shards):
        drawn = np.concatenate([chance.choice(common, own, p=weights), common[shard * own : (shard + 1) * own]])
        if shard == size.shards - 1:
            drawn = np.concatenate([drawn, common[size.shards * own :]])
        rows = np.unique(drawn)
        yield _pack(keys[rows], chance, documents, passages, sentences, size)


def _pack(
    keys: NDArray[np.uint64], chance: np.random.Generator, documents: int, passages: int, sentences: int, size: Size
) -> dict[str, NDArray[Any]]:
    """A shard: the entities of a document are a few, which its passages mention again and again."""
    width = len(keys)
    links = round(size.passage_links / size.shards * 1.1)  # some are drawn twice
    pools = (width * chance.random((documents, round(links / documents * 0.65))) ** 1.5).astype(np.int64)
    owners = np.linspace(0, passages, documents + 1).astype(np.int64)
    passage = np.sort(chance.integers(0, passages, links))
    document = np.searchsorted(owners, passage, side="right") - 1
    entity = pools[document, chance.integers(0, pools.shape[1], links)]
    passage, entity = np.divmod(np.unique(passage * width + entity), width)
    bounds = np.searchsorted(passage, np.arange(passages + 1))
    spoken = np.sort(chance.integers(0, passages, sentences))
    held = np.diff(bounds)[spoken]
    sentence = np.arange(sentences).repeat(3)[: round(size.sentence_links / size.shards * 1.16)]
    at = bounds[spoken[sentence]] + (chance.random(len(sentence)) * held[sentence]).astype(np.int64)
    some = held[sentence] > 0
    sentence, mentioned = np.divmod(np.unique(sentence[some] * width + entity[at[some]]), width)
    arrays: dict[str, NDArray[Any]] = {
        "document_passages": owners,
        "passage_sentences": np.searchsorted(spoken, np.arange(passages + 1)),
        "mentions.indptr": np.searchsorted(sentence, np.arange(sentences + 1)),
        "mentions.indices": mentioned,
        "contents.indptr": bounds,
        "contents.indices": entity,
        "contents.counts": chance.choice([1, 1, 1, 2, 3, 8, 9], len(entity)),
        "titles": bounds[:-1][np.diff(bounds) > 0],
    }
    return {"entity_keys": keys, **{name: smallest(array) for name, array in arrays.items()}}


def _written(folder: Path, size: Size) -> tuple[FolderStore, Manifest]:
    """A store of generated packs, whose tables are only claimed."""
    store = init_folder(folder)
    artifacts, keys = [], []
    for number, arrays in enumerate(generated(size)):
        label = f"s{number:08b}"
        rows = {"documents": "document_passages", "passages": "passage_sentences", "sentences": "mentions.indptr"}
        for table, pointers in rows.items():
            claimed = {"kind": "table", "digest": _TABLE, "bytes": 1, "rows": len(arrays[pointers]) - 1}
            artifacts.append(Artifact.model_validate({"name": f"{table}/{label}", **claimed}))
        artifacts.append(
            describe(store, f"{MENTION_LINKS}/{label}", "arrays", store.put_blob(write_pack(None, arrays)))
        )
        keys.append(arrays["entity_keys"])
    entities = len(np.unique(np.concatenate(keys)))
    artifacts.append(Artifact(name="entities/e0", kind="table", digest=_TABLE, bytes=1, rows=entities))
    return store, Manifest(
        corpus=Corpus(fingerprint="f" * 64, documents=size.documents, passages=size.passages),
        artifacts=tuple(sorted(artifacts, key=lambda one: one.name)),
        lineage=put_lineage(store, Lineage()),
        families={},
    )


def _own_memory() -> int:
    """The bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) << 10


def _bytes_of(found: object) -> int:
    if isinstance(found, np.ndarray):
        return found.nbytes
    if isinstance(found, Sparse):
        return sum(array.nbytes for array in (found.indptr, found.indices, found.counts) if array is not None)
    if isinstance(found, tuple):
        return sum(map(_bytes_of, found))
    return 0


class Step(NamedTuple):
    """What a step took: seconds by the clock and of the processor, and bytes of arrays and of own memory after it."""

    name: str
    wall: float
    processor: float
    held: int
    resident: int


def _steps(snapshot: Snapshot) -> list[Step]:
    """What each step of putting a snapshot's links together takes."""
    steps: list[tuple[str, Callable[[MentionLinks], object]]] = [
        ("sentences x entities, both ways", MentionLinks.sentences),
        ("passages x entities, both ways", MentionLinks.passages),
        ("occurrences of entities", MentionLinks.strengths),
        ("passage of each sentence", MentionLinks.sentence_passage),
        ("documents x entities, both ways", MentionLinks.documents),
        ("document of each passage", MentionLinks.passage_document),
    ]
    gc.collect()
    before, kept, found = _own_memory(), list[Any](), list[Step]()

    def step(name: str, make: Callable[[], object]) -> Any:
        watch = Stopwatch()
        made = make()
        wall, processor = watch.wall, watch.cpu
        kept.append(made)
        held = _bytes_of(made.keys) if isinstance(made, MentionLinks) else _bytes_of(made)
        found.append(Step(name, wall, processor, held, _own_memory() - before))
        return made

    shards = snapshot.shards(MENTION_LINKS)
    step("packs mapped, checked", lambda: [snapshot.arrays(one.name) for one in shards])
    links = step("entities of all shards", lambda: mention_links_of(snapshot))
    for name, make in steps:
        step(name, partial(make, links))
    return found


def _measure(opened: Callable[[], Snapshot], times: int) -> None:
    """Print what each step takes: of several times the fastest, and the memory of the first."""
    with opened() as snapshot:
        runs = [_steps(snapshot)]
        links = mention_links_of(snapshot)
        matrices = {"sentences": links.sentences(), "passages": links.passages(), "documents": links.documents()}
        linked = ", ".join(f"{len(across.indices):,} of {name}" for name, (across, _) in matrices.items())
        print(f"{len(links.keys):,} entities; links: {linked}")
    for _ in range(times - 1):
        with opened() as snapshot:
            runs.append(_steps(snapshot))
    print(f"{'':34} {'wall':>8} {'processor':>9} {'held':>9} {'resident':>9}")
    every = [
        Step(name, min(wall), min(processor), held[0], resident[0])
        for (name, *_), wall, processor, held, resident in (zip(*one, strict=True) for one in zip(*runs, strict=True))
    ]
    walls, processors, held = (sum(column) for column in list(zip(*every, strict=True))[1:4])
    for name, wall, processor, its, resident in (*every, Step("together", walls, processors, held, every[-1].resident)):
        print(f"{name:34} {wall:6.3f} s {processor:7.3f} s {its / 1e6:6.1f} MB {resident / 1e6:6.1f} MB")


def _sizes(snapshot: Snapshot) -> None:
    """Print the bytes of the packs, and those that nights rewrite."""
    shards = [one.bytes for one in snapshot.shards(MENTION_LINKS)]
    count, whole = max(len(shards), 1), sum(shards)
    print(f"{len(shards)} packs, {whole / 1e6:.1f} MB; {whole / count / 1e3:.0f} kB each on average")
    for documents in (1, 4, 28):
        touched = count * (1 - (1 - 1 / count) ** documents)
        print(f"a night of {documents} documents: {touched:.1f} packs, {touched * whole / count / 1e6:.2f} MB")


def _rewritten(store: Path, snapshot: Snapshot) -> None:
    """Print the bytes of the newest version that the one before it lacks."""
    before = snapshot.ref.parent if snapshot.ref else None
    if before is None:
        return
    with indexmill.open(store, before) as parent:
        known = {one.digest for one in parent.manifest.artifacts}
    new = [one.bytes for one in snapshot.shards(MENTION_LINKS) if one.digest not in known]
    print(f"new since version {before}: {len(new)} packs, {sum(new) / 1e6:.2f} MB")


def main() -> None:
    """Generate or open shards, and measure."""
    parser = argument_parser(__doc__)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--times", type=int, default=5)
    for name, default in Size(256, 48_213, 381_320, 2_200_000, 700_000, 4_400_000, 3_000_000)._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    options = vars(parser.parse_args())
    print(describe_machine())
    store, times = options.pop("store"), options.pop("times")
    if store is not None:
        with indexmill.open(store) as snapshot:
            _sizes(snapshot)
            _rewritten(store, snapshot)
        _measure(lambda: indexmill.open(store), times)
        return
    with tempfile.TemporaryDirectory() as folder:
        written, manifest = _written(Path(folder) / "store", Size(**options))
        reader = StoreReader(written.root)
        opened = partial(Snapshot, written.root, lambda one: reader.blob(one.digest, one.bytes), manifest, None)
        with opened() as snapshot:
            _sizes(snapshot)
        _measure(opened, times)


if __name__ == "__main__":
    main()
