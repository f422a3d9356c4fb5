"""Measure zoom_links in a nightly build of a large corpus: time and memory of the part that refreshes all links.

    python -m benchmarks.zoom_scale [--rows 50000,200000,1100000] [--changed 1000] [--quick]

Random vectors of 384 dimensions form groups of 100 documents that are nearer to each other than to others, so that each
is linked only within its group: comparing all with all would take hours. From these links, the vectors and the state of
the previous build, the part runs as on a worker, from a store in a folder. CHANGED documents get another vector in
their group, a tenth as many are removed, and as many as that are added.

Prints CPU seconds, the peak memory of the process, its peak before the part, and its peak private memory; the rest
is mapped files. Then the additional time without the limits and cells carried over from the previous build. A document
of techdocs has 3.5 passages, so 1,100,000 rows are about 4 million passages.

--quick takes 12,000 rows, of which 30 change: it needs seconds.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import PrivateMemory, Stopwatch, argument_parser, describe_machine, peak_memory
from indexmill.retrieve.grid import on_grid
from storage.arrays import put_pack
from storage.folder import init_folder
from storage.protocol import Store
from tasks.core.stage import Job, make_part
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, cells_of, label_of
from tasks.families.zoom_graph.choose import Coding, LinkedRows, LinkRule, Links
from tasks.families.zoom_graph.links import STAGE, ZoomLinkSettings, state_of
from tasks.families.zoom_graph.moments import Moments, Polynomials

DIMENSION = 384
GROUP = 100
OF_PACK = 2_000
STRIP = 512

Vectors = NDArray[np.int16]


def drawn(groups: NDArray[np.int64], seed: int) -> Vectors:
    """Return a random vector near the middle of each document's group."""
    vectors = np.empty((len(groups), DIMENSION), dtype=np.int16)
    for first in range(0, len(groups), OF_PACK):
        members = groups[first : first + OF_PACK]
        distinct, place = np.unique(members, return_inverse=True)
        middles = np.stack([np.random.default_rng(int(group)).standard_normal(DIMENSION) for group in distinct])
        noise = np.random.default_rng([seed, first]).standard_normal((len(members), DIMENSION))
        points = (middles[place] + 0.6 * noise).astype(np.float32)
        vectors[first : first + OF_PACK] = on_grid(points / np.linalg.norm(points, axis=1)[:, None])
    return vectors


def sampled_moments(rows: LinkedRows, rule: LinkRule) -> Moments:
    moments, sample = Moments.zeros(len(rows), sampled=True), rule.sampled(len(rows))
    chosen = rows.vectors[:sample].astype(np.float32).T
    for first in range(0, len(rows), STRIP):
        strip = np.arange(first, min(first + STRIP, len(rows)))
        products = rows.vectors[strip].astype(np.float32) @ chosen
        inside = strip[strip < sample]
        products[inside - first, inside] = 0.0
        moments.add_rows(products, strip)
    return moments


def links_in_groups(rows: LinkedRows, groups: NDArray[np.int64], rule: LinkRule) -> tuple[Links, float]:
    """Return the links of rows within their groups, and the seconds that all limits took."""
    clock = Stopwatch()
    moments, every = sampled_moments(rows, rule), np.arange(len(rows))
    limits = Polynomials(rows.vectors, rule.sampled(len(rows))).limits(moments, every, rule.threshold)
    seconds = clock.cpu
    coding, members = Coding(len(rows)), groups.argsort(kind="stable").reshape(-1, GROUP)
    chosen = []
    for member_rows in members:
        vectors = rows.vectors[member_rows].astype(np.float32)
        steps = np.minimum((vectors @ vectors.T).astype(np.int64) >> 9, (1 << 15) - 1)
        others = ~np.eye(GROUP, dtype=bool)
        keys = coding.keys(
            member_rows.repeat(GROUP)[others.ravel()], steps[others], np.tile(member_rows, GROUP)[others.ravel()]
        )
        keys.sort()
        chosen.append(coding.best(coding.beyond(keys, limits), rule.cap))
    keys = np.concatenate(chosen)
    keys.sort()
    full = coding.full(keys, rule.cap)
    return Links(rows, moments, limits, coding.distinct(coding.pairs(keys)), full, compared=len(rows)), seconds


def put_vectors(store: Store, names: NDArray[np.uint64], vectors: Vectors) -> dict[str, str]:
    """Store the vectors of documents as packs, the inputs of the part; return their digests by name."""
    digests = {}
    for first in range(0, len(names), OF_PACK):
        pack = {"keys": names[first : first + OF_PACK], "vectors": vectors[first : first + OF_PACK]}
        digests[f"document_vectors/p{first:08}"] = put_pack(store, "run", pack)[0]
    return digests


def prepare(folder: str, count: int, changed: int, queue: Any) -> None:
    """Create a store with the links of the previous build, and the job of the part. Runs in its own process."""
    store, rule, settings = init_folder(Path(folder)), LinkRule(exact_rows=0), ZoomLinkSettings(exact_rows=0)
    draw = np.random.default_rng(count)
    names, groups = draw.integers(0, 1 << 64, count, dtype=np.uint64), np.arange(count) // GROUP
    vectors = drawn(groups, 0)
    sources = put_vectors(store, names, vectors)
    order = names.argsort()
    rows = LinkedRows(names[order], vectors[order])
    links, limits_seconds = links_in_groups(rows, groups[order], rule)
    clock = Stopwatch()
    cells = cells_of(rows)
    cells_seconds = clock.cpu
    blocks = dict(blocks_of(links, cells))
    digests = [(block_digest(block), centre) for centre, block in blocks.items()]
    state = state_of(links, rule, [sources[name] for name in sorted(sources)], digests)
    packs = {"zoom_state": state, **{f"document_links/{label_of(centre)}": pack for centre, pack in blocks.items()}}
    outputs = {name: put_pack(store, "run", pack)[0] for name, pack in packs.items()}
    near = min(8 * OF_PACK, count)  # changes are in a few shards, as in a nightly build
    moved = draw.choice(near, changed, replace=False)
    vectors[moved] = drawn(groups[moved], 1)
    came = max(changed // 10, 1)
    first = put_vectors(store, names[came:near], vectors[came:near])
    last = put_vectors(store, draw.integers(0, 1 << 64, came, dtype=np.uint64), drawn(groups[:came], 2))
    inputs = sources | first | {name.replace("/p", "/q"): digest for name, digest in last.items()}
    job = Job(STAGE.module, "0" * 64, "documents", store.url, "night", inputs, settings, reuse=tuple(outputs.values()))
    queue.put((job, limits_seconds, cells_seconds, len(links.pairs), len(blocks)))


def refresh(job: Job, queue: Any) -> None:
    """Run the part, and put its cost into the queue. Runs in its own process."""
    before = peak_memory()
    with PrivateMemory(0.02) as memory:
        clock = Stopwatch()
        part = make_part(job)
        spent = str(clock)
    queue.put((spent, dict(part.counts), peak_memory(), before, memory.peak / 1024))


def run_process(context: Any, target: Any, *words: object) -> Any:
    """Run a function in its own process; return what it puts into its queue."""
    queue = context.Queue()
    process = context.Process(target=target, args=(*words, queue))
    process.start()
    while queue.empty():
        time.sleep(0.2)
        if process.exitcode:
            raise SystemExit(f"a process ended with exit code {process.exitcode}")
    result = queue.get()
    process.join()
    return result


def measured(count: int, changed: int) -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="indexmill-zoom-scale-") as folder:
        job, limits, cells, pairs, blocks = run_process(context, prepare, f"{folder}/store", count, changed)
        yield f"{count:,} documents, {pairs:,} pairs in {blocks:,} blocks; {changed:,} changed"
        spent, counts, peak, before, private = run_process(context, refresh, job)
        yield f"  {spent}; {counts['rows_compared']:,} rows compared"
        yield f"  peak {peak:.2f} GiB, {before:.2f} before the part; peak of private memory {private:.2f}"
        yield f"  not carried over: limits {limits:.1f} s, cells {cells:.1f} s"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rows", default="50000,200000,1100000", help="documents, each a multiple of 100")
    parser.add_argument("--changed", type=int, default=1_000)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    counts = [12_000] if chosen.quick else [int(count) for count in chosen.rows.split(",")]
    changed = 30 if chosen.quick else chosen.changed
    if any(count % GROUP or count < changed for count in counts) or changed > 8 * OF_PACK:
        parser.error(f"--rows are multiples of {GROUP} and at least --changed, which is at most {8 * OF_PACK:,}")
    print(describe_machine())
    for count in counts:
        for line in measured(count, changed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
