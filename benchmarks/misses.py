"""Explain why a method misses evidence.

    python -m benchmarks.misses STORE QUESTIONS.jsonl [--method fused] [-k 5] [--show 20] [--cause drowned]

`indexmill evaluate --misses` lists missed documents and what was found instead. For every gold document that is not
among the first k distinct documents, this adds the cause in the tri-graph, which all entity-based methods share. An
entity is specific if at most 20 documents mention it.

    absent          the snapshot does not contain the document
    no name         the question names no entity
    not recognised  the document has no recognised mention
    not linked      the document shares no entity with the rest of the evidence or with the question
    pruned          a specific entity of the document is activated only without the activation threshold
    not reached     no specific entity of the document is activated, with or without the threshold
    drowned         a specific entity of the document is activated, but other documents rank above it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import indexmill
from benchmarks.machine import argument_parser
from indexmill.command.misses import titles_of
from indexmill.evaluate.recall import Question, evaluate, read_questions
from indexmill.families.tri_graph.retriever import open_tri_graph
from indexmill.families.tri_graph.search import Retrieved, TriGraph
from indexmill.retrieve.columns import parts
from indexmill.retrieve.retrieval_method import QueryBatch


class Causes:
    """Finds the cause of a missed gold document."""

    def __init__(self, graph: TriGraph, documents: Sequence[str]) -> None:
        self._graph = graph
        self._bare = replace(graph, parameters=replace(graph.parameters, pruning=False))
        self._passages: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            self._passages.setdefault(document, []).append(row)

    def entities(self, document: str) -> set[int]:
        contents = self._graph.matrices.contents
        rows = np.array(self._passages.get(document, []), dtype=np.int64)
        return set(contents.links(rows)[1].tolist())

    def cause(self, question: Question, document: str, vector: np.ndarray, retrieved: Retrieved) -> str:
        """Return the cause, as named in the module's docstring."""
        if document not in self._passages:
            return "absent"
        if not retrieved.links:
            return "no name"
        entities = self.entities(document)
        if not entities:
            return "not recognised"
        others = {link.entity for link in retrieved.links}
        for gold in question.gold_ids:
            if gold != document:
                others |= self.entities(gold)
        if not entities & others:
            return "not linked"
        # An entity that many documents mention is activated for many reasons and leads to none of them in particular.
        narrow = {entity for entity in entities if self._graph.matrices.spread(np.array([entity]))[0] <= 20}
        if narrow.intersection(parts(retrieved.active.pairs)[1].tolist()):
            return "drowned"
        ((bare,),) = self._bare.tiles(QueryBatch([question.question], vector[None]), 1)
        return "pruned" if narrow.intersection(parts(bare.active.pairs)[1].tolist()) else "not reached"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="fused")
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--show", type=int, default=20, help="the number of missed documents to print")
    parser.add_argument("--cause", help="print only misses with this cause")
    chosen = parser.parse_args()
    questions = read_questions(chosen.questions)
    counted: Counter[str] = Counter()
    shown = 0
    with indexmill.open(chosen.store) as snapshot:
        rows = snapshot.table("passages", ["document_id"]).column("document_id").to_pylist()
        titles = titles_of(snapshot)
        graph = open_tri_graph(snapshot)
        causes = Causes(graph, rows)
        texts = [question.question for question in questions]
        vectors = snapshot.encode(texts)
        tiles = graph.tiles(QueryBatch(texts, vectors, snapshot.encode), 1)
        answers = [retrieved for tile in tiles for retrieved in tile]
        results = evaluate(snapshot, questions, [chosen.method], (chosen.k,)).methods[chosen.method].each
        for question, vector, retrieved, result in zip(questions, vectors, answers, results, strict=True):
            for document, _ in result.missed(chosen.k):
                cause = causes.cause(question, document, vector, retrieved)
                counted[cause] += 1
                if shown < chosen.show and chosen.cause in (None, cause):
                    shown += 1
                    named = ", ".join(link.name for link in retrieved.links) or "-"
                    print(f"{question.question}\n   {titles.get(document, document)}: {cause}; named: {named}")
    total = sum(len(question.gold_ids) for question in questions)
    print(f"{sum(counted.values())} of {total} gold documents are not among the first {chosen.k}")
    for cause, count in counted.most_common():
        print(f"{count:>6}  {cause}")


if __name__ == "__main__":
    main()
