"""Measure zoom_graph on a built snapshot: ablations, sensitivity, time, memory, and the links of a large corpus.

    python -m benchmarks.zoom_graph STORE QUESTIONS.jsonl [--rows 48213] [--quick]

Tables, each beside the default in the same run:

- the ablations of ZoomRAG's table 4, and ours: evidence recall, and the share of answers that the kept sentences still
  contain (of questions whose answer is in the first five hits), since the fine stage does not rank documents;
- the model's context of five hits, kept sentences or whole passages: tokens, and the share of answers in it;
- figure 4: steps t, restart alpha, K, and beyond the figure beta, sigma, omega and the threshold;
- CPU time per question alone and in batches, and the growth of memory with the batch;
- links of ROWS documents, generated from the snapshot's vectors with noise: time, peak memory, bytes, the links that
  builds with 4 and 28 changed documents rewrite, and the links of a sample of rows that estimated limits miss. Changed
  documents are either edited (noise is added) or replaced.

--quick takes every eighth question, the ablations, and 12,000 rows: about a minute.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine, peak_memory
from indexmill.evaluate.recall import Question, read_questions
from indexmill.families.zoom_graph.answering import KeptSentences
from indexmill.families.zoom_graph.retriever import open_zoom_graph
from indexmill.families.zoom_graph.search import ZoomGraph
from indexmill.families.zoom_graph.similar import STEP, NamedRows, linked
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.snapshot import Snapshot
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, refreshed_cells
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, find_links
from tasks.families.zoom_graph.links import known_links, state_of

REACH = 10

ABLATIONS: dict[str, dict[str, object]] = {
    "as it is": {},
    "without fine-grained search": {"fine": False},
    "without entity nodes": {"entities": False},
    "without query-entity links": {"question_links": False},
    "without document-document links": {"document_links": False},
    "without semantic sentence links": {"semantic_links": False},
    "without temporal sentence links": {"temporal_links": False},
    "without any sentence links": {"semantic_links": False, "temporal_links": False},
    "blocks rescaled over stored links": {"scale": "links"},
    "without look-ahead (ours)": {"look_ahead": 2.0},
    "without agreement (ours)": {"agreement": 0.0},
    "without title weight (ours)": {"title_weight": 1.0},
    "without question weight (ours)": {"question_weight": 1.0},
    "the paper's coarse stage alone": {
        "look_ahead": 2.0,
        "agreement": 0.0,
        "title_weight": 1.0,
        "question_weight": 1.0,
    },
    "every score followed": {"follow": 0.0},
}
CURVES: dict[str, tuple[object, ...]] = {
    "steps": (1, 2, 3, 4, 5, 7, 9),
    "restart": (0.1, 0.3, 0.5, 0.7, 0.8, 0.9),
    "documents": (5, 10, 15, 20),
    "threshold": (1.0, 2.0, 2.5, 3.0, 3.5, 4.0),
    "fine_restart": (0.1, 0.5, 0.9),
    "temporal_width": (0.5, 1.0, 2.0, 4.0),
    "temporal_share": (0.0, 0.25, 0.5, 0.75, 1.0),
    "question_weight": (4.0, 8.0, 16.0, 32.0),
    "look_ahead": (0.5, 0.6, 0.7, 0.8),
    "look_ahead_power": (5.0, 10.0, 20.0),
    "open_share": (0.0, 0.5, 1.0),
    "agreement": (0.0, 0.5, 1.0),
    "title_weight": (4.0, 16.0, 64.0),
}


class QueryBatch:
    """A snapshot with its questions, encoded once."""

    def __init__(self, snapshot: Snapshot, questions: list[Question], answers: list[str]) -> None:
        self.questions = questions
        self.answers = answers
        self.texts = [question.question for question in questions]
        self.vectors = snapshot.encode(self.texts)
        self.documents = snapshot.table("passages", ["document_id"]).column("document_id").to_pylist()
        self.passages = snapshot.table("passages", ["text"]).column("text").to_pylist()
        spans = snapshot.table("sentences", ["start", "end"])
        self.spans = list(zip(spans.column("start").to_pylist(), spans.column("end").to_pylist(), strict=True))

    def measure(self, graph: ZoomGraph) -> tuple[float, float, float, float]:
        """Return recall at 5 and 10, the share of answers kept, and CPU milliseconds per question."""
        began = time.process_time()
        results = graph.retrieve(self.vectors, self.texts, REACH)
        spent = time.process_time() - began
        recall = {5: 0.0, 10: 0.0}
        answerable = retained = 0
        for question, answer, result in zip(self.questions, self.answers, results, strict=True):
            ranked = list(dict.fromkeys(self.documents[row] for row in result.passages.tolist()))
            gold = set(question.gold_ids)
            for k in recall:
                recall[k] += len(gold & set(ranked[:k])) / len(gold) / len(results)
            if len(answer) > 3 and any(answer in self.passages[row] for row in result.passages[:5].tolist()):
                answerable += 1
                retained += not any(result.sentences) or any(
                    answer in self.passages[row][slice(*self.spans[sentence.row])]
                    for row, sentences in zip(result.passages[:5].tolist(), result.sentences, strict=False)
                    for sentence in sentences
                )
        return recall[5], recall[10], retained / max(answerable, 1), 1000 * spent / len(results)


def variants(batch: QueryBatch, graph: ZoomGraph, chosen: dict[str, dict[str, object]]) -> None:
    print(f"\n{'variant':40}{'recall@5':>10}{'recall@10':>11}{'answers kept':>14}{'CPU ms':>9}")
    for name, changes in chosen.items():
        five, ten, retained, spent = batch.measure(graph.with_parameters(**changes))
        print(f"{name:40}{five:10.3f}{ten:11.3f}{retained:14.3f}{spent:9.2f}", flush=True)


def readings(batch: QueryBatch, snapshot: Snapshot) -> None:
    """Print the tokens and answers in the context of the first five hits, for each kind of context."""
    print(f"\n{'what the model reads of 5 hits':40}{'tokens':>10}{'answers in it':>15}{'of those in hits':>18}")
    hits_by_question = snapshot.retrieve_batch(batch.texts, method="zoom_graph", k=5, vectors=batch.vectors)
    for read in ("passage", "kept"):
        reader = KeptSentences({"read": read})
        in_shown, in_hits = [], []
        for answer, hits in zip(batch.answers, hits_by_question, strict=True):
            if len(answer) > 3:  # not "yes" and "no"
                in_shown.append(any(answer in reader.shown(hit) for hit in hits))
                in_hits.append(any(answer in f"{hit.title}\n{hit.text}" for hit in hits))
        tokens = sum(reader.tokens(hit) for hits in hits_by_question for hit in hits) / len(hits_by_question)
        print(
            f"{read:40}{tokens:10.0f}{np.mean(in_shown):15.3f}{sum(in_shown) / max(sum(in_hits), 1):18.3f}", flush=True
        )


def times(batch: QueryBatch, graph: ZoomGraph) -> None:
    print(f"\n{'questions at once':20}{'CPU ms':>9}{'without explanations':>23}   per question")
    for size in (1, 64, 256):
        spent = []
        for explain in (True, False):
            graph.retrieve(batch.vectors[:size], batch.texts[:size], REACH, explain=explain)
            began = time.process_time()
            for at in range(0, len(batch.texts), size):
                graph.retrieve(batch.vectors[at : at + size], batch.texts[at : at + size], REACH, explain=explain)
            spent.append(1000 * (time.process_time() - began) / len(batch.texts))
        print(f"{size:20}{spent[0]:9.2f}{spent[1]:23.2f}", flush=True)
    nodes = len(graph.matrix.sums)
    print(f"\n{'questions at once':20}{'extra MiB':>11}{'c':>8}   of c * questions * nodes * 4 bytes, {nodes} nodes")
    for size in (1, 64, 256):
        vectors, texts = batch.vectors[:size], batch.texts[:size]
        graph.retrieve(vectors, texts, REACH)
        tracemalloc.start()
        graph.retrieve(vectors, texts, REACH)
        extra = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{len(texts):20}{extra / 2**20:11.1f}{extra / (len(texts) * nodes * 4):8.2f}", flush=True)


NOISE = 0.6
"""The length of the noise added to unit vectors."""

NIGHTS = (4, 28)


def noisy(vectors: np.ndarray, rows: int, seed: int = 0, noise: float = NOISE) -> np.ndarray:
    """Return `rows` vectors on the grid: the given vectors, repeated, with noise."""
    draw = np.random.default_rng(seed)
    moved = vectors[np.arange(rows) % len(vectors)] / np.linalg.norm(vectors[0])
    moved = moved + draw.standard_normal(moved.shape, dtype=np.float32) * np.float32(noise / np.sqrt(moved.shape[1]))
    return on_grid((moved / np.linalg.norm(moved, axis=1)[:, None]).astype(np.float32)).astype(np.int16)


def night(rows: LinkedRows, changed: int, edits: bool) -> LinkedRows:
    """Return the rows after a build: with some vectors edited, or some rows replaced."""
    draw = np.random.default_rng(changed)
    chosen = draw.choice(len(rows), changed, replace=False)
    names, vectors = rows.names.copy(), rows.vectors.copy()
    if not edits:
        names[chosen] = draw.integers(0, 1 << 64, changed, dtype=np.uint64)
    sources = chosen if edits else draw.choice(len(rows), changed)
    vectors[chosen] = noisy(vectors[sources].astype(np.float32), changed, seed=2, noise=NOISE / 2)
    return LinkedRows.of(names, vectors)


def byte_size(packs: Any) -> int:
    return sum(array.nbytes for pack in packs for array in pack.values())


def link(vectors: np.ndarray, count: int, exact: bool, queue: Any) -> None:
    """Measure all links, refreshes, and the difference to exact links, and put them into the queue.

    Runs in its own process.
    """
    names = np.random.default_rng(0).integers(0, 1 << 64, count, dtype=np.uint64)
    rows = LinkedRows.of(names, noisy(vectors, count))
    rule = LinkRule(exact_rows=count if exact else 0)
    began = time.process_time()
    links = find_links(rows, rule)
    compared = time.process_time()
    blocks = dict(blocks_of(links))
    stored = {block_digest(block): block for block in blocks.values()}
    state = state_of(links, rule, ["00" * 32], [(block_digest(block), centre) for centre, block in blocks.items()])
    divided = time.process_time()
    peak = peak_memory()
    linked(blocks.values(), NamedRows(rows.names))
    figures: dict[str, Any] = {
        "links": len(links.pairs),
        "full rows": links.full,
        "CPU s": round(compared - began, 1),
        "of it in blocks": round(divided - compared, 2),
        "peak GiB": round(peak, 2),
        "blocks": len(blocks),
        "MB of links": round(byte_size(blocks.values()) / 1e6, 2),
        "of state": round(byte_size([state]) / 1e6, 2),
        "of vectors": round(rows.vectors.nbytes / 1e6, 1),
        "s to put links together": round(time.process_time() - divided, 2),
    }
    for changed in NIGHTS if exact else ():
        for edits in (True, False):
            after = night(rows, changed, edits)
            began = time.process_time()
            carried = known_links(state, rows, stored, rule)
            assert carried is not None
            refreshed = find_links(after, rule, carried.links)
            assert refreshed.origins is not None
            divided_again = dict(blocks_of(refreshed, refreshed_cells(after, refreshed.origins, carried.cells)))
            spent = time.process_time() - began
            new = [block for block in divided_again.values() if block_digest(block) not in stored]
            figures[f"{changed} {'edited' if edits else 'replaced'}"] = (
                f"{byte_size(new) / 1e6:.2f} MB of {len(new)} blocks, {spent:.1f} CPU s, {refreshed.compared} compared"
            )
    queue.put(figures | against_exact(rows, rule, links.limits))


def against_exact(rows: LinkedRows, rule: LinkRule, limits: np.ndarray) -> dict[str, str]:
    """Measure the pairs of some rows that estimated limits miss: of all pairs, and of those within the cap."""
    vectors = rows.vectors.astype(np.float32)
    sample = np.random.default_rng(1).choice(len(rows), min(500, len(rows)), replace=False)
    products = (vectors[sample] @ vectors.T).astype(np.float64)
    products[np.arange(len(sample)), sample] = np.nan
    similar = np.exp(products / UNIT)
    exact = np.log(np.nanmean(similar, axis=1) + rule.threshold * np.nanstd(similar, axis=1)) * UNIT
    true, accepted = products > exact[:, None], products // STEP > limits[sample][:, None]
    best = np.sort(np.nan_to_num(products, nan=-np.inf), axis=1)[:, -rule.cap - 1]
    chosen = true & (products > best[:, None])
    return {
        "beyond": str(int(true.sum() * len(rows) / len(sample))),
        "error": f"{np.abs(limits[sample] * STEP - exact).mean() / UNIT:.5f}",
        "missed": f"{(true & ~accepted).sum() / max(true.sum(), 1):.3%}",
        "missed, capped": f"{(chosen & ~accepted).sum() / max(chosen.sum(), 1):.3%}",
    }


def large(graph: ZoomGraph, rows: int) -> None:
    context = multiprocessing.get_context("spawn")
    print(f"\nlinks of {rows} documents")
    for exact in (True, False):
        queue = context.Queue()
        process = context.Process(target=link, args=(np.asarray(graph.vectors), rows, exact, queue))
        process.start()
        figures = queue.get()
        process.join()
        print(f"  {'exact' if exact else 'estimated'} limits")
        for name, value in figures.items():
            print(f"    {name:26}{value}", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--rows", type=int, default=48_213)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    every = slice(None, None, 8 if chosen.quick else 1)
    questions = read_questions(chosen.questions)[every]
    records = [json.loads(line) for line in chosen.questions.open(encoding="utf-8") if line.strip()]
    answers = [str(record.get("answer", "")) for record in records][every]
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        counts = snapshot.manifest.families["zoom_graph"].counts
        print(", ".join(f"{count:,} {name}" for name, count in counts.items()) + f"; {len(questions)} questions")
        graph = open_zoom_graph(snapshot)
        batch = QueryBatch(snapshot, questions, answers)
        readings(batch, snapshot)
        variants(batch, graph, ABLATIONS)
        if not chosen.quick:
            curves = {f"{name} {value}": {name: value} for name, values in CURVES.items() for value in values}
            variants(batch, graph, curves)
        times(batch, graph)
        large(graph, 12_000 if chosen.quick else chosen.rows)


if __name__ == "__main__":
    main()
