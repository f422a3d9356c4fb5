"""Measure the heterograph's pure cores on synthetic graphs, or a built snapshot's heterograph.

    python -m benchmarks.heterograph [--nodes 1000000] [--vectors 20000] [--groups] [--quick]
    python -m benchmarks.heterograph --store STORE --questions QUESTIONS.jsonl [--only ablations,curve]

With --store, print the sections of `benchmarks.heterograph_store` for a built snapshot. --given has retrieval settings
as JSON, `--given '{"entries": 5}'`, and --only-first limits the questions.

Without --store, measure building, querying, and near edges against a true HNSW base layer. Each case runs in its own
single-threaded process, whose peak resident memory is printed:

- `graph`: nodes in the proportions of the paper's table 4, and five times as many edges: units that name entities,
  relations between entities, texts, attributes, high-level elements, and random near edges. Thousands of units name the
  same few entities. The graph is built from tables of ids, as in the stages; then its links (CSR), the important
  entities, the words of names. --groups adds Leiden, which takes minutes at a million nodes.
- `ask`: questions of one name and a vector of 384 dimensions, alone and in batches of 256: CPU milliseconds of search
  by vector, of search by name, and of the walk with its selection.
- `near`: vectors around the leaves of a random tree; near_pairs, exact and with inverted lists, beside the base layer
  of FAISS's HNSW (M 32, which allows 64 links there), inserted in two orders. `shared`: the share of pairs that are
  among the exact ones with k = 24; in the last row, among those of the first order.

--quick takes 100,000 nodes and 5,000 vectors: a minute.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import sparse

from benchmarks.chnsw import Case, noise, tree
from benchmarks.heterograph_store import SECTIONS, print_store
from benchmarks.machine import Stopwatch, argument_parser, describe_machine, peak_memory
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.matrices import Sparse
from tasks.core.neighbours import ListSettings
from tasks.families.heterograph.communities import grouped
from tasks.families.heterograph.graph import (
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    high_level,
    node_id,
    texts,
)
from tasks.families.heterograph.importance import important
from tasks.families.heterograph.names import name_words
from tasks.families.heterograph.vector_edges import near_pairs

SHARES = {"T": 0.0115, "S": 0.092, "A": 0.004, "H": 0.026, "R": 0.328, "N": 0.5125, "O": 0.026}  # table 4, about
MENTIONS, MATCHES, NEAR = 0.99, 0.1, 3.23  # edges per node; five with the edges that the nodes imply
BATCH = 256
DIMENSION = 384


@contextmanager
def timed(what: str) -> Iterator[None]:
    clock = Stopwatch()
    yield
    print(f"  {what:34}{clock.cpu:9.1f} s CPU {clock.wall:9.1f} s   peak {peak_memory():.2f} GiB", flush=True)


def ids(draw: np.random.Generator, count: int) -> pa.Array:
    """Return random ids of 32 hex digits."""
    data = draw.bytes(16 * count).hex().encode()
    offsets = np.arange(count + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def pieces(nodes: int) -> tuple[Pieces, list[Pieces]]:
    """Return the pieces of a graph: the decomposition, and all others."""
    draw = np.random.default_rng(0)
    sizes = {kind: int(share * nodes) for kind, share in SHARES.items()}
    node_ids = {kind: ids(draw, sizes[kind]) for kind in "TSNH"}

    def popular(count: int) -> np.ndarray:
        return (sizes["N"] * draw.random(count) ** 4).astype(np.int64)

    named = np.concatenate([np.arange(sizes["N"]), popular(int(MENTIONS * nodes) - sizes["N"])])
    unit_entities = pa.table(
        {
            "unit_id": node_ids["S"].take(draw.integers(0, sizes["S"], len(named))),
            "entity_id": node_ids["N"].take(named),
        }
    )
    source = draw.integers(0, sizes["N"], sizes["R"])
    target = (source + 1 + popular(sizes["R"]) % (sizes["N"] - 1)) % sizes["N"]
    relations = pa.table(
        {
            "source": node_ids["N"].take(source),
            "target": node_ids["N"].take(target),
            "text": pa.array([f"wording {number}" for number in draw.integers(0, 1000, sizes["R"])]),
        }
    )
    owner = np.sort(draw.integers(0, sizes["T"], sizes["S"]))
    units = pa.table({"unit_id": node_ids["S"], "passage_id": node_ids["T"].take(owner)})
    about = node_ids["N"].take(np.arange(sizes["A"]))
    attribute_ids = pa.array([node_id("attribute", entity) for entity in about.to_pylist()])
    overviews = pa.array([node_id("overview", element) for element in node_ids["H"].to_pylist()])
    low = pa.concat_arrays([node_ids["S"], attribute_ids])
    embedded = pa.concat_arrays([node_ids["T"], low, node_ids["H"]])
    count = int(NEAR * nodes)
    near_sources = draw.integers(0, len(embedded), count)
    near_targets = (near_sources + 1 + (draw.exponential(200, count)).astype(np.int64)) % len(embedded)
    apart = near_sources != near_targets
    match = draw.integers(0, len(low), int(MATCHES * nodes))
    return decomposed(units, unit_entities, relations), [
        attributes(pa.table({"attribute_id": attribute_ids, "entity_id": about})),
        high_level(pa.table({"element_id": node_ids["H"], "overview_id": overviews})),
        texts(pa.table({"passage_id": node_ids["T"]}), units),
        Pieces({}, {"match": (low.take(match), node_ids["H"].take(draw.integers(0, sizes["H"], len(match))))}),
        Pieces({}, {"near": (embedded.take(near_sources[apart]), embedded.take(near_targets[apart]))}),
    ]


def names_of(count: int) -> pa.Array:
    """Return names of two words out of 100,000, low numbers most often."""
    draw = np.random.default_rng(1)
    words = (100_000 * draw.random((count, 2)) ** 2).astype(np.int64)
    return pa.array([f"w{first} w{second}" for first, second in words.tolist()])


def graph(nodes: int, groups: bool) -> None:
    print(f"\ngraph of {nodes:,} nodes", flush=True)
    with timed("synthetic tables"):
        first, others = pieces(nodes)
    with timed("graph of units, relations, entities"):
        g1 = graph_of(first)
        g1.links  # noqa: B018
    with timed("important entities"):
        importance = important(g1)
    chosen = int(importance.chosen.sum())
    entities = len(importance.chosen)
    print(f"    degree >= {importance.least_degree}: {importance.core.sum():,};", end=" ")
    print(f"by betweenness {importance.between.sum():,};", end=" ")
    print(f"together {chosen:,}, {100 * chosen / entities:.2f} % of entities")
    if groups:
        with timed("communities (Leiden)"):
            table = grouped(graph_of(first, others[0]), grain=400, largest=50)
        print(f"    {len(table['community_id'].unique()):,} communities")
    del g1
    with timed("graph of all seven kinds"):
        whole = graph_of(first, *others)
    with timed("its links (CSR)"):
        links = whole.links
    size = (links.indptr.nbytes + links.indices.nbytes) / 2**20
    print(f"    {whole.counts()}; CSR {size:.0f} MiB")
    with timed("its two tables"):
        whole.tables()
    ask(whole)


def ask(whole: TypedGraph) -> None:
    draw = np.random.default_rng(2)
    rows = whole.rows("N")
    of_no_passage = Sparse(np.zeros(whole.offsets[5] + 1, np.int64), np.empty(0, np.int32))
    reader = Heterograph(whole.offsets, whole.links, of_no_passage, whole.link_kinds)
    entries = reader.rows("S", "H")
    names = names_of(len(whole) - rows.start)
    with timed("words of names"):
        words = name_words(names)
    vectors = noise(draw, entries.stop - entries.start, DIMENSION)
    queries = noise(draw, BATCH, DIMENSION)
    named = [[names[int(row)].as_py()] for row in draw.integers(0, rows.stop - rows.start, BATCH)]
    hubs = np.argsort(-whole.links.degrees(np.arange(len(whole))))[: BATCH // 8]
    print(f"  {'':20}{'by vector':>12}{'by name':>12}{'walk':>12}   milliseconds per question")
    for what, size in (("alone", 1), (f"batches of {BATCH}", BATCH)):
        some = BATCH if size > 1 else BATCH // 4
        spent = np.zeros(3)
        for low in range(0, some, size):
            began = time.process_time()
            near = [hits + entries.start for hits, _ in nearest([vectors], queries[low : low + size], 10)]
            spent[0] += time.process_time() - began
            began = time.process_time()
            named_rows = [matches + rows.start for matches in words.find_all(named[low : low + size], 20)]
            spent[1] += time.process_time() - began
            began = time.process_time()
            count = sum(len(result.rows) for result in reader.retrieve(named_rows, near))
            spent[2] += time.process_time() - began
        each = "".join(f"{1000 * seconds / some:12.2f}" for seconds in spent)
        print(f"  {what:20}{each}   {count / size:.0f} nodes each", flush=True)
    began = time.process_time()
    list(reader.retrieve([np.array([row]) for row in hubs], [np.empty(0, dtype=np.int64)] * len(hubs)))
    degree = int(whole.links.degrees(hubs).mean())
    took = 1000 * (time.process_time() - began) / len(hubs)
    print(
        f"  at {len(hubs)} hubs of {degree:,} links on average:  walk {took:.2f} ms each; peak {peak_memory():.2f} GiB",
        flush=True,
    )


def near(count: int, _: bool) -> None:
    import faiss

    faiss.omp_set_num_threads(1)
    vectors = tree(Case("tree", count, DIMENSION))[0][0].vectors
    grid_vectors = on_grid(vectors)
    names = [f"{row:08x}" for row in range(count)]
    print(f"\nnear edges of {count:,} vectors of {DIMENSION} dimensions", flush=True)
    print(f"  {'':24}{'s CPU':>8}{'edges each':>12}{'mean cosine':>13}{'parts':>8}{'shared':>10}")
    began = time.process_time()
    exact = near_pairs(names, vectors, 24, lists=ListSettings(exact=count))
    spent = time.process_time() - began

    def line(what: str, pairs: np.ndarray, spent: float, beside: np.ndarray) -> None:
        shared = len(np.intersect1d(pairs @ (count, 1), beside @ (count, 1))) / len(pairs)
        tiles = np.array_split(pairs, 64)
        cosine = sum(float((grid_vectors[some[:, 0]] * grid_vectors[some[:, 1]]).sum()) for some in tiles) / len(pairs)
        links = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(count, count))
        parts = sparse.csgraph.connected_components(links, directed=False)[0]
        print(
            f"  {what:24}{spent:8.1f}{len(pairs) / count:12.1f}{cosine / UNIT:13.3f}{parts:8,}{shared:10.3f}",
            flush=True,
        )

    line("exact, k = 24", exact, spent, exact)
    for k, most in ((16, count), (32, count), (24, 0)):
        began = time.process_time()
        pairs = near_pairs(names, vectors, k, lists=ListSettings(exact=most))
        line(f"{'exact' if most else 'lists'}, k = {k}", pairs, time.process_time() - began, exact)
    layers = []
    for order in (np.arange(count), np.arange(count)[::-1].copy()):
        began = time.process_time()
        index = faiss.IndexHNSWFlat(DIMENSION, 32, faiss.METRIC_INNER_PRODUCT)
        index.add(grid_vectors[order])
        spent = time.process_time() - began
        layers.append(base_layer(index, order))
        line("HNSW" if len(layers) == 1 else "HNSW, other way round", layers[-1], spent, exact)
    line("  of the first HNSW's", layers[1], 0, layers[0])


def base_layer(index: object, rows: np.ndarray) -> np.ndarray:
    """Return the pairs of FAISS's level 0, ascending, as rows of the vectors."""
    import faiss

    hnsw = index.hnsw  # type: ignore[attr-defined]
    offsets = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    neighbours = faiss.vector_to_array(hnsw.neighbors)
    width = hnsw.nb_neighbors(0)
    links = neighbours[offsets[:-1, None] + np.arange(width)]
    owners, places = (links >= 0).nonzero()
    pairs = np.sort(np.stack([rows[owners], rows[links[owners, places]]], axis=1), axis=1)
    return np.unique(pairs, axis=0)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--vectors", type=int, default=20_000)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", help="measure this store's newest version instead")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--only", default=",".join(SECTIONS), help="comma-separated sections of --store")
    parser.add_argument("--given", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--only-first", type=int, metavar="N")
    chosen = parser.parse_args()
    if (chosen.store is None) != (chosen.questions is None):
        parser.error("--store and --questions go together")
    if chosen.store is not None:
        print(describe_machine(), flush=True)
        print_store(chosen.store, chosen.questions, chosen.only.split(","), chosen.given, chosen.only_first)
        return
    nodes, vectors = (100_000, 5_000) if chosen.quick else (chosen.nodes, chosen.vectors)
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
    }  # for the child processes
    print(describe_machine(), flush=True)
    print(f"kinds of nodes: {' '.join(KINDS)}")
    context = multiprocessing.get_context("spawn")
    for case, size in ((graph, nodes), (near, vectors)):
        process = context.Process(target=case, args=(size, chosen.groups))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
