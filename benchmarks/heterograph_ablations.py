"""The heterograph's ablations on a built snapshot: `python -m benchmarks.heterograph --store` prints them.

The ablations of the paper's table 2, the depth of the walk (figure 4), and other settings. A line is of all that a
question is given with 10 nodes of each kind: recall at 5 and 10 distinct documents in their order, once of texts alone,
once of texts, units and relations by the documents that say them; then of all documents that are shown; how many nodes
there are of each kind, and the tokens of all. Where the walk reaches fewer than 10 texts, the nearest ones follow.
Where it says `of texts alone`, it is what `fused` and `evaluate` take.

- `without near edges`: the walk is on the graph less these (the paper's "without HNSW");
- `without names`: entries by vector alone ("without dual search");
- `without the walk`: the k nearest of all nodes that have a vector ("without cross node": top-k vector similarity over
  all node data), and of those alone that a question enters at.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from benchmarks.budgets import BY_TEXTS, BY_UNITS, Shown, batches, of_hits, ranked_texts, recalled
from indexmill.evaluate.recall import Question
from indexmill.families.heterograph.nodes import SHOWN, heterograph_of
from indexmill.families.heterograph.retriever import HeterographReader
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.retrieve.base import PassageRetriever, QueryBatch
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.snapshot import Snapshot
from tasks.families.heterograph.graph import graph_of_tables

EACH = 10
"""Nodes of each kind that the walk gives."""

ALL = 1000
"""Hits that are asked for: more than there are entries and nodes of each kind."""

EVERY, EVEN, ODD = slice(None), slice(0, None, 2), slice(1, None, 2)
STEPS = (1, 2, 3, 4, 5, 6, 8, 10)
SETTINGS: dict[str, Sequence[object]] = {
    "restart": (0.2, 0.3, 0.5, 0.7, 0.85),
    "entries": (3, 5, 10, 20),
    "names": (1, 5, 10, 20, 50),
}


class Asking:
    """The questions, and the lines of the tables that are printed of what they are given."""

    def __init__(self, snapshot: Snapshot, questions: Sequence[Question], given: Mapping[str, object]) -> None:
        self.snapshot, self.questions = snapshot, questions
        self.vectors = snapshot.encode([one.question for one in questions])
        retriever = snapshot.retriever("heterograph")
        if not isinstance(retriever, HeterographReader):
            raise TypeError("the method 'heterograph' is not read by HeterographReader")
        self.reader = retriever.with_parameters({"texts": EACH, **given})

    def asked(self) -> Iterator[QueryBatch]:
        for texts, vectors in batches(self.questions, self.vectors):
            yield QueryBatch(texts, vectors, self.snapshot.encode, explain=False)

    def given(self, reader: HeterographReader | None = None, **changed: object) -> list[list[Shown]]:
        """All that each question is given with some settings changed."""
        used = (reader or self.reader).with_parameters(changed)
        return [of_hits(hits) for asked in self.asked() for hits in used.search(asked, ALL)]

    def nearest(self, k: int, texts: bool) -> list[list[Shown]]:
        """The k nodes nearest to each question of all that have a vector; texts: whether these are among them."""
        nodes = heterograph_of(self.snapshot)
        passages = passage_vectors_of(self.snapshot).untitled
        found = []
        for asked in self.asked():
            near = nodes.nearest(asked.vectors, k)
            held = passages.nearest_to(asked, k) if texts else [(rows[:0], scores[:0]) for rows, scores in near]
            for (rows, scores), (of_texts, cosines) in zip(near, held, strict=True):
                every = np.concatenate([nodes.of_passages(of_texts), rows])
                order = np.argsort(-np.concatenate([cosines, scores]), kind="stable")[:k]
                found.append(of_hits(nodes.hits(every[order], np.zeros(len(order)))))
        return found

    def head(self, label: str) -> None:
        kinds = "".join(f"{kind:>6}" for kind in KINDS[:5])
        print(f"{label:44}{'texts':>15}{'and units':>16}{'of all shown':>17}{kinds}{'tokens':>8}")

    def show(self, label: str, found: Sequence[Sequence[Shown]], some: slice = EVERY) -> None:
        """some: of which questions."""
        questions, found = self.questions[some], found[some]

        def mean(evidence: frozenset[str], k: int | None) -> float:
            return float(np.mean([recalled(*one, evidence, k) for one in zip(questions, found, strict=True)]))

        cells = [f"{mean(evidence, 5):8.3f} / {mean(evidence, 10):.3f}" for evidence in (BY_TEXTS, BY_UNITS)]
        every = f"{mean(BY_TEXTS, None):9.3f} / {mean(BY_UNITS, None):.3f}"
        counts = [np.mean([sum(one.kind == SHOWN[kind] for one in hits) for hits in found]) for kind in KINDS[:5]]
        tokens = np.mean([sum(one.tokens for one in hits) for hits in found])
        print(f"{label:44}{''.join(cells)}{every}{''.join(f'{one:6.1f}' for one in counts)}{tokens:8.0f}", flush=True)


def without_near(snapshot: Snapshot, graph: Heterograph) -> Heterograph:
    """The graph less its near edges."""
    nodes, edges = snapshot.table("heterograph/nodes"), snapshot.table("heterograph/edges")
    rest = graph_of_tables(nodes, edges.filter(pc.not_equal(edges["kind"], "near")))
    return replace(graph, links=rest.links, edge_kinds=rest.link_kinds)


def print_ablations(asking: Asking) -> None:
    """The ablations of table 2, and `dense`."""
    snapshot, reader = asking.snapshot, asking.reader
    asking.head("table 2")
    asking.show("as it is", asking.given())
    less = copy.copy(reader)
    less._graph = without_near(snapshot, reader._graph)  # no setting does it: the graph is the snapshot's
    asking.show("without near edges", asking.given(less))
    asking.show("without names: entries by vector alone", asking.given(names=0))
    asking.show("without vectors: by name alone (ours)", asking.given(entries=0))
    for k in (10, 20, 30):
        asking.show(f"without the walk: {k} of all with a vector", asking.nearest(k, texts=True))
    for k in (10, 20, 30):
        asking.show(f"without the walk: {k} units, attributes, ...", asking.nearest(k, texts=False))
    dense = snapshot.retriever("dense")
    if isinstance(dense, PassageRetriever):
        asking.show("dense: 10 texts", ranked_texts(snapshot, dense, asking.questions, asking.vectors, EACH))
    asking.show("texts alone", texts_alone(asking))


def texts_alone(asking: Asking, **changed: object) -> list[list[Shown]]:
    """The texts that are ranked first."""
    used = asking.reader.with_parameters(changed)
    return ranked_texts(asking.snapshot, used, asking.questions, asking.vectors, 2 * EACH)


def print_depth(asking: Asking) -> None:
    """Figure 4."""
    for label, found in (
        ("figure 4: steps of the walk", lambda steps: asking.given(steps=steps)),
        ("the same, of texts alone", lambda steps: texts_alone(asking, steps=steps)),
    ):
        asking.head(label)
        for steps in STEPS:
            asking.show(f"t = {steps}", found(steps))


def print_settings(asking: Asking) -> None:
    """Settings one by one, of texts alone, with the two halves of the questions."""
    asking.head("settings, of texts alone")
    for name, values in SETTINGS.items():
        for value in values:
            found = texts_alone(asking, **{name: value})
            asking.show(f"{name} {value}", found)
            asking.show("    even questions", found, EVEN)
            asking.show("    odd questions", found, ODD)
