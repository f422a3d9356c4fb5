"""Measure lsh_tree's segments on real vectors: the cohesion of a segment, and the segments that an insertion redoes.

    python -m benchmarks.lsh_cohesion STORE [--trials 100] [--quick]

Cohesion is the mean cosine of two passages of a segment, weighted by segment size. Tables:

- methods of segmentation, bounds 6 to 12: ours, with the axes of the snapshot's encoder as the first hyperplanes;
  without Gray order; with overflowing segments cut in the middle; with random hyperplanes only; with the corpus' own
  axes, where one more passage would change every code; buckets of k-bit codes of random hyperplanes, merged with the
  Hamming-nearest bucket and split, as in the paper; buckets of 20-bit codes in integer order, filled one after another
  to 8 or more, as in the paper's published code; random segments of the sizes of ours;
- bounds around a mean of ten, from 0.5 to 2 times delta = 6 (EraRAG, table V); bounds narrower than 7 to 13 cannot
  always be kept;
- the snapshot's layers above the first: summaries placed by their middle child, as in the tree, by the mean of their
  children, by their own texts' vectors, as in the paper, and at random. Cohesion of the summaries' texts and of the
  passages below a segment: means of twenty samples of nine tenths, with standard errors.

For each method: the segments redone by one more passage, mean and maximum, and the share redone over the paper's
protocol (half of the corpus, then ten insertions of 5 %, passages in random order) against redoing all each time.
`floor` is the least share that any function of the set could redo at these sizes: if an insertion adds a share f of the
resulting corpus, a segment of s passages has no new passage with probability (1 - f)^s.

--quick takes 1,500 passages and 20 trials: seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

import indexmill
import tasks.families.lsh_tree.segmentation
from benchmarks.machine import argument_parser, describe_machine
from indexmill.families.lsh_tree.summaries import open_tree
from tasks.core.shards import id_hashes
from tasks.families.lsh_tree.axes import principal_axes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import gray_ranks, segment
from tasks.families.lsh_tree.topics import TOPICS

Rows = np.ndarray
Way = Callable[[Rows], list[Rows]]
"""A method of segmentation: returns the segments of some rows of the snapshot."""

SMALLEST, LARGEST = 6, 12
MEAN, DELTA = 10, 6
PUBLISHED_BITS, PUBLISHED_SMALLEST = 20, 8


class Corpus:
    """The unit vectors and keys of passages, and the snapshot's tree."""

    def __init__(self, store: str, most: int | None = None) -> None:
        with indexmill.open(store) as snapshot:
            vectors = np.concatenate([np.asarray(shard) for shard in snapshot.vectors("vectors", "passages")])
            ids = snapshot.table("passages", ["passage_id"]).column(0).to_pylist()
            self.axes = principal_axes(snapshot.encode(sorted(TOPICS)))
            tree = open_tree(snapshot)
            self.offsets, self.parents = tree.offsets[1:].tolist(), np.array(tree.parents)
            summaries = [np.asarray(group) for group in snapshot.vectors("summary_vectors", "vectors")]
            self.nodes = snapshot.table("summaries", ["node_id"]).column(0).to_pylist()
        self.texts = _of_length_one(np.concatenate([vectors, *summaries]))
        self.vectors = vectors[:most] / np.linalg.norm(vectors[:most], axis=1)[:, None]
        self.keys = id_hashes(ids[:most])
        self.rows = np.arange(len(self.vectors))

    def ours(self, rows: Rows, planes: Hyperplanes, smallest: int = SMALLEST, largest: int = LARGEST) -> list[Rows]:
        segmentation = segment(self.keys[rows], planes.codes(self.vectors[rows]), smallest, largest)
        return [rows[part] for part in segmentation.rows()]

    def cohesion(self, segments: Sequence[Rows], vectors: np.ndarray | None = None) -> float:
        vectors = self.vectors if vectors is None else vectors
        total = weight = 0.0
        for rows in segments:
            size = len(rows)
            if size > 1:
                length = float(np.square(vectors[rows].sum(axis=0, dtype=np.float64)).sum())
                total += (length - size) / (size - 1)
                weight += size
        return total / weight


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def show_upper_layers(corpus: Corpus, planes: Hyperplanes) -> None:
    """Print the cohesion of the upper layers of the snapshot's tree, for each placement of summaries."""
    passages, dimension = corpus.offsets[0], corpus.texts.shape[1]
    sums = np.zeros(corpus.texts.shape)
    sums[:passages] = corpus.texts[:passages]
    means, passage_counts = sums.copy(), np.ones(len(sums))
    passage_counts[passages:] = 0
    codes = np.zeros(len(sums), np.uint64)
    codes[:passages] = planes.codes(corpus.texts[:passages])
    low = 0
    print(f"\n{'layer, placed by':46}{'segments':>9}{'texts':>16}{'passages':>16}")
    for layer, (first, end) in enumerate(pairwise(corpus.offsets), 2):
        for whole in (sums, means, passage_counts):
            np.add.at(whole, corpus.parents[low:first], whole[low:first])
        means[first:end] = _of_length_one(means[first:end])
        of_children = gray_ranks(codes[low:first])
        order = np.lexsort((of_children, corpus.parents[low:first]))
        counts = np.bincount(corpus.parents[low:first] - first, minlength=end - first)
        codes[first:end] = codes[low:first][order[np.cumsum(counts) - counts + counts // 2]]
        low, rows = first, np.arange(first, end)
        if end - first <= LARGEST:
            return
        keys = id_hashes(corpus.nodes[first - passages : end - passages])
        random = np.random.default_rng(layer).standard_normal((len(rows), dimension))
        ways = {"mean of children": means[rows], "own text": corpus.texts[rows], "nothing": random}
        coded = {name: planes.codes(vectors.astype(np.float32)) for name, vectors in ways.items()}
        for name, places in {"middle child": codes[rows], **coded}.items():
            cohesions: list[tuple[float, float]] = []
            for trial in range(20):
                sample = np.sort(np.random.default_rng(trial).permutation(len(rows))[: len(rows) * 9 // 10])
                segments = segment(keys[sample], places[sample], SMALLEST, LARGEST).rows()
                chosen = [rows[sample[part]] for part in segments]
                cohesions.append((corpus.cohesion(chosen, corpus.texts), _cohesion_below(chosen, sums, passage_counts)))
            mean, error = np.mean(cohesions, axis=0), np.std(cohesions, axis=0) / np.sqrt(len(cohesions))
            cells = "".join(
                f"{value:9.4f} {f'({deviation:.4f})':>6}" for value, deviation in zip(mean, error, strict=True)
            )
            print(f"{f'{layer}, {name}':46}{len(segments):9,}{cells}", flush=True)


def _cohesion_below(segments: Sequence[Rows], sums: np.ndarray, passage_counts: np.ndarray) -> float:
    """Return the mean cosine of two passages below a segment, weighted by the passages of a segment."""
    sizes = np.array([passage_counts[rows].sum() for rows in segments])
    lengths = np.array([np.square(sums[rows].sum(axis=0)).sum() for rows in segments])
    return float(((lengths - sizes) / (sizes - 1)).sum() / sizes.sum())


def with_parts(way: Way, **parts: object) -> Way:
    """Return the method with some functions of tasks.families.lsh_tree.segmentation replaced."""

    def changed(rows: Rows) -> list[Rows]:
        originals = {name: getattr(tasks.families.lsh_tree.segmentation, name) for name in parts}
        try:
            for name, part in parts.items():
                setattr(tasks.families.lsh_tree.segmentation, name, part)
            return way(rows)
        finally:
            for name, part in originals.items():
                setattr(tasks.families.lsh_tree.segmentation, name, part)

    return changed


def hamming_greedy(codes: np.ndarray, rows: Rows) -> list[Rows]:
    """Merge buckets, from the smallest up, with the Hamming-nearest one until none is too small; then split large ones.

    Ties go to the smaller code; a merged bucket keeps the code of its larger part. A split keeps the order of rows.
    """
    buckets: dict[int, list[int]] = {}
    for row in rows.tolist():
        buckets.setdefault(int(codes[row]), []).append(row)
    names = np.array(sorted(buckets), dtype=np.uint64)
    groups = [buckets[int(name)] for name in names]
    sizes = np.array([len(bucket) for bucket in groups])
    for at in np.lexsort((names, sizes)).tolist():
        while 0 < sizes[at] < SMALLEST and (sizes > 0).sum() > 1:
            distances = np.bitwise_count(names ^ names[at]).astype(np.int64)
            distances[(sizes == 0) | (np.arange(len(names)) == at)] = 99
            to = int(distances.argmin())
            low, high = (at, to) if sizes[at] <= sizes[to] else (to, at)
            groups[high] = groups[high] + groups[low]
            sizes[high], sizes[low] = len(groups[high]), 0
            at = high
    segments = []
    for bucket, size in zip(groups, sizes.tolist(), strict=True):
        if size:
            segments += np.array_split(np.array(sorted(bucket)), -(-size // LARGEST))
    return segments


def filled_up(codes: np.ndarray, rows: Rows) -> list[Rows]:
    """Fill segments with buckets in the integer order of their codes; a segment ends once it is large enough."""
    order = rows[np.argsort(codes[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    segments: list[Rows] = []
    current: list[int] = []
    for bucket in np.split(order, starts):
        items = bucket.tolist()
        while items:
            room = LARGEST - len(current)
            current, items = current + items[:room], items[room:]
            if len(current) >= PUBLISHED_SMALLEST:
                segments.append(np.array(current))
                current = []
    return [*segments, np.array(current)] if current else segments


def at_random(sizes: Sequence[int], rows: Rows) -> list[Rows]:
    return np.split(np.random.default_rng(0).permutation(rows), np.cumsum(sizes)[:-1])


def middle(shared: np.ndarray, low: Rows, high: Rows, smallest: int) -> Rows:
    return (low + high) // 2


def as_sets(segments: Sequence[Rows]) -> set[frozenset[int]]:
    return {frozenset(rows.tolist()) for rows in segments}


def single(rows: Rows, way: Way, trials: int) -> tuple[float, int]:
    """Return the mean and the maximum of segments redone by one more passage."""
    whole = as_sets(way(rows))
    chosen = np.random.default_rng(1).choice(len(rows), trials, replace=False)
    redone = [len(whole - as_sets(way(np.delete(rows, at)))) for at in chosen]
    return float(np.mean(redone)), max(redone)


def protocol(rows: Rows, way: Way) -> tuple[float, float]:
    """Return the share of segments redone over ten insertions of 5 % into half of the corpus, and the floor."""
    order = np.random.default_rng(2).permutation(rows)
    counts = [int(len(rows) * (0.5 + 0.05 * step)) for step in range(11)]
    steps = [as_sets(way(np.sort(order[:count]))) for count in counts]
    redone = total = least = 0.0
    for step in range(1, len(steps)):
        redone += len(steps[step] - steps[step - 1])
        total += len(steps[step])
        share = counts[step - 1] / counts[step]
        least += sum(1 - share ** len(part) for part in steps[step])
    return redone / total, least / total


def show(corpus: Corpus, name: str, way: Way, trials: int) -> None:
    segments = way(corpus.rows)
    sizes = [len(rows) for rows in segments]
    text = f"{name:46}{len(segments):9,}{min(sizes):5}{max(sizes):5}{corpus.cohesion(segments):10.4f}"
    if trials:
        mean, most = single(corpus.rows, way, trials)
        share, least = protocol(corpus.rows, way)
        text += f"{mean:9.2f}{most:6}{share:11.1%}{least:9.1%}"
    print(text, flush=True)


def header(of: str) -> None:
    print(f"\n{of:46}{'segments':>9}{'min':>5}{'max':>5}{'cohesion':>10}{'one more':>9}{'most':>6}", end="")
    print(f"{'ten of 5 %':>11}{'floor':>9}")


def bounds_around(factor: float) -> tuple[int, int]:
    """Return the bounds around MEAN at `factor` times DELTA (EraRAG, table V)."""
    return max(2, int(MEAN - factor * DELTA + 0.5)), int(MEAN + factor * DELTA)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    trials = 20 if chosen.quick else chosen.trials
    corpus = Corpus(chosen.store, 1500 if chosen.quick else None)
    dimension = corpus.vectors.shape[1]
    planes, seeded = Hyperplanes(0, dimension, corpus.axes), Hyperplanes(0, dimension)
    corpus_planes = Hyperplanes(0, dimension, principal_axes(corpus.vectors))
    codes = seeded.codes(corpus.vectors)
    print(describe_machine())
    print(f"{len(corpus.rows):,} passages")

    def ours(rows: Rows) -> list[Rows]:
        return corpus.ours(rows, planes)

    header("way to segment")
    show(corpus, "ours", ours, trials)
    show(corpus, "ours, without Gray order", with_parts(ours, gray_ranks=lambda codes: codes), trials)
    show(corpus, "ours, overflow cut in the middle", with_parts(ours, _parting=middle), trials)
    show(corpus, "random hyperplanes", lambda rows: corpus.ours(rows, seeded), trials)
    show(corpus, "the corpus' own axes", lambda rows: corpus.ours(rows, corpus_planes), trials)
    bits = round(np.log2(len(corpus.rows) / MEAN))
    for count in (bits - 2, bits, bits + 2):
        few = codes >> np.uint64(64 - count)
        show(corpus, f"Hamming-greedy, {count} bits", lambda rows, few=few: hamming_greedy(few, rows), trials // 4)
    few = codes >> np.uint64(64 - PUBLISHED_BITS)
    show(corpus, f"codes as integers, filled up, {PUBLISHED_BITS} bits", lambda rows: filled_up(few, rows), trials // 4)
    sizes = [len(rows) for rows in ours(corpus.rows)]
    show(corpus, "at random", lambda rows: at_random(sizes, rows), 0)

    header(f"bounds around {MEAN}, delta {DELTA}")
    for factor in (0.5, 0.75, 1.0, 1.5, 2.0):
        low, high = bounds_around(factor)
        way = lambda rows, low=low, high=high: corpus.ours(rows, planes, low, high)  # noqa: E731
        show(corpus, f"{factor:4} delta: {low} to {high}", way, trials)
    show(corpus, f"the default: {SMALLEST} to {LARGEST}", ours, trials)

    show_upper_layers(corpus, planes)


if __name__ == "__main__":
    main()
