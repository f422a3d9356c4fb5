"""Measure what summaries cost a growing corpus: calls and tokens of each insertion, beside rebuilding each time.

    python -m benchmarks.lsh_tree STORE QUESTIONS.jsonl [--quick]

STORE is a snapshot with bm25 and lsh_tree; its passages, vectors, encoder, bounds and hyperplanes are used. Summaries
are extractive and encoded as in a build. Each is charged the prompt that a language model would get (instructions and
delimited texts) and the summary as output, both by `estimate_tokens`, a token for four bytes of UTF-8; an endpoint may
count differently. A node or request that was charged before is not charged again. EraRAG's protocol: half of the
documents first, then ten insertions of 5 %.

- The tree of all passages, compared with the store's: the benchmark sends the pipeline's requests.
- Ten insertions, in random order and by question: each question adds its evidence and the documents that BM25 finds for
  it, ten in all, as HotpotQA was gathered; documents of no question are there from the start. (The file's own order is
  that of a hash: random.) `floor` is the least of any function of the set: the summaries above a new passage.
- One more document, over some documents: calls and tokens against a rebuild; again with modelled summaries.
- Part of the documents first, from 0 to 100 %, then the rest by tenths: one digest for all, in either order.
- The same ten insertions with other bounds, layers, orders and shares, with modelled summaries: the vector is the mean
  of the children's, the text has the mean length. The first line shows how close the model is.
- Methods of segmentation: `benchmarks.lsh_cohesion`.

--quick takes 600 documents and a tenth of the tries: about a minute.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import indexmill
from benchmarks import lsh_cohesion
from benchmarks.machine import argument_parser, describe_machine
from indexmill.errors import IndexmillError
from indexmill.evaluate.recall import Question, read_questions
from indexmill.models.llm import Request
from indexmill.snapshot import Snapshot
from indexmill.store.canonical import canonical_json, digest_of
from schemas.config import Configuration
from tasks.core.groups import hex_ids, id_bytes
from tasks.core.shards import estimate_tokens
from tasks.families.lsh_tree.hierarchy import Bounds, Layer, Nodes, layer_over
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import segment
from tasks.llm.prompts import prompt
from tasks.stages.embed.embed import row_key
from tasks.stages.split.split import embedded_text
from tasks.stages.write.summarise import Extractive, fingerprint, text_request, text_schema

TOKENS = 100
SUMMARY = prompt("summary")
FINGERPRINT = digest_of(canonical_json(fingerprint(Configuration(), None, TOKENS)))
GATHERED = 10
MEAN, DELTA = lsh_cohesion.MEAN, lsh_cohesion.DELTA
STEPS = tuple(range(50, 101, 5))
CALLS, PROMPT, OUTPUT = range(3)

Cost = np.ndarray
"""Calls, tokens of prompts, tokens of answers: (3,) int64."""


@dataclass(frozen=True)
class Node:
    """A passage or a summary. cost: of the summary; zero for a passage."""

    text: str
    digest: str
    vector: np.ndarray
    cost: Cost


class Corpus:
    """The passages of some documents, and the bounds and hyperplanes of the store's tree."""

    def __init__(self, snapshot: Snapshot, questions: Sequence[Question], most: int | None) -> None:
        passages = snapshot.table("passages", ["passage_id", "document_id", "text"]).to_pylist()
        documents = snapshot.table("documents", ["document_id", "title"]).to_pylist()
        titles = {row["document_id"]: row["title"] for row in documents}
        vectors = np.concatenate([np.asarray(shard) for shard in snapshot.vectors("vectors", "passages")])
        self.by_question = order_by_question(snapshot, questions, sorted(titles))[-(most or len(titles)) :]
        selected = set(self.by_question)
        self.documents: dict[str, list[str]] = {document: [] for document in sorted(selected)}
        self.nodes: dict[str, Node] = {}
        for row, vector in zip(passages, vectors, strict=True):
            if row["document_id"] in selected:
                text = embedded_text(titles[row["document_id"]], row["text"])
                self.nodes[row["passage_id"]] = Node(text, row_key(text).hex(), vector, np.zeros(3, dtype=np.int64))
                self.documents[row["document_id"]].append(row["passage_id"])
        arrays = snapshot.arrays("lsh_tree/tree")
        smallest, largest, layers, seed = arrays["bounds"].tolist()
        self.bounds = Bounds(smallest, largest, layers)
        self.planes = StoredPlanes(seed, arrays["hyperplanes"])
        self._rows = {passage: row for row, passage in enumerate(self.nodes)}
        self._codes = self.planes.codes(np.stack([node.vector for node in self.nodes.values()]))
        self.at_random = np.random.default_rng(0).permutation(sorted(selected)).tolist()

    def passages(self, documents: Iterable[str]) -> list[str]:
        """Return the ids of some documents' passages, in order."""
        return sorted(passage for document in documents for passage in self.documents[document])

    def lowest(self, documents: Iterable[str]) -> Nodes:
        """Return the passages of some documents as the lowest layer."""
        ids = self.passages(documents)
        rows = [self._rows[passage] for passage in ids]
        digests = [self.nodes[passage].digest for passage in ids]
        return Nodes(id_bytes(ids), id_bytes(digests), self._codes[rows])

    def along_codes(self) -> list[str]:
        """Order the documents by the codes of their first passages, as no real corpus grows."""
        first = {passages[0]: document for document, passages in self.documents.items()}
        ids = sorted(first)
        codes = self.planes.codes(np.stack([self.nodes[passage].vector for passage in ids]))
        order = segment(id_bytes(ids), codes, self.bounds.smallest, self.bounds.largest).order
        return [first[ids[row]] for row in order.tolist()]


class StoredPlanes(Hyperplanes):
    """The hyperplanes of a store: its first block, then those of the seed."""

    def __init__(self, seed: int, first: np.ndarray) -> None:
        super().__init__(seed, first.shape[1])
        self._first = np.array(first)

    def normals(self, block: int = 0) -> np.ndarray:
        normals: np.ndarray = super().normals(block) if block else self._first
        return normals


def order_by_question(snapshot: Snapshot, questions: Sequence[Question], documents: Sequence[str]) -> list[str]:
    """Return the documents of no question in random order, then those of each question in turn."""
    hits_by_question = snapshot.retrieve_batch(
        [one.question for one in questions], method="bm25", k=GATHERED, explain=False
    )
    brought: dict[str, None] = {}
    for question, hits in zip(questions, hits_by_question, strict=True):
        near = [document for hit in hits for document in hit.document_ids]
        brought.update(dict.fromkeys(list(dict.fromkeys([*question.gold_ids, *near]))[:GATHERED]))
    others = [document for document in documents if document not in brought]
    return [*np.random.default_rng(1).permutation(others).tolist(), *brought]


class Summaries:
    """Summaries by request. Each is computed once, whichever corpus is charged for it."""

    def __init__(self, encode: Callable[[Sequence[str]], np.ndarray]) -> None:
        self._extractive = Extractive(TOKENS)
        self._encode = encode
        self.nodes: dict[bytes, Node] = {}

    def answer(self, requests: Mapping[bytes, tuple[Request, list[Node]]]) -> None:
        new = {key: entry for key, entry in requests.items() if key not in self.nodes}
        texts = self.texts([children for _, children in new.values()])
        if not texts:
            return
        for (key, (request, _)), text, vector in zip(new.items(), texts, self.vectors(new, texts), strict=True):
            cost = np.array([1, tokens(request.instructions + request.content), tokens(text)])
            self.nodes[key] = Node(text, row_key(text).hex(), vector, cost)

    def texts(self, segments: Sequence[Sequence[Node]]) -> list[str]:
        return [self._extractive.summary([child.text for child in children]) for children in segments]

    def vectors(self, requests: Mapping[bytes, tuple[Request, list[Node]]], texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts)


class Modelled(Summaries):
    """Modelled summaries: placeholder texts of one length, and means of the children's vectors."""

    def __init__(self, length: int) -> None:
        super().__init__(np.asarray)
        self._length = length

    def texts(self, segments: Sequence[Sequence[Node]]) -> list[str]:
        digests = ["".join(child.digest for child in children) for children in segments]
        return [(hashlib.sha256(digest.encode()).hexdigest() * self._length)[: self._length] for digest in digests]

    def vectors(self, requests: Mapping[bytes, tuple[Request, list[Node]]], texts: Sequence[str]) -> np.ndarray:
        sums = np.stack([np.sum([child.vector for child in children], axis=0) for _, children in requests.values()])
        return np.asarray(sums / np.linalg.norm(sums, axis=1)[:, None], dtype=np.float32)


def tokens(text: str) -> int:
    return estimate_tokens(len(text.encode("utf-8")))


class Growing:
    """A changing corpus, with its summaries and their cost.

    bounds: of each layer; the last also apply to all layers above. The store's by default.
    """

    def __init__(self, corpus: Corpus, summaries: Summaries, bounds: Sequence[Bounds] = ()) -> None:
        self.corpus = corpus
        self.spent = np.zeros(3, dtype=np.int64)
        self.nodes: dict[str, Node] = dict(corpus.nodes)
        self._summaries = summaries
        self._bounds = bounds or [corpus.bounds]
        self._charged: set[bytes] = set()

    def tree(self, documents: Iterable[str]) -> list[Layer]:
        """Return the layers over some documents; request missing summaries."""
        below = self.corpus.lowest(documents)
        layers: list[Layer] = []
        while self._bounds_over(layers).want_another(len(layers), len(below.ids)):
            bounds = self._bounds_over(layers)
            layer = layer_over(len(layers) + 1, below, bounds, FINGERPRINT)
            self._ask(layer)
            layers.append(layer)
            digests = [self.nodes[node].digest for node in hex_ids(layer.ids)]
            below = Nodes(layer.ids, id_bytes(digests), layer.codes)
        return layers

    def _bounds_over(self, layers: Sequence[Layer]) -> Bounds:
        return self._bounds[min(len(layers), len(self._bounds) - 1)]

    def _ask(self, layer: Layer) -> None:
        requests: dict[bytes, tuple[Request, list[Node]]] = {}
        keys: dict[str, bytes] = {}
        for node, children in layer.inputs():
            if node not in self.nodes:
                child_nodes = [self.nodes[child] for child, _ in children]
                texts = [child.text for child in child_nodes]
                schema = text_schema("summary")
                request = text_request("summary", SUMMARY, texts, schema, tokens=TOKENS, about=[], makes=node)
                keys[node] = hashlib.sha256((request.instructions + request.content).encode("utf-8")).digest()
                requests[keys[node]] = request, child_nodes
        self._summaries.answer(requests)
        for node, key in keys.items():
            self.nodes[node] = self._summaries.nodes[key]
            self.spent += 0 if key in self._charged else self.nodes[node].cost
            self._charged.add(key)

    def cost(self, nodes: Iterable[str]) -> Cost:
        """Return the total cost of some nodes."""
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
    """Return the summaries above at least one of the new passages."""
    passages = list(new)
    below = set(passages)
    summaries: list[str] = []
    for layer in layers:
        below = {node for node, children in layer.inputs() if any(child in below for child, _ in children)}
        summaries += below
    return summaries


@dataclass(frozen=True)
class Step:
    """An insertion: the passages after it, its cost, the least cost of any function of the set, and of a rebuild."""

    passages: int
    spent: Cost
    least: Cost
    rebuilt: Cost


def insert(growing: Growing, order: Sequence[str], counts: Sequence[int]) -> tuple[list[Step], list[Layer]]:
    """Insert documents in order, up to each count in turn; the first count is there before."""
    steps: list[Step] = []
    layers = growing.tree(order[: counts[0]])
    for before, now in pairwise(counts):
        spent = growing.spent.copy()
        layers = growing.tree(order[:now])
        least = growing.cost(above(layers, growing.corpus.passages(order[before:now])))
        rebuilt = growing.cost(all_ids(layers))
        steps.append(Step(len(growing.corpus.passages(order[:now])), growing.spent - spent, least, rebuilt))
    return steps, layers


def total(steps: Sequence[Step], name: str) -> Cost:
    return np.asarray(np.sum([getattr(step, name) for step in steps], axis=0))


def in_tokens(cost: Cost) -> int:
    return int(cost[PROMPT] + cost[OUTPUT])


def counts_of(documents: int, percents: Sequence[float]) -> list[int]:
    return [round(documents * percent / 100) for percent in percents]


def print_insertions(name: str, steps: Sequence[Step]) -> None:
    print(f"\nTen insertions, {name}")
    print(f"{'passages':>9}{'calls':>8}{'prompt':>12}{'output':>11} | rebuilt{'prompt':>12}{'output':>11}", end="")
    print(" |  calls tokens")
    whole = Step(0, total(steps, "spent"), total(steps, "least"), total(steps, "rebuilt"))
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


def print_one_more(name: str, corpus: Corpus, summaries: Summaries, tries: int) -> None:
    growing = Growing(corpus, summaries)
    documents = list(corpus.documents)
    layers = growing.tree(documents)
    rebuilt = growing.cost(all_ids(layers))
    costs = []
    for chosen in np.random.default_rng(2).choice(len(documents), tries, replace=False).tolist():
        before = growing.tree(documents[:chosen] + documents[chosen + 1 :])
        costs.append(growing.cost(set(all_ids(layers)) - set(all_ids(before))))
    calls = np.array(costs)[:, CALLS]
    mean = np.mean([in_tokens(cost) for cost in costs])
    height = len(layers)
    print(f"\nOne document more, summaries {name}, {tries} tries: {calls.mean():.2f} calls on average", end="")
    print(f", {calls.max()} at most ({calls.mean() / height:.2f} x height; 3 x height is {3 * height})")
    print(f"{mean:,.0f} tokens; anew {in_tokens(rebuilt):,}, {in_tokens(rebuilt) / mean:.0f} times as many;", end="")
    print(" EraRAG: more than 10 times cheaper than RAPTOR", flush=True)


def print_coverage(corpus: Corpus, summaries: Summaries, digests: dict[str, str]) -> None:
    for percent in range(0, 101, 10):
        growing = Growing(corpus, summaries)
        counts = counts_of(len(corpus.documents), [*range(percent, 100, 10), 100])
        _, layers = insert(growing, corpus.at_random, counts)
        digests[f"{percent} % first"] = growing.digest(layers)
    by_digest = defaultdict(list)
    for name, digest in digests.items():
        by_digest[digest].append(name)
    print("\nDigest of the final tree")
    for digest, names in by_digest.items():
        print(f"{digest}: {', '.join(names)}")
    print("all equal" if len(by_digest) == 1 else "NOT EQUAL", flush=True)


def print_variant(
    corpus: Corpus,
    modelled: Summaries,
    name: str,
    order: Sequence[str],
    *,
    bounds: Sequence[Bounds] = (),
    percents: Sequence[float] = STEPS,
) -> None:
    growing = Growing(corpus, modelled, bounds)
    steps, layers = insert(growing, order, counts_of(len(order), percents))
    spent, least, rebuilt = (total(steps, part) for part in ("spent", "least", "rebuilt"))
    line = f"{name:42}{spent[CALLS]:8,}{in_tokens(spent):12,}{in_tokens(steps[-1].rebuilt):12,}"
    line += f"{spent[CALLS] / rebuilt[CALLS]:9.1%}"
    line += "".join(f"{in_tokens(part) / in_tokens(rebuilt):8.1%}" for part in (spent, least))
    print(f"{line}   {[len(layer.ids) for layer in layers]}", flush=True)


def print_variants(corpus: Corpus, modelled: Summaries) -> None:
    print(f"\n{'modelled summaries':42}{'calls':>8}{'tokens':>12}{'anew, last':>12}", end="")
    print(f"{'calls %':>9}{'tok. %':>8}{'floor':>8}")
    ours, order = corpus.bounds, corpus.at_random
    low, high, most = ours.smallest, ours.largest, ours.layers
    print_variant(corpus, modelled, f"ours: {low} to {high}, random order", order)
    print_variant(corpus, modelled, "by question", corpus.by_question)
    print_variant(corpus, modelled, "along the codes", corpus.along_codes())
    for factor in (0.5, 0.75, 1.0, 1.5, 2.0):
        smallest, largest = lsh_cohesion.bounds_around(factor)
        bounds = Bounds(smallest, largest, most)
        print_variant(corpus, modelled, f"{factor} delta: {smallest} to {largest}", order, bounds=[bounds])
    for smallest, largest in ((2, 3), (3, 5), (4, 8), (8, 16), (12, 24)):
        bounds = Bounds(smallest, largest, 16)
        print_variant(corpus, modelled, f"{smallest} to {largest}", order, bounds=[bounds])
    for first, upper in (((low, high), (12, 24)), ((low, high), (24, 48)), ((4, 8), (24, 48)), ((3, 5), (24, 48))):
        either = [Bounds(first[0], first[1], most), Bounds(upper[0], upper[1], most)]
        name = f"{first[0]} to {first[1]}, above {upper[0]} to {upper[1]}"
        print_variant(corpus, modelled, name, order, bounds=either)
    for layers in (1, 2, 3):
        name = f"{layers} layer{'s' * (layers > 1)} at most"
        print_variant(corpus, modelled, name, order, bounds=[Bounds(low, high, layers)])
    for share in (2, 1, 0.5, 0.2, 0.1):
        percents = [100 - share * remaining for remaining in range(5, -1, -1)]
        print_variant(corpus, modelled, f"five insertions of {share} %", order, percents=percents)


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
    lsh_cohesion.main([chosen.store, *(["--quick"] if chosen.quick else [])])


def report(snapshot: Snapshot, questions: Sequence[Question], *, quick: bool) -> None:
    corpus = Corpus(snapshot, questions, 600 if quick else None)
    summaries = Summaries(snapshot.encoder().encode)
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
    tries = 10 if quick else 60
    print_one_more("counted", corpus, summaries, tries)
    print_coverage(corpus, summaries, digests)
    length = np.mean([len(node.text.encode("utf-8")) for node in summaries.nodes.values()])
    modelled = Modelled(round(float(length)))
    print_one_more("modelled", corpus, modelled, tries)
    print_variants(corpus, modelled)


if __name__ == "__main__":
    main()
