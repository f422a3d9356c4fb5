"""The heterograph's ablations on a built snapshot, for `python -m benchmarks.heterograph --store`.

The ablations of the paper's table 2, the depth of the walk (figure 4), and other settings. Each line measures all hits
of a question with 10 nodes of each kind: recall at 5 and 10 distinct documents, once by texts alone and once by texts,
units and relations; recall of all shown documents; the number of nodes of each kind, and the tokens of all hits. If the
walk reaches fewer than 10 texts, the nearest texts follow. Lines `of texts alone` measure what `fused` and `evaluate`
use.

- `without near edges`: the walk ignores near edges (the paper's "without HNSW");
- `without names`: entries by vector alone ("without dual search");
- `without the walk`: the k nearest of all nodes with a vector ("without cross node": top-k vector similarity over all
  node data), and the k nearest entry nodes.
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
"""Nodes of each kind that the walk returns."""

ALL = 1000
"""Requested hits: more than the entries and the nodes of each kind together."""

EVERY, EVEN, ODD = slice(None), slice(0, None, 2), slice(1, None, 2)
STEPS = (1, 2, 3, 4, 5, 6, 8, 10)
SETTINGS: dict[str, Sequence[object]] = {
    "restart": (0.2, 0.3, 0.5, 0.7, 0.85),
    "entries": (3, 5, 10, 20),
    "names": (1, 5, 10, 20, 50),
}


class Asking:
    """The questions, their hits under changed settings, and the lines of the tables."""

    def __init__(self, snapshot: Snapshot, questions: Sequence[Question], overrides: Mapping[str, object]) -> None:
        self.snapshot, self.questions = snapshot, questions
        self.vectors = snapshot.encode([question.question for question in questions])
        retriever = snapshot.retriever("heterograph")
        if not isinstance(retriever, HeterographReader):
            raise TypeError("the method 'heterograph' is not read by HeterographReader")
        self.reader = retriever.with_parameters({"texts": EACH, **overrides})

    def query_batches(self) -> Iterator[QueryBatch]:
        for texts, vectors in batches(self.questions, self.vectors):
            yield QueryBatch(texts, vectors, self.snapshot.encode, explain=False)

    def shown_hits(self, reader: HeterographReader | None = None, **changed: object) -> list[list[Shown]]:
        """Return all hits of each question with some settings changed."""
        used = (reader or self.reader).with_parameters(changed)
        return [of_hits(hits) for batch in self.query_batches() for hits in used.search(batch, ALL)]

    def nearest(self, k: int, texts: bool) -> list[list[Shown]]:
        """Return the k nodes with a vector that are nearest to each question. texts: whether texts are among them."""
        nodes = heterograph_of(self.snapshot)
        passages = passage_vectors_of(self.snapshot).untitled
        shown = []
        for batch in self.query_batches():
            near = nodes.nearest(batch.vectors, k)
            nearest_texts = (
                passages.nearest_to(batch, k) if texts else [(rows[:0], scores[:0]) for rows, scores in near]
            )
            for (rows, scores), (of_texts, cosines) in zip(near, nearest_texts, strict=True):
                every = np.concatenate([nodes.of_passages(of_texts), rows])
                order = np.argsort(-np.concatenate([cosines, scores]), kind="stable")[:k]
                shown.append(of_hits(nodes.hits(every[order], np.zeros(len(order)))))
        return shown

    def head(self, label: str) -> None:
        kinds = "".join(f"{kind:>6}" for kind in KINDS[:5])
        print(f"{label:44}{'texts':>15}{'and units':>16}{'of all shown':>17}{kinds}{'tokens':>8}")

    def show(self, label: str, shown: Sequence[Sequence[Shown]], some: slice = EVERY) -> None:
        """Print a line of the table. some: the questions that it counts."""
        questions, shown = self.questions[some], shown[some]

        def mean(evidence: frozenset[str], k: int | None) -> float:
            return float(np.mean([recalled(*pair, evidence, k) for pair in zip(questions, shown, strict=True)]))

        cells = [f"{mean(evidence, 5):8.3f} / {mean(evidence, 10):.3f}" for evidence in (BY_TEXTS, BY_UNITS)]
        every = f"{mean(BY_TEXTS, None):9.3f} / {mean(BY_UNITS, None):.3f}"
        counts = [np.mean([sum(hit.kind == SHOWN[kind] for hit in hits) for hits in shown]) for kind in KINDS[:5]]
        tokens = np.mean([sum(hit.tokens for hit in hits) for hits in shown])
        print(
            f"{label:44}{''.join(cells)}{every}{''.join(f'{count:6.1f}' for count in counts)}{tokens:8.0f}", flush=True
        )


def without_near(snapshot: Snapshot, graph: Heterograph) -> Heterograph:
    """Return the graph without its near edges."""
    nodes, edges = snapshot.table("heterograph/nodes"), snapshot.table("heterograph/edges")
    rest = graph_of_tables(nodes, edges.filter(pc.not_equal(edges["kind"], "near")))
    return replace(graph, links=rest.links, edge_kinds=rest.link_kinds)


def print_ablations(asking: Asking) -> None:
    """Print the ablations of table 2, and `dense`."""
    snapshot, reader = asking.snapshot, asking.reader
    asking.head("table 2")
    asking.show("as it is", asking.shown_hits())
    less = copy.copy(reader)
    less._graph = without_near(snapshot, reader._graph)  # no setting removes edges from the snapshot's graph
    asking.show("without near edges", asking.shown_hits(less))
    asking.show("without names: entries by vector alone", asking.shown_hits(names=0))
    asking.show("without vectors: by name alone (ours)", asking.shown_hits(entries=0))
    for k in (10, 20, 30):
        asking.show(f"without the walk: {k} of all with a vector", asking.nearest(k, texts=True))
    for k in (10, 20, 30):
        asking.show(f"without the walk: {k} units, attributes, ...", asking.nearest(k, texts=False))
    dense = snapshot.retriever("dense")
    if isinstance(dense, PassageRetriever):
        asking.show("dense: 10 texts", ranked_texts(snapshot, dense, asking.questions, asking.vectors, EACH))
    asking.show("texts alone", texts_alone(asking))


def texts_alone(asking: Asking, **changed: object) -> list[list[Shown]]:
    """Return the texts that are ranked first."""
    used = asking.reader.with_parameters(changed)
    return ranked_texts(asking.snapshot, used, asking.questions, asking.vectors, 2 * EACH)


def print_depth(asking: Asking) -> None:
    """Print figure 4."""
    for label, hits_after in (
        ("figure 4: steps of the walk", lambda steps: asking.shown_hits(steps=steps)),
        ("the same, of texts alone", lambda steps: texts_alone(asking, steps=steps)),
    ):
        asking.head(label)
        for steps in STEPS:
            asking.show(f"t = {steps}", hits_after(steps))


def print_settings(asking: Asking) -> None:
    """Print each setting, by texts alone, over all questions and over each half."""
    asking.head("settings, of texts alone")
    for name, values in SETTINGS.items():
        for value in values:
            shown = texts_alone(asking, **{name: value})
            asking.show(f"{name} {value}", shown)
            asking.show("    even questions", shown, EVEN)
            asking.show("    odd questions", shown, ODD)
