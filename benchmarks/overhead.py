"""Measure what a build costs beyond its embedding calls.

    python -m benchmarks.overhead CORPUS.jsonl [--workers N] [--quick]

Builds an index of the corpus into an empty store with the real command: a private Prefect server, Dask workers, every
stage. Then encodes the same texts with the same encoder files alone: one single-threaded process for each worker of the
build. Prints both times and their ratio. `--quick` uses the first thousand documents.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.models.openvino_encoder import ENCODER_FILES, OpenVINOEmbedder
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import NameIndex
from tasks.stages.split.split import embedded_text

Work = tuple[list[str], list[list[tuple[int, int]]], list[str]]


def texts_of(snapshot: Snapshot) -> Work:
    """Return the texts whose vectors a version has: passages, their sentence spans, entity names."""
    documents = snapshot.table("documents", ["document_id", "title"]).to_pydict()
    titles = dict(zip(documents["document_id"], documents["title"], strict=True))
    titled = snapshot.manifest.configuration["split"]["title_in_passage"]  # type: ignore[index,call-overload]
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in snapshot.table("sentences").to_pylist():
        spans.setdefault(row["passage_id"], []).append((row["start"], row["end"]))
    texts, shifted = [], []
    for row in snapshot.table("passages", ["passage_id", "document_id", "text"]).to_pylist():
        text = embedded_text(titles[row["document_id"]], row["text"]) if titled else row["text"]
        shift = len(text) - len(row["text"])
        texts.append(text)
        shifted.append([(start + shift, end + shift) for start, end in spans.get(row["passage_id"], [])])
    # A build does not embed every name; the packs list the keys of the embedded names.
    embedded = {int(key) for keys in snapshot.vectors("names", "entity_keys") for key in keys}
    entities = snapshot.table("entities", ["entity_id", "name"]).to_pydict()
    owners = NameIndex.keys(entities["entity_id"]).tolist()
    return texts, shifted, [name for name, owner in zip(entities["name"], owners, strict=True) if owner in embedded]


def equal_shares(work: Work, workers: int) -> list[Work]:
    """Divide the work into equal shares, each with long and short texts."""
    texts, spans, names = work
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    shares = []
    for number in range(workers):
        rows = order[number::workers]
        shares.append(([texts[row] for row in rows], [spans[row] for row in rows], names[number::workers]))
    return shares


def embed(work: Work, files: dict[str, Path], barrier: Any, seconds: Any) -> None:
    """Run one process of the bare run: open the encoder, wait for the other processes, then time only the calls."""
    embedder = OpenVINOEmbedder.open(files, threads=1)
    embedder.encode(["warm"])
    barrier.wait()
    started = time.perf_counter()
    texts, spans, names = work
    embedder.encode_with_spans(texts, spans)
    embedder.encode(names)
    seconds.put(time.perf_counter() - started)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--quick", action="store_true", help="use the first thousand documents")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexmill-overhead-") as folder:
        corpus = chosen.corpus
        if chosen.quick:
            corpus = Path(folder) / "corpus.jsonl"
            with chosen.corpus.open(encoding="utf-8") as source:
                corpus.write_text("".join(itertools.islice(source, 1000)), encoding="utf-8")
        store = Path(folder) / "store"
        command = [sys.executable, "-m", "indexmill", "build", "--json", "--workers", str(chosen.workers)]
        started = time.perf_counter()
        done = subprocess.run(
            [*command, "--corpus", str(corpus), "--store", str(store)], check=True, stdout=subprocess.PIPE
        )
        wall = time.perf_counter() - started
        outcome = json.loads(done.stdout)

        with indexmill.open(store) as snapshot:
            work, files = texts_of(snapshot), {name: snapshot.file(f"encoder/{name}") for name in ENCODER_FILES}
            tokens = sum(snapshot.table("passages", ["tokens"]).column(0).to_pylist())
        vectors = len(work[0]) + sum(map(len, work[1])) + len(work[2])
        if vectors < outcome["vectors_made"]:
            raise SystemExit(f"the bare run has {vectors} texts, the build made {outcome['vectors_made']} vectors")
        context = multiprocessing.get_context("spawn")
        barrier, seconds = context.Barrier(chosen.workers), context.Queue()
        processes = [
            context.Process(target=embed, args=(share, files, barrier, seconds))
            for share in equal_shares(work, chosen.workers)
        ]
        for process in processes:
            process.start()
        bare = max(seconds.get() for _ in processes)
        for process in processes:
            process.join()

    print(describe_machine())
    print(f"{outcome['documents']} documents, {outcome['passages']} passages, {tokens} passage tokens, "
          f"{outcome['vectors_made']} vectors; {chosen.workers} workers of one thread")  # fmt: skip
    print(f"build, from the command to its exit   {wall:7.1f} s")
    print(f"vectors: build {outcome['vectors_made']}, bare run {vectors}")
    print(f"bare embedding calls, same texts      {bare:7.1f} s   {tokens / bare:,.0f} passage tokens/s")
    print(f"ratio                                 {wall / bare:7.2f}")


if __name__ == "__main__":
    main()
