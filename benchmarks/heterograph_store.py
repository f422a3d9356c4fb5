"""The heterograph of a built snapshot, for `python -m benchmarks.heterograph --store`.

- the build by stage, from the record of the run that published the snapshot;
- nodes and edges beside the paper's table 4, storage beside the stored texts and beside table 3;
- retrieval time, alone and in batches of 256;
- the ablations of table 2, the depth of the walk (figure 4), and other settings (`benchmarks.heterograph_ablations`);
- evidence recall of every method against context tokens (`benchmarks.budgets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import indexmill
from benchmarks.budgets import print_curve
from benchmarks.heterograph_ablations import Asking, print_ablations, print_depth, print_settings
from benchmarks.query import print_times
from indexmill.evaluate.recall import read_questions
from indexmill.families.heterograph.show import statistics
from indexmill.snapshot import Snapshot
from indexmill.text.counted import byte_size as size
from storage.folder import open_folder
from storage.runs import read_run

OWN = ("extract", "attributes", "elements", "heterograph")
"""Stages of this family, besides those named ``hetero_...``."""

TABLE_4 = {  # corpus tokens in millions, T, S, N, R, A, H, edges that are not near, near edges, all edges
    "HotpotQA": (1.93, 1985, 15905, 88863, 56578, 684, 4479, 283543, 487731, 759812),
    "MuSiQue": (1.84, 1907, 18714, 99840, 61964, 795, 5700, 316029, 583126, 888966),
    "MultiHop-RAG": (1.41, 1532, 10986, 43184, 29286, 685, 2289, 171410, 203199, 367486),
    "Fiqa": (1.65, 1821, 9027, 32470, 27422, 508, 1714, 143916, 154109, 295165),
    "Lifestyle": (1.64, 1794, 9400, 39464, 27895, 518, 2221, 149225, 174461, 318073),
    "Recreation": (0.93, 1003, 5542, 26382, 16938, 413, 1969, 93228, 117915, 207449),
    "Science": (1.43, 1583, 8010, 32232, 23092, 551, 2515, 127719, 149424, 276963),
    "Tech": (1.72, 1910, 10837, 37724, 29691, 534, 2633, 167950, 193159, 354033),
    "Writing": (1.82, 1937, 11008, 42723, 29338, 705, 4435, 149552, 298565, 442397),
}
MEGABYTES = {"HotpotQA": 214, "MuSiQue": 250, "MultiHop-RAG": 137, "Fiqa": 117, "Lifestyle": 125, "Recreation": 80}
MEGABYTES |= {"Science": 111, "Tech": 139, "Writing": 157}  # table 3


def print_build(snapshot: Snapshot) -> None:
    if snapshot.ref is None:
        print("an exported folder: no record of the run")
        return
    end = read_run(open_folder(snapshot.path), snapshot.ref.run_id).end
    stages: Mapping[str, Any] = {} if end is None else dict(end.report.get("stages") or {})
    print(f"{'stage':24}{'at second':>10}{'seconds':>9}{'of work':>9}{'parts made':>12}{'reused':>8}{'MB made':>9}")
    work = {"all": 0.0, "own": 0.0}
    for name, record in sorted(stages.items(), key=lambda stage: stage[1]["began_seconds"]):
        is_own = name in OWN or name.startswith("hetero_")
        work["all"] += record["seconds"]
        work["own"] += record["seconds"] if is_own else 0.0
        print(
            f"{name + (' *' if is_own else ''):24}{record['began_seconds']:10.1f}{record['wall_seconds']:9.1f}"
            f"{record['seconds']:9.1f}{record['parts_made']:12}{record['parts_reused']:8}"
            f"{record['bytes_made'] / 1e6:9.1f}"
        )
    print(f"{work['all']:.1f} s of work; {work['own']:.1f} of them for this family (*)")


def proportions(
    tokens: float, texts: int, units: int, entities: int, relations: int, about: int, high: int, others: int, near: int
) -> dict[str, float]:
    """Return ratios that compare with table 4, whatever the size of the corpus."""
    nodes = texts + units + entities + relations + about + 2 * high
    counts = {"T": texts, "S": units, "N": entities, "R": relations, "A": about, "H": high}
    return {
        **{f"{kind}, % of nodes": 100 * count / max(nodes, 1) for kind, count in counts.items()},
        "A, % of N": 100 * about / max(entities, 1),
        "nodes a 1,000 tokens": 1000 * nodes / max(tokens, 1),
        "S a 1,000 tokens": 1000 * units / max(tokens, 1),
        "N a S": entities / max(units, 1),
        "edges that are not near a node": others / max(nodes, 1),
        "near edges a vector": near / max(texts + units + about + high, 1),
        "near edges, % of edges": 100 * near / max(others + near, 1),
    }


def print_counts(snapshot: Snapshot) -> None:
    counts = statistics(snapshot)
    nodes = {kind: one["nodes"] for kind, one in counts["nodes"].items()}
    tokens = pc.sum(snapshot.table("passages", ["tokens"])["tokens"]).as_py() or 0
    ours = proportions(tokens, *(nodes[kind] for kind in "TSNRAH"), counts["other_edges"], counts["near_edges"])
    theirs = {name: proportions(1e6 * row[0], *row[1:9]) for name, row in TABLE_4.items()}
    print(f"{counts['all_nodes']:,} nodes {nodes}, {counts['all_edges']:,} edges {counts['edges']}, {tokens:,} tokens")
    print(f"{'':34}{'here':>10}{'HotpotQA':>10}{'MuSiQue':>10}{'table 4: least':>17}{'most':>8}")
    for what, number in ours.items():
        every = [one[what] for one in theirs.values()]
        others = f"{theirs['HotpotQA'][what]:10.2f}{theirs['MuSiQue'][what]:10.2f}{min(every):17.2f}{max(every):8.2f}"
        print(f"{what:34}{number:10.2f}{others}")
    print_storage(snapshot, counts, tokens)


def print_storage(snapshot: Snapshot, counts: Mapping[str, Any], tokens: int) -> None:
    texts = {
        "T": ("passages", "text"),
        "S": ("units", "text"),
        "A": ("attributes", "text"),
        "H": ("elements", "text"),
        "O": ("elements", "title"),
        "R": ("heterograph/relations", "said"),
        "N": ("entities", "surface"),
    }
    lengths = {
        kind: pc.sum(pc.binary_length(snapshot.table(name, [column])[column])).as_py() or 0
        for kind, (name, column) in texts.items()
        if snapshot.shards(name)
    }
    text_bytes, corpus, stored = sum(lengths.values()), max(lengths.get("T", 0), 1), counts["storage"]
    print(f"texts in UTF-8: {size(text_bytes)}: " + ", ".join(f"{kind} {size(lengths[kind])}" for kind in lengths))
    print("stored: " + ", ".join(f"{what} {size(length)}" for what, length in stored.items()))
    times, of_passages = stored["all"] / max(text_bytes, 1), stored["all"] / corpus
    every = [MEGABYTES[name] / row[0] for name, row in TABLE_4.items()]
    print(f"stored: {times:.2f} times these texts, {of_passages:.2f} times the passages'")
    each = stored["all"] / max(tokens, 1)
    print(f"stored: {each:.0f} bytes a token of the corpus (table 3: {min(every):.0f} to {max(every):.0f})")


SECTIONS = ("build", "counts", "times", "ablations", "depth", "settings", "curve")


def print_store(
    store: str,
    questions_path: Path,
    only: Sequence[str] = SECTIONS,
    overrides: Mapping[str, object] | None = None,
    first: int | None = None,
) -> None:
    """Print sections of the benchmark.

    overrides: retrieval settings that replace the snapshot's, except where time is measured. first: limits the
    questions.
    """
    questions = read_questions(questions_path)[:first]
    with indexmill.open(store) as snapshot:
        corpus = snapshot.manifest.corpus
        print(
            f"{corpus.documents:,} documents, {corpus.passages:,} passages, {len(questions)} questions, "
            f"{dict(overrides or {})}"
        )
        asking = Asking(snapshot, questions, overrides or {})
        texts = [question.question for question in questions]
        sections: dict[str, Callable[[], None]] = {
            "build": lambda: print_build(snapshot),
            "counts": lambda: print_counts(snapshot),
            "times": lambda: print_times(snapshot, texts, asking.vectors, ["heterograph"], 10, 256, 3),
            "ablations": lambda: print_ablations(asking),
            "depth": lambda: print_depth(asking),
            "settings": lambda: print_settings(asking),
            "curve": lambda: print_curve(snapshot, questions, asking.vectors, snapshot.methods, overrides=overrides),
        }
        for name in SECTIONS:
            if name in only:
                print(f"\n{name}", flush=True)
                sections[name]()
