"""Compare C-HNSW with exact search and one FAISS HNSW per level: recall, vectors compared, query and build time.

    python -m benchmarks.chnsw [STORE ...] [--rows 1000,10000,100000,1000000] [--dimension 384] [--ef 64]
                               [--faiss 1000000] [--quick]

Each case runs in its own single-threaded process, whose peak resident memory is printed:

- `tree`: vectors around the leaves of a random tree with twenty children per node. A child has cosine 0.7 with its
  parent; upper levels are means of children; each question has cosine 0.8 with one of the vectors;
- `names`: the entity name vectors of the stores, except 300 that serve as questions. Each upper level clusters the one
  below around a twentieth of its vectors and takes the means;
- `random`: no structure at all, the hardest case for any graph; upper levels as in `names`; up to 10,000 rows.

`compared` counts inner products per question over all levels, `below` those of level 0. C-HNSW is searched with its
default, which scans levels of up to 1,024 nodes, and as `walked`, which scans only levels smaller than the beam. At the
end the counts are fitted as a + b log10 n and as a power of n, with n nodes in level 0. FAISS uses the same M and ef
(efConstruction 80), for up to FAISS rows; flat search is FAISS's, too. Query times are CPU milliseconds per question
over all levels, alone and in batches of 64; build times are CPU and wall seconds, by steps from 100,000 rows on.
--quick takes 1,000 to 30,000 rows of 64 dimensions: a minute.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from scipy import sparse

import indexmill
from benchmarks.machine import Stopwatch, argument_parser, describe_machine, peak_memory
from indexmill.families.community_tree.chnsw import Beam, Chnsw
from indexmill.retrieve.directions import unit_vectors
from indexmill.retrieve.grid import on_grid
from tasks.core.neighbours import nearest_of_all
from tasks.families.community_tree.chnsw import ChnswSettings, Level, build_chnsw

SMALLEST = 10  # nodes of the top level
CHILDREN = 20
QUESTIONS = 300
K = 5
BATCH = 64


@dataclass(frozen=True)
class Case:
    """A data set: its maximum of rows, and the dimension of random vectors or the stores whose names are used."""

    kind: str
    rows: int
    dimension: int
    stores: tuple[str, ...] = ()


Compared = dict[str, float]
"""Vectors compared per question, by the label of the fit."""


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None], dtype=np.float32)


def noise(draw: np.random.Generator, rows: int, dimension: int) -> np.ndarray:
    return unit(draw.standard_normal((rows, dimension), dtype=np.float32))


def named(vectors: list[np.ndarray]) -> list[Level]:
    return [Level([f"{row:08x}" for row in range(len(level))], level) for level in vectors]


def means(vectors: np.ndarray, groups: np.ndarray) -> np.ndarray:
    membership = sparse.csr_array((np.ones(len(groups), dtype=np.float32), (groups, np.arange(len(groups)))))
    sums: np.ndarray = membership[np.diff(membership.indptr) > 0] @ vectors
    return unit(sums)


def tree(case: Case) -> tuple[list[Level], np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = [case.rows]
    while sizes[-1] > CHILDREN:
        sizes.append(max(SMALLEST, sizes[-1] // CHILDREN))
    level, parents = noise(draw, sizes[-1], case.dimension), []
    for size in sizes[-2::-1]:
        parents.append(draw.integers(0, len(level), size))
        children = np.empty((size, case.dimension), dtype=np.float32)
        for low in range(0, size, 8192):
            mine = parents[-1][low : low + 8192]
            children[low : low + 8192] = unit(level[mine] + noise(draw, len(mine), case.dimension))
        level = children
    levels, nodes = [level], np.arange(case.rows)
    for groups in reversed(parents):
        nodes, numbers = np.unique(groups[nodes], return_inverse=True)  # a parent without children has no mean
        levels.append(means(levels[-1], numbers))
    chosen = level[draw.integers(0, case.rows, QUESTIONS)]
    return named(levels), unit(chosen + 0.75 * noise(draw, QUESTIONS, case.dimension))


def grouped(vectors: np.ndarray) -> list[Level]:
    draw = np.random.default_rng(0)
    levels = [vectors]
    while len(levels[-1]) > CHILDREN * SMALLEST:
        grid_vectors = on_grid(levels[-1])
        centres = grid_vectors[draw.permutation(len(grid_vectors))[: len(grid_vectors) // CHILDREN]]
        levels.append(means(levels[-1], nearest_of_all(grid_vectors, centres).astype(np.int64)))
    return named(levels)


def names(case: Case) -> tuple[list[Level], np.ndarray]:
    packs: list[np.ndarray] = []
    for store in case.stores:
        with indexmill.open(store) as snapshot:
            packs += map(unit_vectors, snapshot.vectors("names", "vectors"))
    vectors = np.unique(np.concatenate(packs), axis=0)
    order = np.random.default_rng(0).permutation(len(vectors))
    return grouped(vectors[np.sort(order[QUESTIONS:][: case.rows])]), vectors[order[:QUESTIONS]]


def random(case: Case) -> tuple[list[Level], np.ndarray]:
    draw = np.random.default_rng(0)
    return grouped(noise(draw, case.rows, case.dimension)), noise(draw, QUESTIONS, case.dimension)


def milliseconds(search: Callable[[np.ndarray], Any], questions: np.ndarray, size: int) -> float:
    sample = questions if size > 1 else questions[: QUESTIONS // 3]
    search(sample[:size])
    began = time.process_time()
    for first in range(0, len(sample), size):
        search(sample[first : first + size])
    return 1000 * (time.process_time() - began) / len(sample)


def shared(retrieved: np.ndarray, true: np.ndarray) -> float:
    pairs = zip(retrieved.tolist(), true.tolist(), strict=True)
    return float(np.mean([len(set(rows) & set(exact)) / len(exact) for rows, exact in pairs]))


class Table:
    """The printed rows of one case: each search for the K nearest of every level, with its recall and cost."""

    def __init__(self, index: Chnsw, questions: np.ndarray) -> None:
        self.index = index
        self.questions = questions
        self.sizes = np.diff(index.level_offsets).tolist()
        self.true: list[np.ndarray] = []
        self.fitted: Compared = {}
        print(f"  {'':14}{'compared':>10}{'below':>10}{'ms alone':>10}{'in batch':>10}{'build s':>10}", end="")
        print(f"   recall@{K} per level", flush=True)

    def vectors(self, number: int) -> Iterator[np.ndarray]:
        rows = self.index.level(number)
        for low in range(rows.start, rows.stop, 65_536):
            yield self.index.vectors[low : min(low + 65_536, rows.stop)].astype(np.float32)

    def flat(self) -> None:
        faiss.omp_set_num_threads(1)
        indexes = []
        for number, size in enumerate(self.sizes):
            indexes.append(faiss.IndexFlatIP(self.questions.shape[1]))
            for block in self.vectors(number):
                indexes[-1].add(block)
            neighbours = indexes[-1].search(on_grid(self.questions), min(K, size))[1]
            self.true.append(neighbours + self.index.level_offsets[number])
        self._line(
            "flat", self.sizes, lambda block: [index.search(on_grid(block), K) for index in indexes], "", self.true
        )

    def ours(self, name: str, beam: Beam, spent: float) -> None:
        hits = self.index.search(self.questions, K, beam)
        compared = [float(level.compared.mean()) for level in hits]
        neighbours = [level.rows for level in hits]
        self._line(name, compared, lambda block: self.index.search(block, K, beam), f"{spent:.1f}", neighbours)

    def hnsw(self, least: int, ef: int) -> None:
        faiss.omp_set_num_threads(1)
        clock = Stopwatch()
        graphs: list[Any] = []
        for number in range(len(self.sizes)):
            graphs.append(faiss.IndexHNSWFlat(self.questions.shape[1], least, faiss.METRIC_INNER_PRODUCT))
            graphs[-1].hnsw.efConstruction = 80
            graphs[-1].hnsw.efSearch = ef
            for block in self.vectors(number):
                graphs[-1].add(block)
        spent = clock.cpu
        statistics: Any = faiss.cvar
        neighbours, compared = [], []
        for number, graph in enumerate(graphs):
            statistics.hnsw_stats.reset()
            neighbours.append(graph.search(on_grid(self.questions), K)[1] + self.index.level_offsets[number])
            compared.append(statistics.hnsw_stats.ndis / len(self.questions))
        search = lambda block: [graph.search(on_grid(block), K) for graph in graphs]  # noqa: E731
        self._line("FAISS HNSW", compared, search, f"{spent:.1f}", neighbours)

    def _line(
        self,
        name: str,
        compared: list[float],
        search: Callable[[np.ndarray], Any],
        built: str,
        neighbours: list[np.ndarray],
    ) -> None:
        self.fitted |= {f"{name}, all levels": sum(compared), f"{name}, level 0": compared[0]}
        alone, batch = (milliseconds(search, self.questions, size) for size in (1, BATCH))
        print(f"  {name:14}{sum(compared):10,.0f}{compared[0]:10,.0f}{alone:10.2f}{batch:10.2f}{built:>10}   ", end="")
        shares = (shared(rows[:, : true.shape[1]], true) for rows, true in zip(neighbours, self.true, strict=True))
        print(" ".join(f"{share:.3f}" for share in shares), flush=True)


def measure(case: Case, ef: int, most: int) -> tuple[int, Compared]:
    """Print the cost and recall of one case; return the nodes of level 0 and the vectors compared."""
    levels, questions = {"tree": tree, "names": names, "random": random}[case.kind](case)
    setting = ChnswSettings()
    sizes = [len(level.ids) for level in levels]
    before = peak_memory()
    print(f"\n{case.kind}, levels of {', '.join(f'{nodes:,}' for nodes in sizes)}; {questions.shape[1]} dimensions")
    clock = Stopwatch()
    index = build_chnsw(levels, setting).index
    spent = clock.cpu
    size = sum(array.nbytes for array in index.arrays().values()) / 2**20
    print(f"  built in {clock}; peak {peak_memory():.2f} GiB ({before:.2f} before);", end=" ")
    print(f"{size:.1f} MiB, {np.diff(index.indptr).mean():.1f} links a node")
    del levels
    table = Table(index, questions)
    table.flat()
    table.ours("C-HNSW", Beam(ef=ef), spent)
    table.ours("walked", Beam(ef=ef, whole=0), spent)
    if sizes[0] <= most:
        table.hnsw(setting.links.least, ef)
    return sizes[0], table.fitted


def fits(kind: str, measured: list[tuple[int, Compared]]) -> None:
    """Print how the vectors compared grow with the rows."""
    print(f"\n{kind}, vectors compared over n of {', '.join(f'{rows:,}' for rows, _ in measured)}")
    for name in measured[0][1]:
        points = [(np.log10(rows), compared[name]) for rows, compared in measured if name in compared]
        if len(points) < 3 or name.startswith("flat"):
            continue
        at, values = np.array(points).T
        slope, base = np.polyfit(at, values, 1)
        residual = np.square(values - base - slope * at).sum() / np.square(values - values.mean()).sum()
        power = np.polyfit(at, np.log10(values), 1)[0]
        print(f"  {name:24}{base:8,.0f} + {slope:6,.0f} log10 n, R2 {1 - residual:.3f}; as a power of n: n^{power:.2f}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--rows", default="1000,10000,100000,1000000")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--ef", type=int, default=Beam().ef)
    parser.add_argument("--faiss", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    sizes = [1000, 3000, 10_000, 30_000] if chosen.quick else [int(rows) for rows in chosen.rows.split(",")]
    dimension = 64 if chosen.quick else chosen.dimension
    cases = [Case("tree", rows, dimension) for rows in sizes]
    cases += [Case("names", rows, dimension, tuple(chosen.stores)) for rows in sizes if chosen.stores]
    cases += [Case("random", rows, dimension) for rows in sizes if rows <= 10_000]
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # for the child processes
    print(describe_machine(), flush=True)
    measured: dict[str, list[tuple[int, Compared]]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for case in cases:
            result = pool.submit(measure, case, chosen.ef, chosen.faiss).result()
            measured.setdefault(case.kind, []).append(result)
    for kind, results in measured.items():
        fits(kind, results)


if __name__ == "__main__":
    main()
