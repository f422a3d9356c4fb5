"""Measure the cost of the summaries of a growing corpus: calls and tokens of each insertion, and of a rebuild instead.

    python -m benchmarks.lsh_tree STORE QUESTIONS.jsonl [--quick]

STORE is a snapshot with bm25 and lsh_tree; its passages, vectors, encoder, bounds and hyperplanes are used. Summaries
are extractive and encoded as in a build. Each is charged the prompt that a language model would get (instructions and
delimited texts) and the summary as output, both by `estimate_tokens`: four bytes of UTF-8 are a token; endpoints may
count differently. A node or request that was charged before is not charged again. EraRAG's protocol: half of the
documents first, then ten insertions of 5 %.

- The tree of all passages, compared with the store's: equal nodes show that the pipeline's requests were sent.
- Ten insertions, in random order and by question. There, each question adds its evidence and the documents that BM25
  finds for it, ten in all, as HotpotQA was collected; documents of no question come first. (The order in the file is
  random, that of a hash.) `floor` is the least cost of any tree that depends only on the set of passages: the cost
  of the summaries above a new passage.
- One more document added to some documents: calls and tokens, compared with a rebuild.
- The digest of the tree after the insertions in each order.

--quick takes 600 documents and a tenth of the tries: about a minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.errors import IndexmillError
from indexmill.evaluate.recall import Question, read_questions
from indexmill.models.llm import Request, object_schema
from indexmill.snapshot import Snapshot
from indexmill.store.canonical import canonical_json, digest_of
from schemas.config import Configuration
from tasks.core.groups import hex_ids, id_bytes
from tasks.core.shards import estimate_tokens
from tasks.families.lsh_tree.hierarchy import Bounds, Layer, LayerNodes, layer_over
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.llm.answer_parsing import prose
from tasks.llm.prompts import prompt
from tasks.stages.embed.embed import row_key
from tasks.stages.split.split import embedded_text
from tasks.stages.write.summarise import Extractive, fingerprint, text_request

TOKENS = 100
SUMMARY = prompt("summary")
FINGERPRINT = digest_of(canonical_json(fingerprint(Configuration(), None, TOKENS)))
GATHERED = 10
STEPS = tuple(range(50, 101, 5))
CALLS, PROMPT, OUTPUT = range(3)

Cost = np.ndarray  # calls, tokens of prompts, tokens of answers: (3,) int64


@dataclass(frozen=True)
class TreeNode:
    """A passage or a summary. cost: the cost of generating the summary; zeros for a passage."""

    text: str
    digest: str
    vector: np.ndarray
    cost: Cost


class TreeCorpus:
    """The passages of some documents, and the bounds and hyperplanes of the store's tree."""

    def __init__(self, snapshot: Snapshot, questions: Sequence[Question], most: int | None) -> None:
        passages = snapshot.table("passages", ["passage_id", "document_id", "text"]).to_pylist()
        documents = snapshot.table("documents", ["document_id", "title"]).to_pylist()
        titles = {row["document_id"]: row["title"] for row in documents}
        vectors = np.concatenate([np.asarray(shard) for shard in snapshot.vectors("vectors", "passages")])
        self.by_question = order_by_question(snapshot, questions, sorted(titles))[-(most or len(titles)) :]
        selected = set(self.by_question)
        self.documents: dict[str, list[str]] = {document: [] for document in sorted(selected)}
        self.nodes: dict[str, TreeNode] = {}
        for row, vector in zip(passages, vectors, strict=True):
            if row["document_id"] in selected:
                text = embedded_text(titles[row["document_id"]], row["text"])
                self.nodes[row["passage_id"]] = TreeNode(text, row_key(text).hex(), vector, np.zeros(3, dtype=np.int64))
                self.documents[row["document_id"]].append(row["passage_id"])
        arrays = snapshot.arrays("lsh_tree/tree")
        smallest, largest, layers, seed = arrays["bounds"].tolist()
        self.bounds = Bounds(smallest, largest, layers)
        self.planes = StoredPlanes(seed, arrays["hyperplanes"])
        self._rows = {passage: row for row, passage in enumerate(self.nodes)}
        self._codes = self.planes.codes(np.stack([node.vector for node in self.nodes.values()]))
        self.at_random = np.random.default_rng(0).permutation(sorted(selected)).tolist()

    def passages(self, documents: Iterable[str]) -> list[str]:
        return sorted(passage for document in documents for passage in self.documents[document])

    def lowest(self, documents: Iterable[str]) -> LayerNodes:
        """Return the passages of some documents as the lowest layer."""
        ids = self.passages(documents)
        rows = [self._rows[passage] for passage in ids]
        digests = [self.nodes[passage].digest for passage in ids]
        return LayerNodes(id_bytes(ids), id_bytes(digests), self._codes[rows])


class StoredPlanes(Hyperplanes):
    """The hyperplanes of a store: the first block as stored, later blocks generated from the seed."""

    def __init__(self, seed: int, first: np.ndarray) -> None:
        super().__init__(seed, first.shape[1])
        self._first = np.array(first)

    def normals(self, block: int = 0) -> np.ndarray:
        normals: np.ndarray = super().normals(block) if block else self._first
        return normals


def order_by_question(snapshot: Snapshot, questions: Sequence[Question], documents: Sequence[str]) -> list[str]:
    """Return the documents of no question, in random order, followed by the documents of each question in turn."""
    hits_by_question = snapshot.retrieve_batch(
        [one.question for one in questions], method="bm25", k=GATHERED, explain=False
    )
    brought: dict[str, None] = {}
    for question, hits in zip(questions, hits_by_question, strict=True):
        near = [document for hit in hits for document in hit.document_ids]
        brought.update(dict.fromkeys(list(dict.fromkeys([*question.gold_ids, *near]))[:GATHERED]))
    others = [document for document in documents if document not in brought]
    return [*np.random.default_rng(1).permutation(others).tolist(), *brought]


class SummaryCache:
    """Summaries by request. Each is computed once, whichever corpus is charged for it."""

    def __init__(self, encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        self._extractive = Extractive(TOKENS)
        self._encode = encode
        self.nodes: dict[bytes, TreeNode] = {}

    def answer(self, requests: Mapping[bytes, tuple[Request, list[TreeNode]]]) -> None:
        new = {key: entry for key, entry in requests.items() if key not in self.nodes}
        if not new:
            return
        texts = [self._extractive.summary([child.text for child in children]) for _, children in new.values()]
        for (key, (request, _)), text, vector in zip(new.items(), texts, self._encode(texts), strict=True):
            cost = np.array([1, tokens(request.instructions + request.content), tokens(text)])
            self.nodes[key] = TreeNode(text, row_key(text).hex(), vector, cost)


def tokens(text: str) -> int:
    return estimate_tokens(len(text.encode("utf-8")))


class Growing:
    """A changing corpus, with its summaries and their cost."""

    def __init__(self, corpus: TreeCorpus, summaries: SummaryCache) -> None:
        self.corpus = corpus
        self.spent = np.zeros(3, dtype=np.int64)
        self.nodes: dict[str, TreeNode] = dict(corpus.nodes)
        self._summaries = summaries
        self._charged: set[bytes] = set()

    def tree(self, documents: Iterable[str]) -> list[Layer]:
        """Return the layers over some documents; missing summaries are generated and charged."""
        below = self.corpus.lowest(documents)
        layers: list[Layer] = []
        while self.corpus.bounds.want_another(len(layers), len(below.ids)):
            layer = layer_over(len(layers) + 1, below, self.corpus.bounds, FINGERPRINT)
            self._ask(layer)
            layers.append(layer)
            digests = [self.nodes[node].digest for node in hex_ids(layer.ids)]
            below = LayerNodes(layer.ids, id_bytes(digests), layer.codes)
        return layers

    def _ask(self, layer: Layer) -> None:
        requests: dict[bytes, tuple[Request, list[TreeNode]]] = {}
        keys: dict[str, bytes] = {}
        for node, children in layer.inputs():
            if node not in self.nodes:
                child_nodes = [self.nodes[child] for child, _ in children]
                texts = [child.text for child in child_nodes]
                schema = object_schema(summary=prose(TOKENS))
                request = text_request("summary", SUMMARY, texts, schema, tokens=TOKENS, about=[], makes=node)
                keys[node] = hashlib.sha256((request.instructions + request.content).encode("utf-8")).digest()
                requests[keys[node]] = request, child_nodes
        self._summaries.answer(requests)
        for node, key in keys.items():
            self.nodes[node] = self._summaries.nodes[key]
            self.spent += 0 if key in self._charged else self.nodes[node].cost
            self._charged.add(key)

    def cost(self, nodes: Iterable[str]) -> Cost:
        costs = [self.nodes[node].cost for node in nodes]
        return np.asarray(np.sum(costs, axis=0) if costs else np.zeros(3, dtype=np.int64))

    def digest(self, layers: Sequence[Layer]) -> str:
        """Hash all nodes with their children, summaries and vectors."""
        hashed = hashlib.sha256()
        for layer in layers:
            for node, children in sorted(layer.inputs()):
                hashed.update(canonical_json([layer.number, node, children, self.nodes[node].text]))
                hashed.update(self.nodes[node].vector.tobytes())
        return hashed.hexdigest()[:16]


def all_ids(layers: Sequence[Layer]) -> list[str]:
    return [node for layer in layers for node in hex_ids(layer.ids)]


def above(layers: Sequence[Layer], new: Iterable[str]) -> list[str]:
    """Return the summaries that have at least one of the new passages below them."""
    passages = list(new)
    below = set(passages)
    summaries: list[str] = []
    for layer in layers:
        below = {node for node, children in layer.inputs() if any(child in below for child, _ in children)}
        summaries += below
    return summaries


@dataclass(frozen=True)
class Insertion:
    """An insertion: the number of passages after it, its cost, the least possible cost, and the cost of a rebuild."""

    passages: int
    spent: Cost
    least: Cost
    rebuilt: Cost


def insert(growing: Growing, order: Sequence[str], counts: Sequence[int]) -> tuple[list[Insertion], list[Layer]]:
    """Insert documents in order, from the first count up to each later one; return the insertions and last layers."""
    steps: list[Insertion] = []
    layers = growing.tree(order[: counts[0]])
    for before, now in pairwise(counts):
        spent = growing.spent.copy()
        layers = growing.tree(order[:now])
        least = growing.cost(above(layers, growing.corpus.passages(order[before:now])))
        rebuilt = growing.cost(all_ids(layers))
        steps.append(Insertion(len(growing.corpus.passages(order[:now])), growing.spent - spent, least, rebuilt))
    return steps, layers


def total(steps: Sequence[Insertion], name: str) -> Cost:
    return np.asarray(np.sum([getattr(step, name) for step in steps], axis=0))


def in_tokens(cost: Cost) -> int:
    return int(cost[PROMPT] + cost[OUTPUT])


def counts_of(documents: int, percents: Sequence[float]) -> list[int]:
    return [round(documents * percent / 100) for percent in percents]


def print_insertions(name: str, steps: Sequence[Insertion]) -> None:
    print(f"\nTen insertions, {name}")
    print(f"{'passages':>9}{'calls':>8}{'prompt':>12}{'output':>11} | rebuilt{'prompt':>12}{'output':>11}", end="")
    print(" |  calls tokens")
    whole = Insertion(0, total(steps, "spent"), total(steps, "least"), total(steps, "rebuilt"))
    for step in (*steps, whole):
        spent, rebuilt = step.spent, step.rebuilt
        name = f"{step.passages:,}" if step.passages else "sum"
        line = f"{name:>9}{spent[CALLS]:8,}{spent[PROMPT]:12,}{spent[OUTPUT]:11,} | "
        line += f"{rebuilt[CALLS]:7,}{rebuilt[PROMPT]:12,}{rebuilt[OUTPUT]:11,} | "
        print(f"{line}{spent[CALLS] / rebuilt[CALLS]:6.1%} {in_tokens(spent) / in_tokens(rebuilt):6.1%}")
    calls = whole.least[CALLS] / whole.rebuilt[CALLS]
    share = in_tokens(whole.least) / in_tokens(whole.rebuilt)
    fewer = 1 - in_tokens(whole.spent) / in_tokens(whole.rebuilt)
    print(f"floor of any function of the set: {calls:.1%} of the calls, {share:.1%} of the tokens; aim: 15 %")
    print(f"{fewer:.1%} fewer tokens than building anew; EraRAG: up to 57.6 % fewer than RAPTOR (PopQA)", flush=True)


def print_one_more(corpus: TreeCorpus, summaries: SummaryCache, tries: int) -> None:
    growing = Growing(corpus, summaries)
    documents = list(corpus.documents)
    layers = growing.tree(documents)
    rebuilt = growing.cost(all_ids(layers))
    costs = []
    for chosen in np.random.default_rng(2).choice(len(documents), min(tries, len(documents)), replace=False).tolist():
        before = growing.tree(documents[:chosen] + documents[chosen + 1 :])
        costs.append(growing.cost(set(all_ids(layers)) - set(all_ids(before))))
    calls = np.array(costs)[:, CALLS]
    mean = np.mean([in_tokens(cost) for cost in costs])
    height = len(layers)
    print(f"\nOne more document, {tries} tries: {calls.mean():.2f} calls on average", end="")
    print(f", {calls.max()} at most ({calls.mean() / height:.2f} x height; 3 x height is {3 * height})")
    print(f"{mean:,.0f} tokens; anew {in_tokens(rebuilt):,}, {in_tokens(rebuilt) / mean:.0f} times as many;", end="")
    print(" EraRAG: more than 10 times cheaper than RAPTOR", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    print(describe_machine())
    try:
        questions = read_questions(chosen.questions)
        with indexmill.open(chosen.store) as snapshot:
            report(snapshot, questions, quick=chosen.quick)
    except IndexmillError as error:
        parser.error(str(error))


def report(snapshot: Snapshot, questions: Sequence[Question], *, quick: bool) -> None:
    corpus = TreeCorpus(snapshot, questions, 600 if quick else None)
    summaries = SummaryCache(snapshot.encoder().encode)
    documents = len(corpus.documents)
    print(f"{documents:,} documents, {len(corpus.nodes):,} passages, {corpus.bounds}, tokens: a quarter of the bytes")
    if not quick:
        nodes = all_ids(Growing(corpus, summaries).tree(corpus.documents))
        same = set(nodes) == set(snapshot.table("summaries", ["node_id"]).column(0).to_pylist())
        print(f"{len(nodes):,} summaries; {'the' if same else 'NOT the'} nodes of the store")
    digests: dict[str, str] = {}
    for name, order in (("in random order", corpus.at_random), ("by question", corpus.by_question)):
        growing = Growing(corpus, summaries)
        steps, layers = insert(growing, order, counts_of(documents, STEPS))
        print_insertions(name, steps)
        digests[f"ten insertions {name}"] = growing.digest(layers)
    print_one_more(corpus, summaries, 10 if quick else 60)
    print("\nDigest of the final tree")
    print("\n".join(f"{digest}: {name}" for name, digest in digests.items()))


if __name__ == "__main__":
    main()
