"""How good the communities of entities are: ways to cluster, links by content, levels, and nights.

    python -m benchmarks.communities STORE [--grain 400] [--largest 50] [--nights 10] [--all] [--passages N] [--quick]
                                     [--described]

The graph: the entities of the newest snapshot that stand in a sentence, linked if they stand in one together, with the
vectors of their canonical names from the snapshot's encoder. Summaries are means of members' vectors: no model. Tables:

- levels of attributed Leiden (weights are cosines) with --grain and --largest, per way to add links, with the CPU
  seconds of adding links and of clustering, and the digest of all memberships of two runs;
- clusterings of the first level's graph: that one, plain Leiden (weights are 1) of the same sizes, and spectral; with
  --all node2vec, SCAN, and Leiden and spectral without sizes. Spectral and node2vec are asked for as many communities
  as attributed Leiden found, because Sim and CHI depend on the number; `at random` puts nodes into its sizes at random.
  Modularity is that of cosines on the same links, for all of them. Seconds are CPU seconds of clustering;
- nights: of a sample of 600 passages 2 % go and as many others come each night; the share of communities of two or more
  members that the night before did not have, warm (from the membership of the night before) and cold, and modularity
  of warm against cold.

With --described the graph is that of the snapshot's community_tree: its entities, their relations and the vectors of
their descriptions; no nights. --passages takes the first so many, --quick 300: less than a minute.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

import indexmill
from benchmarks.clusterings.levels import Augment, Cluster, Level, level_over, levels_over
from benchmarks.clusterings.node2vec import node2vec
from benchmarks.clusterings.scan import scan
from benchmarks.clusterings.spectral import spectral
from benchmarks.machine import Stopwatch, argument_parser, describe_machine, peak_memory
from indexmill.families.tri_graph.mentions import mentions_of
from indexmill.store.canonical import canonical_json
from indexmill.text.names import NameIndex
from tasks.core.communities.augment import codicil, knn, none, weighted
from tasks.core.communities.graph import Edges, Floats, Graph, Labels, Weighted, graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.levels import Stops
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre, modularity

AUGMENTATIONS: Mapping[str, Augment] = {"none": none, "knn": knn, "codicil": codicil}
SAMPLE, CHANGED = 600, 0.02
_BATCH = 4096


class Corpus:
    """The sentences of a snapshot's passages in their order, the entities in each, and the names' vectors."""

    def __init__(self, store: str, passages: int | None) -> None:
        with indexmill.open(store) as snapshot:
            table = snapshot.table("entities", ["entity_id", "name"]).to_pydict()
            _, matrices, sentence_passage = mentions_of(snapshot)
            self.passage = np.array(sentence_passage)
            indptr, indices = matrices.mentions.indptr, matrices.mentions.indices
            self.held = [indices[low:high] for low, high in pairwise(indptr)]
            self.passages = np.unique(self.passage)[:passages]
            by_key = np.argsort(NameIndex.keys(table["entity_id"]))
            self.used = np.unique(np.concatenate(self._sentences(self.passages)))
            self.ids = [table["entity_id"][by_key[row]] for row in self.used]
            names = [table["name"][by_key[row]] for row in self.used]
            encode = snapshot.encoder().encode
            self.vectors = np.concatenate([encode(names[low : low + _BATCH]) for low in range(0, len(names), _BATCH)])

    def graph(self, passages: np.ndarray) -> Graph:
        """The graph of the entities in some of the passages."""
        sentences = self._sentences(passages)
        there = np.unique(np.concatenate(sentences))
        pairs = [held[np.stack(np.triu_indices(len(held), 1), axis=1)] for held in sentences]
        rows = np.searchsorted(self.used, there)
        return graph_of(
            [self.ids[row] for row in rows], self.vectors[rows], np.searchsorted(there, np.concatenate(pairs))
        )

    def _sentences(self, passages: np.ndarray) -> list[np.ndarray]:
        return [self.held[row] for row in np.flatnonzero(np.isin(self.passage, passages))]


def described(store: str) -> Graph:
    """The entities of the newest snapshot's community_tree, in the order of their ids, and their relations."""
    with indexmill.open(store) as snapshot:
        tree, index = (snapshot.arrays(f"community_tree/{name}") for name in ("tree", "index"))
        count = int(index["level_offsets"][1])
        place = np.empty(count, dtype=np.int64)
        place[index["rows"][:count]] = np.arange(count)
        vectors = np.array(index["vectors"][:count], dtype=np.float32)
        owners = np.repeat(np.arange(count), np.diff(tree["relations.indptr"]))
        links = place[np.stack([owners, tree["relations.indices"]], axis=1)]
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return graph_of([f"{row:08d}" for row in range(count)], vectors / lengths, links)


def mean_of_members(level: Level) -> Floats:
    sums = np.zeros((len(level.ids), level.below.vectors.shape[1]))
    np.add.at(sums, level.labels, level.below.vectors)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def quality(graph: Graph, weights: Weighted, labels: Labels) -> str:
    sizes = np.bincount(labels)
    middle = np.median(sizes[sizes > 1]) if (sizes > 1).any() else 1
    chi, sim = calinski_harabasz(graph.vectors, labels), cosine_to_centre(graph.vectors, labels)
    return (
        f"{len(sizes):8,}{np.count_nonzero(sizes == 1):8,}{middle:8.0f}"
        f"{sizes.max():9,}{modularity(weights, labels):9.4f}{chi or float('nan'):9.3f}{sim:9.4f}"
    )


def timed(run: Callable[[], Labels]) -> tuple[Labels, float]:
    begun = time.process_time()
    labels = run()
    return labels, time.process_time() - begun


def clusterings(found: Mapping[str, tuple[Level, float]], sized: Mapping[str, int], everything: bool) -> None:
    """Ways to cluster the graph of each first level, which attributed Leiden clustered in so many seconds."""
    print(f"\n{'links':10}{'':>9} {'clustering':22}", end="")
    print(f"{'found':>8}{'alone':>8}{'median':>8}{'largest':>9}{'modul.':>9}{'CHI':>9}{'Sim':>9}{'seconds':>9}")
    for name, (level, seconds) in found.items():
        weights = weighted(level.below, level.edges)
        for way, labels, taken in _ways(weights, level.labels, seconds, sized, everything):
            measured = quality(level.below, weights, labels)
            print(f"{name:10}{len(weights.edges):9,} {way:22}{measured}{taken:9.1f}", flush=True)


def _ways(
    weights: Weighted, found: Labels, seconds: float, sized: Mapping[str, int], everything: bool
) -> Iterator[tuple[str, Labels, float]]:
    plain = Weighted(weights.size, weights.edges, np.ones(len(weights.edges)))
    count = int(found.max()) + 1
    yield "attributed, sized", found, seconds
    yield "plain, sized", *timed(lambda: leiden(plain, **sized))
    yield f"spectral, {count:,}", *timed(lambda: spectral(weights, count))
    yield "at random", np.random.default_rng(0).permutation(found), 0.0
    if everything:
        yield f"node2vec, {count:,}", *timed(lambda: node2vec(weights, count))
        yield "scan", *timed(lambda: scan(weights))
        free, taken = timed(lambda: leiden(weights))
        yield "attributed", free, taken
        yield "plain", *timed(lambda: leiden(plain))
        fewer = int(free.max()) + 1
        yield f"spectral, {fewer:,}", *timed(lambda: spectral(weights, fewer))


class Clocks:
    """An augmentation and a clustering that remember their CPU seconds."""

    def __init__(self, augment: Augment, cluster: Cluster) -> None:
        self._augment, self._cluster = augment, cluster
        self.augmenting: list[float] = []
        self.clustering: list[float] = []

    def augment(self, graph: Graph) -> Edges:
        edges, seconds = timed(lambda: self._augment(graph))
        self.augmenting.append(seconds)
        return edges

    def cluster(self, graph: Weighted, start: np.ndarray | None) -> Labels:
        labels, seconds = timed(lambda: self._cluster(graph, start))
        self.clustering.append(seconds)
        return labels


def digest(levels: Sequence[Level]) -> str:
    return hashlib.sha256(canonical_json([level.membership() for level in levels])).hexdigest()[:16]


def hierarchy(graph: Graph, cluster: Cluster) -> dict[str, tuple[Level, float]]:
    """The first level and the CPU seconds of its clustering, per way to add links."""
    firsts: dict[str, tuple[Level, float]] = {}
    print(f"\n{'links':9}{'level':>6}{'nodes':>8}{'links':>10}", end="")
    print(f"{'found':>8}{'alone':>8}{'median':>8}{'largest':>9}{'modul.':>9}{'CHI':>9}{'Sim':>9}", end="")
    print(f"{'adding':>9}{'clustering':>11}", flush=True)
    for name, augment in AUGMENTATIONS.items():
        digests = []
        for run in range(2):
            clocks = Clocks(augment, cluster)
            levels = levels_over(graph, mean_of_members, clocks.augment, clocks.cluster, Stops())
            digests.append(digest(levels))
            if run:
                continue
            firsts[name] = levels[0], clocks.clustering[0]
            for level, adding, clustering in zip(levels, clocks.augmenting, clocks.clustering, strict=False):
                found = quality(level.below, weighted(level.below, level.edges), level.labels)
                print(f"{name:9}{level.number:6}{len(level.below.ids):8,}{len(level.edges):10,}{found}", end="")
                print(f"{adding:9.1f}{clustering:11.1f}", flush=True)
        same = "identical" if len(set(digests)) == 1 else "DIFFERENT"
        print(f"{name:9} two runs: {' '.join(digests)}, {same}", flush=True)
    return firsts


def nights(corpus: Corpus, cluster: Cluster, count: int) -> None:
    generator = np.random.default_rng(0)
    order = generator.permutation(corpus.passages)[: 2 * SAMPLE]
    half = len(order) // 2
    there, others = set(order[:half].tolist()), order[half:].tolist()
    print(f"\n{'night':>6}{'nodes':>8}{'found':>8}{'new, warm':>11}{'new, cold':>11}{'modularity, warm / cold':>25}")
    warm = cold = None
    for night in range(count + 1):
        if night:
            gone = generator.choice(sorted(there), int(CHANGED * half), replace=False).tolist()
            there = (there - set(gone)) | set(others[: len(gone)])
            others = others[len(gone) :] + gone
        graph = corpus.graph(np.array(sorted(there)))
        found = level_over(1, graph, knn, cluster)
        if warm is None or cold is None:
            warm = cold = found
            continue
        known = Graph(graph.ids, graph.vectors, found.edges)
        kept = level_over(1, known, none, cluster, warm.membership())
        weights = weighted(graph, found.edges)
        reached, best = (modularity(weights, level.labels) for level in (kept, found))
        print(
            f"{night:6}{len(graph.ids):8,}{len(kept.ids):8,}{redone(kept, warm):11.1%}{redone(found, cold):11.1%}"
            f"{reached:13.4f} / {best:.4f} = {reached / best:.3f}",
            flush=True,
        )
        warm, cold = kept, found


def redone(level: Level, before: Level) -> float:
    """The share of communities of two members or more that want a summary and had none."""
    known = set(before.ids)
    wanted = [community for community, members in level.members() if len(members) > 1]
    return sum(community not in known for community in wanted) / len(wanted)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("--grain", type=int, default=400, help="nodes per unit of resolution; 0: resolution 1")
    parser.add_argument("--largest", type=int, default=50, help="most nodes of a community; 0: no bound")
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--all", action="store_true", help="node2vec, SCAN and no sizes, too")
    parser.add_argument("--passages", type=int)
    parser.add_argument("--described", action="store_true", help="the graph of the snapshot's community_tree")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    clock = Stopwatch()
    sized = {"grain": chosen.grain, "largest": chosen.largest}
    print(describe_machine())
    corpus = None if chosen.described else Corpus(chosen.store, 300 if chosen.quick else chosen.passages)
    graph = corpus.graph(corpus.passages) if corpus else described(chosen.store)
    print(f"{len(graph.ids):,} entities, {len(graph.edges):,} pairs {'in one sentence' if corpus else 'related'}")

    def cluster(weights: Weighted, start: np.ndarray | None) -> Labels:
        return leiden(weights, start, **sized)

    clusterings(hierarchy(graph, cluster), sized, chosen.all)
    if corpus and chosen.nights:
        nights(corpus, cluster, chosen.nights)
    print(f"\n{time.process_time():.0f} s of CPU, {clock.wall:.0f} s; peak {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
