"""C-HNSW beside exact search and one FAISS HNSW per level: recall, vectors compared, time, and what building takes.

    python -m benchmarks.chnsw [STORE ...] [--rows 1000,10000,100000,1000000] [--ef 64] [--faiss 100000] [--quick]

Each case runs in a process of its own, one thread each, whose peak resident memory is printed:

- `tree`: vectors of 384 dimensions around the leaves of a random tree, ten children each, in which a child has cosine
  0.7 with its parent; upper levels are means of children; questions have cosine 0.8 with a vector of theirs;
- `names`: the vectors of the entities' names of the stores, as many as there are, less 300 that are the questions;
  upper levels are means of those nearest to one of a tenth of them, and so on;
- `random`: no structure at all, the hardest case for any graph, upper levels as of names; up to 10,000 rows.

`compared` counts inner products per question, over all levels. FAISS takes the same M and ef (efConstruction 80) and up
to FAISS rows; flat search is FAISS's, too. Times are CPU milliseconds per question for all levels, alone and in batches
of 64. --quick takes up to 10,000 rows: seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import indexmill
from benchmarks.machine import describe_machine
from indexmill.retrieve.chnsw import Beam
from indexmill.retrieve.grid import on_grid
from tasks.chnsw import ChnswSettings, Level, build_chnsw
from tasks.neighbours import Lists, ListSettings

DIMENSION = 384
SMALLEST = 10  # nodes of the top level
ASKED = 300
K = 5
BATCH = 64


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None]).astype(np.float32)


def noise(draw: np.random.Generator, rows: int, dimension: int = DIMENSION) -> np.ndarray:
    return unit(draw.standard_normal((rows, dimension), dtype=np.float32))


def named(vectors: list[np.ndarray]) -> list[Level]:
    return [Level([f"{row:08x}" for row in range(len(level))], level) for level in vectors]


def means(vectors: np.ndarray, groups: np.ndarray) -> np.ndarray:
    order = np.argsort(groups, kind="stable")
    first = np.flatnonzero(np.diff(groups[order], prepend=-1))
    return unit(np.add.reduceat(vectors[order], first, axis=0))


def tree(rows: int) -> tuple[list[Level], np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = [rows]
    while sizes[-1] > SMALLEST:
        sizes.append(max(SMALLEST, sizes[-1] // 10))
    level, parents = noise(draw, sizes[-1]), []
    for size in sizes[-2::-1]:
        parents.append(draw.integers(0, len(level), size))
        children = np.empty((size, DIMENSION), dtype=np.float32)
        for low in range(0, size, 8192):
            mine = parents[-1][low : low + 8192]
            children[low : low + 8192] = unit(level[mine] + noise(draw, len(mine)))
        level = children
    levels, held = [level], np.arange(rows)
    for groups in reversed(parents):
        held, numbers = np.unique(groups[held], return_inverse=True)  # a parent without children has no mean
        levels.append(means(levels[-1], numbers))
    chosen = level[draw.integers(0, rows, ASKED)]
    return named(levels), unit(chosen + 0.75 * noise(draw, ASKED))


def grouped(vectors: np.ndarray) -> list[Level]:
    draw = np.random.default_rng(0)
    levels = [vectors]
    while len(levels[-1]) > 10 * SMALLEST:
        held = on_grid(levels[-1])
        centres = held[draw.permutation(len(held))[: len(held) // 10]]
        lists = Lists(centres, np.arange(len(centres)), ListSettings(exact=len(centres)))
        levels.append(means(levels[-1], lists.nearest(held, 1).rows[:, 0].astype(np.int64)))
    return named(levels)


def names(argument: tuple[list[str], int]) -> tuple[list[Level], np.ndarray]:
    stores, rows = argument
    found = []
    for store in stores:
        with indexmill.open(store) as snapshot:
            found += [np.asarray(vectors, dtype=np.float32) for vectors in snapshot.vectors("names", "vectors")]
    vectors = np.unique(np.concatenate(found), axis=0)
    order = np.random.default_rng(0).permutation(len(vectors))
    return grouped(vectors[np.sort(order[ASKED:][:rows])]), vectors[order[:ASKED]]


def random(rows: int) -> tuple[list[Level], np.ndarray]:
    draw = np.random.default_rng(0)
    return grouped(noise(draw, rows)), noise(draw, ASKED)


def milliseconds(search: Callable[[np.ndarray], Any], questions: np.ndarray, size: int) -> float:
    asked = questions if size > 1 else questions[: ASKED // 3]
    search(asked[:size])
    began = time.process_time()
    for first in range(0, len(asked), size):
        search(asked[first : first + size])
    return 1000 * (time.process_time() - began) / len(asked)


def shared(found: np.ndarray, true: np.ndarray) -> float:
    pairs = zip(found.tolist(), true.tolist(), strict=True)
    return float(np.mean([len(set(one) & set(other)) / len(other) for one, other in pairs]))


def measure(kind: str, argument: Any, ef: int, most: int) -> None:
    levels, questions = {"tree": tree, "names": names, "random": random}[kind](argument)
    setting, beam = ChnswSettings(), Beam(ef=ef)
    sizes = [len(level.ids) for level in levels]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began, wall = time.process_time(), time.perf_counter()
    index = build_chnsw(levels, setting).index
    spent, waited = time.process_time() - began, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = sum(array.nbytes for array in index.arrays().values()) / 2**20
    print(f"\n{kind}, levels of {', '.join(f'{nodes:,}' for nodes in sizes)}")
    print(f"  built in {spent:.1f} s CPU, {waited:.1f} s; peak {peak:.2f} GiB ({before:.2f} before);", end=" ")
    print(f"{size:.1f} MiB, {np.diff(index.indptr).mean():.1f} links a node")
    print(
        f"  {'':14}{'compared':>10}{'ms alone':>10}{'in batch':>10}{'build s':>10}   recall@{K} per level", flush=True
    )

    import faiss

    faiss.omp_set_num_threads(1)
    asked = on_grid(questions)
    flat, true = [], []
    for number in range(len(sizes)):
        flat.append(faiss.IndexFlatIP(index.vectors.shape[1]))
        rows = index.level(number)
        for low in range(rows.start, rows.stop, 65_536):
            flat[-1].add(index.vectors[low : min(low + 65_536, rows.stop)].astype(np.float32))
        true.append(flat[-1].search(asked, min(K, sizes[number]))[1] + rows.start)

    def line(name: str, compared: float, search: Callable[[np.ndarray], Any], built: str, recalls: list[float]) -> None:
        alone, batch = (milliseconds(search, questions, size) for size in (1, BATCH))
        recall = " ".join(f"{value:.3f}" for value in recalls)
        print(f"  {name:14}{compared:10,.0f}{alone:10.2f}{batch:10.2f}{built:>10}   {recall}", flush=True)

    hits = index.search(questions, K, beam)
    recalls = [shared(level.rows[:, : exact.shape[1]], exact) for level, exact in zip(hits, true, strict=True)]
    compared = sum(float(level.compared.mean()) for level in hits)
    line("C-HNSW", compared, lambda some: index.search(some, K, beam), f"{spent:.1f}", recalls)
    if sizes[0] <= most:
        began = time.process_time()
        graphs = []
        for number in range(len(sizes)):
            graphs.append(faiss.IndexHNSWFlat(index.vectors.shape[1], setting.links.least, faiss.METRIC_INNER_PRODUCT))
            graphs[-1].hnsw.efConstruction = 80
            graphs[-1].hnsw.efSearch = ef
            graphs[-1].add(index.vectors[index.level(number)].astype(np.float32))
        built = time.process_time() - began
        faiss.cvar.hnsw_stats.reset()
        found = [graph.search(asked, exact.shape[1])[1] for graph, exact in zip(graphs, true, strict=True)]
        compared = faiss.cvar.hnsw_stats.ndis / len(asked)
        recalls = [
            shared(rows + index.level_offsets[number], exact)
            for number, (rows, exact) in enumerate(zip(found, true, strict=True))
        ]
        line("FAISS HNSW", compared, lambda some: [g.search(on_grid(some), K) for g in graphs], f"{built:.1f}", recalls)
    line("flat", sum(sizes), lambda some: [one.search(on_grid(some), K) for one in flat], "", [1.0] * len(sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--rows", default="1000,10000,100000,1000000")
    parser.add_argument("--ef", type=int, default=Beam().ef)
    parser.add_argument("--faiss", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    sizes = [1000, 10_000] if chosen.quick else [int(rows) for rows in chosen.rows.split(",")]
    cases: list[tuple[str, Any]] = [("tree", rows) for rows in sizes]
    cases += [("names", (chosen.stores, rows)) for rows in sizes if chosen.stores]
    cases += [("random", rows) for rows in sizes if rows <= 10_000]
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # the children's
    print(describe_machine(), flush=True)
    context = multiprocessing.get_context("spawn")
    for kind, argument in cases:
        process = context.Process(target=measure, args=(kind, argument, chosen.ef, chosen.faiss))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
