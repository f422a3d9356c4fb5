"""lsh_tree without its language model: time and memory of a tree, its bytes, and the bytes that a night writes.

    python -m benchmarks.lsh_scale [--passages 10000,100000,381320] [--documents 4,28] [--quick]

Vectors of 384 dimensions are drawn around those of subjects and of documents of eight passages; a summary is some words
drawn by its id, and stands in for the model's, and its vector is as large as one. Each size runs in a process of its
own, whose peak resident memory is printed. Timed are the codes of all passages, which a night makes for the shards with
changed documents alone, and the rest, which it does for all: segments and node ids of all layers, and their packs.

A night gives some documents other passages near the former. Printed are the bytes of what the pipeline and readers
keep, and of the blobs that the night writes: codes by shard, segments, summaries and their vectors by block, and the
tree. The manifest's and the lineage's lines of a blob are not among them.

--quick takes 2,000 and 20,000 passages: seconds.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import Stopwatch, argument_parser, describe_machine, peak_memory
from indexmill.store.packs import write_pack
from storage.tables import table_bytes
from tasks.core.groups import Ids, hex_ids
from tasks.families.lsh_tree.blocks import groups_of, most_of
from tasks.families.lsh_tree.hierarchy import Bounds, Layer, Nodes, layer_over
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segments import packs_of
from tasks.families.lsh_tree.tables import LSH_SUMMARIES

DIMENSION = 384
BOUNDS = Bounds(smallest=6, largest=12, layers=5)
GROUP = 512
OF_DOCUMENT = 8
OF_SHARD = 1500
SUBJECTS = 500
WORDS = [
    f"{first}{last}" for first in ("ser", "con", "ver", "port") for last in ("vice", "figure", "sion", "able", "al")
]

Blobs = dict[str, tuple[bytes, int]]
"""By name, a digest of what determines a blob, and its bytes."""


@dataclass(frozen=True)
class Corpus:
    """changed: the documents with other passages than they had. rows: of these, in the order of documents."""

    passages: int
    changed: frozenset[int] = frozenset()

    def vectors(self) -> Iterator[np.ndarray]:
        """The vectors of the passages of each shard, of length one."""
        subjects = np.random.default_rng(0).standard_normal((SUBJECTS, DIMENSION))
        for first in range(0, self.passages, OF_SHARD):
            rows = np.arange(first, min(first + OF_SHARD, self.passages))
            of = rows // OF_DOCUMENT
            drawn = np.random.default_rng(first)
            centres = 0.7 * drawn.standard_normal((OF_SHARD // OF_DOCUMENT + 2, DIMENSION))
            found = subjects[of % SUBJECTS] + centres[of - of[0]] + 0.6 * drawn.standard_normal((len(rows), DIMENSION))
            moved = np.isin(of, list(self.changed))
            found[moved] += 0.2 * np.random.default_rng(first + 1).standard_normal((int(moved.sum()), DIMENSION))
            yield (found / np.linalg.norm(found, axis=1)[:, None]).astype(np.float32)

    def nodes(self, codes: np.ndarray) -> Nodes:
        """The passages; changed ones have other ids and texts."""
        names = [f"{row} {row // OF_DOCUMENT in self.changed}" for row in range(self.passages)]
        return Nodes(hashed("id", names), hashed("text", names), codes)


def hashed(kind: str, names: list[str]) -> Ids:
    digests = (hashlib.sha256(f"{kind} {name}".encode()).digest()[:16] for name in names)
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)


def layers_over(
    passages: Nodes, summarise: Callable[[Layer], Ids], bounds: Bounds, fingerprint: str = "mean"
) -> list[Layer]:
    """All layers, from the one over the passages up; `summarise` returns the digests of a layer's summaries."""
    layers: list[Layer] = []
    nodes = passages
    while bounds.want_another(len(layers), len(nodes.ids)):
        layer = layer_over(len(layers) + 1, nodes, bounds, fingerprint)
        layers.append(layer)
        nodes = Nodes(layer.ids, summarise(layer), layer.codes)
    return layers


def packs(layers: list[Layer]) -> list[dict[str, bytes]]:
    """The packs of each layer's blocks."""
    found = []
    for layer in layers:
        made = packs_of(layer, np.zeros(len(layer.below.codes), np.uint64), GROUP)
        found.append({name.partition("/")[2]: write_pack(None, arrays) for name, arrays in made.items()})
    return found


def blobs(nodes: Nodes, layers: list[Layer], packed: list[dict[str, bytes]]) -> Blobs:
    """What a version keeps of lsh_tree."""
    found: Blobs = {}
    for first in range(0, len(nodes.ids), OF_SHARD):
        rows = slice(first, first + OF_SHARD)
        pack = write_pack(None, {"codes": nodes.codes[rows], "digests": nodes.digests[rows]})
        found[f"codes/{first}"] = sha(pack), len(pack)
    for layer, blocks in zip(layers, packed, strict=True):
        held = held_ids(layer)
        for label, pack in blocks.items():
            ids = held[label]
            found[f"segments/{label}"] = sha(pack), len(pack)
            found[f"summaries/{label}"] = sha(pack), len(table_bytes(summaries(layer.number, ids), LSH_SUMMARIES))
            vectors = {
                "keys": zeros(ids, 32, "u1"),
                "text_keys": zeros(ids, 16, "u1"),
                "vectors": zeros(ids, DIMENSION, "f2"),
            }
            found[f"summary_vectors/{label}"] = sha(pack), len(write_pack(None, vectors))
        for group, labels in groups_of(list(blocks), GROUP // most_of(layer.number, GROUP)).items():
            rows = sum(len(held[label]) for label in labels)
            found[f"written/{group}"] = sha(b"".join(blocks[label] for label in labels)), 17 * rows + 320
    children = sum(len(layer.below.ids) for layer in layers)
    width = np.min_scalar_type(max((len(layer.ids) for layer in layers), default=1) - 1).itemsize
    whole = sha(b"".join(layer.ids.tobytes() for layer in layers))
    found["tree"] = whole, children * width + sum(len(layer.ids) for layer in layers) + 128 * DIMENSION + 700
    return found


def held_ids(layer: Layer) -> dict[str, Ids]:
    """The ids in each block of a layer."""
    made = packs_of(layer, np.zeros(len(layer.below.codes), np.uint64), GROUP)
    return {name.partition("/")[2]: arrays["ids"] for name, arrays in made.items()}


def zeros(ids: Ids, width: int, kind: str) -> np.ndarray:
    return np.zeros((len(ids), width), kind)


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def summaries(layer: int, ids: Ids) -> pa.Table:
    """Texts of about four hundred characters."""
    texts = [" ".join(WORDS[byte % len(WORDS)] for byte in hashlib.shake_256(one.tobytes()).digest(55)) for one in ids]
    return pa.table(
        {
            "node_id": hex_ids(ids),
            "layer": pa.array([layer] * len(ids), pa.int32()),
            "text": texts,
            "tokens": pa.array([len(text) // 4 for text in texts], pa.int32()),
            "digest": [sha(text.encode()).hex()[:32] for text in texts],
            "stand_in": [False] * len(ids),
        }
    )


def by_kind(found: Blobs) -> dict[str, tuple[int, int]]:
    """The number of blobs and the bytes of each kind."""
    kinds: dict[str, tuple[int, int]] = {}
    for name, (_, size) in found.items():
        number, total = kinds.get(name.partition("/")[0], (0, 0))
        kinds[name.partition("/")[0]] = number + 1, total + size
    return kinds


def measure(passages: int, documents: list[int], queue: Any) -> None:
    corpus, planes = Corpus(passages), Hyperplanes(0, DIMENSION)
    of_shards, of_codes = [], 0.0
    for shard in corpus.vectors():
        clock = Stopwatch()
        of_shards.append(planes.codes(shard))
        of_codes += clock.cpu
    nodes = corpus.nodes(np.concatenate(of_shards))
    before, clock = peak_memory(), Stopwatch()
    layers = layers_over(nodes, lambda layer: layer.ids, BOUNDS)
    packed = packs(layers)
    of_layers, peak = clock.cpu, peak_memory()
    sizes = np.concatenate([np.diff(layer.segments.offsets) for layer in layers])
    assert sizes.min() >= BOUNDS.smallest
    assert sizes.max() <= BOUNDS.largest
    kept = blobs(nodes, layers, packed)
    nights = []
    for count in documents:
        chosen = np.random.default_rng(count).choice(passages // OF_DOCUMENT, count, replace=False)
        night = replace(corpus, changed=frozenset(chosen.tolist()))
        changed = np.concatenate([planes.codes(shard) for shard in night.vectors()])
        after = layers_over(night.nodes(changed), lambda layer: layer.ids, BOUNDS)
        made = blobs(night.nodes(changed), after, packs(after))
        there = {(name.partition("/")[0], digest) for name, (digest, _) in kept.items()}
        new = {name: one for name, one in made.items() if (name.partition("/")[0], one[0]) not in there}
        nights.append((count, by_kind(new)))
    queue.put((of_codes, of_layers, before, peak, [len(layer.ids) for layer in layers], by_kind(kept), nights))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--passages", default="10000,100000,381320")
    parser.add_argument("--documents", default="4,28")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    sizes = [2000, 20_000] if chosen.quick else [int(rows) for rows in chosen.passages.split(",")]
    documents = [int(count) for count in chosen.documents.split(",")]
    print(describe_machine())
    context = multiprocessing.get_context("spawn")
    for passages in sizes:
        queue = context.Queue()
        process = context.Process(target=measure, args=(passages, documents, queue))
        process.start()
        of_codes, of_layers, before, peak, layers, kept, nights = queue.get()
        process.join()
        print(f"\n{passages:,} passages, summaries per layer {layers}")
        print(f"codes {of_codes:.2f} s, the rest {of_layers:.2f} s of processor time")
        print(f"peak {peak:.2f} GiB, {before:.2f} before the rest")
        columns = [("kept", kept), *((f"{count} documents", made) for count, made in nights)]
        print(f"{'':20}" + "".join(f"{name:>24}" for name, _ in columns))
        for kind in kept:
            cells = [of.get(kind, (0, 0)) for _, of in columns]
            print(f"{kind:20}" + "".join(f"{number:10,} {size / 1e6:10.2f} MB" for number, size in cells))
        totals = [(sum(n for n, _ in of.values()), sum(size for _, size in of.values())) for _, of in columns]
        print(f"{'all':20}" + "".join(f"{number:10,} {size / 1e6:10.2f} MB" for number, size in totals), flush=True)


if __name__ == "__main__":
    main()
