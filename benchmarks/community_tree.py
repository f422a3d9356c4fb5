"""What the community tree brings to retrieval, and the variants of ArchRAG's table 4 without a language model.

    python -m benchmarks.community_tree STORE QUESTIONS.jsonl [--other NAME=STORE[@VERSION] ...] [--only PART]

The store holds community_tree; others are of the same corpus with other settings (`clustering`, `augmentation`). It
prints:

- evidence recall at 5 and 10 of passages, of all questions, the even- and the odd-numbered ones: of `dense`, `fused`,
  and `community_tree` with one setting after the other changed;
- what the nodes found hold, without passages, as the paper gives them to the model: the part of the answers that stand
  in their texts and relations (of the questions that have one), and their tokens; and what mixed hits hold;
- `fused` with `community_tree` at several weights;
- controls: the communities as built beside communities of the same sizes at random and none, as recall of evidence; and
  what entities alone hold beside all levels where both fill the same number of tokens;
- for entities only, then the store, the others, and communities that are found here (attributed and plain Leiden,
  spectral, without links by content, at random): CHI and Sim of each level (eqs. 5 and 6), and evidence recall with all
  levels and one. The vector of a community that is found here is the mean of its members' vectors, which stands in for
  its summary's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import indexmill
from benchmarks.clusterings.levels import Cluster, Level, levels_over
from benchmarks.clusterings.spectral import spectral
from benchmarks.communities import AUGMENTATIONS, mean_of_members
from benchmarks.lsh_retrieval import POOL, recalls
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import Question, read_questions
from indexmill.families.community_tree.entities import gains
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.ranking import rank_passages
from indexmill.families.community_tree.search import CommunityTree, nodes_of
from indexmill.hits import Hit
from indexmill.retrieve.base import PassageRetriever, QueryBatch, Ranking, Vectors
from indexmill.retrieve.fused import FusedParameters, combine
from indexmill.retrieve.grid import SCALE
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.passages import passages_of
from indexmill.snapshot import Snapshot
from tasks.core.communities.graph import Graph, Labels, Weighted, graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.levels import Stops
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre
from tasks.families.community_tree.chnsw import Level as Nodes
from tasks.families.community_tree.chnsw import build_chnsw

Rows = list[npt.NDArray[np.int64]]
Start = npt.NDArray[np.int64] | None

WEIGHTS = (0.02, 0.05, 0.1, 0.15, 0.3, 0.5, 1.0)
LEVELS = (("all levels", None), ("single layer", 1), ("entities only", 0))
HEADINGS = f"{'':64}{'recall':>8}{'answers':>9}{'entities':>10}{'communities':>13}{'passages':>10}{'tokens':>8}"
MEMBERS = 16  # of a community, where a clustering has to be told how many to find


def entity_graph(snapshot: Snapshot) -> Graph:
    """The entities, linked where they are related, with the vectors of their texts, in the order of the tree's rows."""
    tree = communities_of(snapshot).tree
    ids = snapshot.table("described", ["entity_id"]).column("entity_id").to_pylist()
    vectors = np.empty((tree.leaves, tree.index.vectors.shape[1]), np.float32)
    own = tree.index.level(0)
    vectors[tree.index_rows[own]] = tree.index.vectors[own].astype(np.float32) / SCALE
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    source = np.repeat(np.arange(tree.leaves), np.diff(tree.relations.indptr))
    return graph_of(ids, vectors, np.stack([source, tree.relations.indices.astype(np.int64)], axis=1))


def tree_over(tree: CommunityTree, levels: Sequence[Level]) -> CommunityTree:
    """A tree over the same entities with communities that were found here."""
    entities = levels[0].below if levels else None
    held = [] if entities is None else [entities.vectors, *(mean_of_members(level) for level in levels)]
    offsets = np.cumsum([0, tree.leaves, *(len(level.ids) for level in levels)]).astype(np.int64)
    parents = np.full(offsets[-1], -1, np.int32)
    children = []
    for number, level in enumerate(levels):
        parents[offsets[number] : offsets[number + 1]] = level.labels + offsets[number + 1]
        order = np.argsort(level.labels, kind="stable")
        cuts = np.cumsum(np.bincount(level.labels, minlength=len(level.ids)))[:-1]
        children += np.split(order + offsets[number], cuts)
    built = build_chnsw([Nodes([f"{row:09}" for row in range(len(one))], one) for one in held])
    return replace(
        tree,
        offsets=offsets,
        children=Sparse(np.cumsum([0, *map(len, children)]), np.concatenate([np.empty(0, np.int64), *children])),
        parents=parents,
        quality=np.array([measured(level) for level in levels]).reshape(-1, 2),
        index=built.index,
        index_rows=built.sources + np.repeat(offsets[:-1], np.diff(offsets)),
    )


def measured(level: Level) -> tuple[float, float]:
    chi = calinski_harabasz(level.below.vectors, level.labels)
    return float("nan") if chi is None else chi, cosine_to_centre(level.below.vectors, level.labels)


def at_random(graph: Graph, tree: CommunityTree, seed: int = 0) -> CommunityTree:
    """The tree with every level's members dealt out anew: communities of the same sizes."""
    draw = np.random.default_rng(seed)
    labels = [
        tree.parents[tree.offsets[level] : tree.offsets[level + 1]].astype(np.int64) - tree.offsets[level + 1]
        for level in range(tree.height)
    ]
    dealt = iter(labels)

    def cluster(weights: Weighted, start: Start) -> Labels:
        return draw.permutation(next(dealt))

    stops = Stops(len(labels), 1)
    return tree_over(tree, levels_over(graph, mean_of_members, AUGMENTATIONS["none"], cluster, stops))


def print_controls(snapshot: Snapshot, asking: Asking) -> None:
    tree, graph = communities_of(snapshot).tree, entity_graph(snapshot)
    for label, given in (("with names", {}), ("without names", {"name_weight": 0.0, "mention_weight": 1.0})):
        setting = replace(CommunityTreeParameters(), **given)  # type: ignore[arg-type]
        asking.show(f"{label}, entities only", asking.rows(tree, replace(setting, levels=0)))
        asking.show(f"{label}, communities as built", asking.rows(tree, setting))
        asking.show(f"{label}, communities at random", asking.rows(at_random(graph, tree), setting))
    print(HEADINGS)
    for budget in (500, 1000, 2000, 3000):
        for name, levels in (("entities only", 0), ("all levels", None)):
            given = {"passages": 0, "levels": levels, "k_level": 60, "token_budget": budget}
            print_case(snapshot, asking, f"{budget} tokens, {name}", 1000, given)


def variants(graph: Graph, sized: Mapping[str, int]) -> Iterator[tuple[str, list[Level]]]:
    """The levels of each way to find communities."""

    def attributed(weights: Weighted, start: Start) -> Labels:
        return leiden(weights, start, **sized)

    def plain(weights: Weighted, start: Start) -> Labels:
        return leiden(Weighted(weights.size, weights.edges, np.ones(len(weights.edges))), start, **sized)

    def parted(weights: Weighted, start: Start) -> Labels:
        return spectral(weights, max(1, weights.size // MEMBERS))

    def random(weights: Weighted, start: Start) -> Labels:
        return np.random.default_rng(0).permutation(attributed(weights, start))

    ways: dict[str, tuple[str, Cluster]] = {
        "attributed Leiden, codicil": ("codicil", attributed),
        "attributed Leiden, knn": ("knn", attributed),
        "attributed Leiden, no links added": ("none", attributed),
        "plain Leiden": ("none", plain),
        "spectral, codicil": ("codicil", parted),
        "spectral, no links added": ("none", parted),
        "at random": ("codicil", random),
    }
    for name, (links, cluster) in ways.items():
        yield name, levels_over(graph, mean_of_members, AUGMENTATIONS[links], cluster, Stops())


class Asking:
    """The questions, and what is printed of the passages that anything finds for them."""

    def __init__(self, snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors) -> None:
        self.questions, self.vectors = questions, vectors
        self.texts = [one.question for one in questions]
        self.passages = passage_vectors_of(snapshot)
        self.documents = passages_of(snapshot).document_ids()
        names = communities_of(snapshot).names
        self.linked = names.links(QueryBatch(self.texts, vectors, explain=False))
        self.residual = names.residual(vectors, self.linked)

    def rows(self, tree: CommunityTree, setting: CommunityTreeParameters) -> Rows:
        """The POOL passages that a tree ranks first for each question."""
        asked = QueryBatch(self.texts, self.vectors, explain=False)
        setting = setting.applied()
        levels = nodes_of(tree, self.vectors, setting.reach, setting, ~tree.single)
        gained = gains(tree, self.linked, self.residual, setting)
        return [one.rows for one in rank_passages(tree, self.passages, asked, levels, gained, setting, POOL)]

    def show(self, label: str, rows: Rows) -> None:
        halves = [recalls(self.questions[half::2], rows[half::2], self.documents) for half in (0, 1)]
        found = recalls(self.questions, rows, self.documents)
        print(f"{label:64} {found}   even {halves[0]}   odd {halves[1]}", flush=True)


def print_variants(snapshot: Snapshot, asking: Asking, others: Mapping[str, str], sized: Mapping[str, int]) -> None:
    own = communities_of(snapshot).tree
    asking.show("entities only", asking.rows(own, CommunityTreeParameters(levels=0)))
    print_variant(asking, "as built", own)
    for name, place in others.items():
        with opened(place) as other:
            print_variant(asking, name, communities_of(other).tree)
    for name, levels in variants(entity_graph(snapshot), sized):
        print_variant(asking, name, tree_over(own, levels))


def print_variant(asking: Asking, name: str, tree: CommunityTree) -> None:
    """How good its levels are, and what is found with them."""
    for number, (chi, sim) in enumerate(tree.quality.tolist(), start=1):
        print(f"{name}: level {number}, {len(tree.rows(number)):,} communities, CHI {chi:.3f}, Sim {sim:.4f}")
    for label, levels in (("all levels", None), ("single layer", 1)):
        asking.show(f"{name}, {label}", asking.rows(tree, CommunityTreeParameters(levels=levels)))


def print_settings(asking: Asking, tree: CommunityTree) -> None:
    tried: list[dict[str, Any]] = [
        *({"reach": reach} for reach in (5, 10, 15, 20, 30, 40)),
        *({"spread": spread} for spread in (0.0, 0.25, 0.5, 1.0)),
        *({"similarity_weight": weight} for weight in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)),
        *({"community_weight": weight} for weight in (0.0, 0.5, 1.0, 2.0)),
        *({"ef": ef} for ef in (24, 64, 256)),
        *({"mention_weight": weight} for weight in (0.1, 0.25, 0.5, 1.0)),
        *({"hops": hops} for hops in (5, 10, 20, 40)),
        {"hop_weight": 0.0},
        {"name_weight": 0.0},
        {"preset": "paper"},
    ]
    for given in tried:
        rows = asking.rows(tree, replace(CommunityTreeParameters(), **given))
        asking.show(", ".join(f"{name} {value}" for name, value in given.items()), rows)


def ranks(snapshot: Snapshot, name: str, asking: Asking) -> list[Ranking]:
    retriever = snapshot.retriever(name)
    if not isinstance(retriever, PassageRetriever):
        raise TypeError(f"{name} ranks no passages")
    asked = QueryBatch(asking.texts, asking.vectors, snapshot.encode, explain=False)
    return list(retriever.rank(asked, POOL))


def print_fused(snapshot: Snapshot, asking: Asking) -> None:
    weights = {name: weight for name, weight in FusedParameters().weights(snapshot.methods).items() if weight}
    weights.pop("community_tree", None)
    lists = {name: ranks(snapshot, name, asking) for name in (*weights, "community_tree", "dense")}
    sets = [("fused", weights)]
    if len(weights) > 2:
        sets.append(("bm25 and dense", {"bm25": 1.0, "dense": 1.0}))
    for label, others in sets:
        for weight in (0.0, *WEIGHTS):
            used = {**others, "community_tree": weight} if weight else others
            every = range(len(asking.questions))
            rows = [combine({name: lists[name][i] for name in used}, used, POOL, POOL).rows for i in every]
            asking.show(f"{label}, community_tree {weight:g}", rows)


def told(hits: Sequence[Hit]) -> str:
    """All that hits say, relations included."""
    lines = [f"{hit.title}\n{hit.text}" for hit in hits]
    lines += [one["description"] for hit in hits for one in (hit.explanation or {}).get("relations", ())]
    return "\n".join(lines).casefold()


def print_hits(snapshot: Snapshot, asking: Asking, others: Mapping[str, str]) -> None:
    print(HEADINGS)
    cases: list[tuple[str, int, dict[str, Any]]] = [
        *((f"nodes alone, {label}", 1000, {"passages": 0, "levels": levels}) for label, levels in LEVELS),
        *((f"nodes alone, {k} of each level", 1000, {"passages": 0, "k_level": k}) for k in (2, 10)),
        *((f"mixed, {k} hits", k, {}) for k in (5, 10, 25)),
        *(
            (f"mixed, {k} hits, level_weight {weight}", k, {"level_weight": weight})
            for k in (10,)
            for weight in (0.8, 1.2)
        ),
        *((f"dense, {k} hits", k, {}) for k in (5, 10)),
    ]
    for label, k, given in cases:
        print_case(snapshot, asking, label, k, given)
    for name, place in others.items():
        with opened(place) as other:
            for label, levels in LEVELS[:2]:
                print_case(other, asking, f"{name}, {label}", 1000, {"passages": 0, "levels": levels})


def print_case(snapshot: Snapshot, asking: Asking, label: str, k: int, given: dict[str, Any]) -> None:
    method = "dense" if label.startswith("dense") else "community_tree"
    found = snapshot.retrieve_batch(asking.texts, method=method, k=k, vectors=asking.vectors, parameters=given)
    recall, stands, counted = [], [], []
    for question, hits in zip(asking.questions, found, strict=True):
        documents = {one for hit in hits if hit.kind == "passage" for one in hit.document_ids}
        recall.append(len(documents & set(question.gold_ids)) / len(question.gold_ids))
        if right := [answer.casefold() for answer in question.answers if len(answer) > 3]:  # not "yes" and "no"
            said = told(hits)
            stands.append(any(answer in said for answer in right))
        kinds = [sum(hit.kind == kind for hit in hits) for kind in ("entity", "community", "passage")]
        counted.append((*kinds, sum(hit.tokens or 0 for hit in hits)))
    means = np.mean(counted, axis=0)
    share = f"{np.mean(stands):9.3f}" if stands else f"{'-':>9}"
    print(f"{label:64}{np.mean(recall):8.4f}{share}{means[0]:10.2f}{means[1]:13.2f}{means[2]:10.2f}{means[3]:8.0f}")


def opened(place: str) -> Snapshot:
    """The snapshot of ``STORE`` or ``STORE@VERSION``."""
    store, _, version = place.partition("@")
    return indexmill.open(store, version=int(version) if version else None)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=STORE[@VERSION]")
    parser.add_argument(
        "--only", choices=("settings", "hits", "fused", "controls", "variants"), help="print one part alone"
    )
    parser.add_argument("--grain", type=int, default=400, help="nodes per unit of Leiden's resolution; 0: resolution 1")
    parser.add_argument("--largest", type=int, default=50, help="most members of a community of Leiden's; 0: no bound")
    chosen = parser.parse_args()
    questions = read_questions(chosen.questions)
    print(describe_machine())
    with opened(chosen.store) as snapshot:
        print(f"{snapshot.manifest.corpus.passages} passages, {snapshot.manifest.families['community_tree'].counts}")
        others = dict(named.split("=", 1) for named in chosen.other)
        asking = Asking(snapshot, questions, snapshot.encode([one.question for one in questions]))
        for method in ("dense", "fused"):
            asking.show(method, [one.rows for one in ranks(snapshot, method, asking)])
        sized = {"grain": chosen.grain, "largest": chosen.largest}
        sections: dict[str, Callable[[], None]] = {
            "settings": lambda: print_settings(asking, communities_of(snapshot).tree),
            "hits": lambda: print_hits(snapshot, asking, others),
            "fused": lambda: print_fused(snapshot, asking),
            "controls": lambda: print_controls(snapshot, asking),
            "variants": lambda: print_variants(snapshot, asking, others, sized),
        }
        for name, section in sections.items():
            if chosen.only in (None, name):
                print()
                section()


if __name__ == "__main__":
    main()
