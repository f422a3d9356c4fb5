"""The memory and the speed of the default back-end while it meets ever more lengths of texts.

    python -m benchmarks.encoder_memory STORE [--passages 12000] [--names 6000] [--part 1500] [--streams 2]

Encodes the passages of a store's newest version, with the sentences in them, and then the names of its entities, in
parts of so many texts, as the workers of a build do. After each thousand passes it prints the resident memory, the
shapes met (texts and tokens of a pass), and tokens per second of processor time since the line before. First with the
graph as a worker opens it, its rows filled up (`indexmill.models.padded_rows`), then as it is stored, each in a process
of its own. A last line says whether both gave the same bits.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import Stopwatch, argument_parser, describe_machine
from benchmarks.overhead import Work, texts_of
from indexmill.models import openvino_encoder
from indexmill.models.embedder import Encoded, Pass
from indexmill.models.openvino_encoder import OpenVINOEmbedder

EVERY = 1000


class _Counted(OpenVINOEmbedder):
    """An encoder that prints what its passes took."""

    def start(self) -> None:
        """Count from here."""
        self.passes = self.tokens = self.told = 0
        self.shapes: set[tuple[int, ...]] = set()
        self.watch = Stopwatch()
        self.tell()

    def tell(self) -> None:
        """Print a line about what was counted."""
        resident = psutil.Process().memory_info().rss / 2**20
        speed = (self.tokens - self.told) / max(self.watch.cpu, 1e-9) if self.passes else 0
        print(f"{self.passes:10,} {len(self.shapes):8,} {resident:8,.0f} {speed:14,.0f}", flush=True)
        self.watch, self.told = Stopwatch(), self.tokens

    def _encoded(self, passes: Iterable[Pass]) -> Iterator[Encoded]:
        def counted() -> Iterator[Pass]:
            for one in passes:
                self.shapes.add(one.ids.shape)
                self.tokens += one.ids.size
                yield one

        for out in super()._encoded(counted()):
            yield out
            self.passes += 1
            if not self.passes % EVERY:
                self.tell()


def encode(work: Work, files: dict[str, Path], padded: bool, options: dict[str, Any], part: int) -> str:
    """Encode everything in this process; returns a digest of the vectors."""
    if not padded:
        openvino_encoder.pad_rows = lambda openvino, graph: False  # type: ignore[assignment]
    encoder = _Counted.open(files, **options)
    print(f"{'as a worker opens it' if padded else 'as it is stored'}, {options}")
    print(f"{'passes':>10} {'shapes':>8} {'MiB':>8} {'tokens/core-s':>14}")
    encoder.start()
    texts, spans, names = work
    digest, whole = hashlib.sha256(), Stopwatch()
    for at in range(0, len(texts), part):
        for vectors in encoder.encode_with_spans(texts[at : at + part], spans[at : at + part]):
            digest.update(vectors.tobytes())
    for at in range(0, len(names), part):
        digest.update(encoder.encode(names[at : at + part]).tobytes())
    encoder.tell()
    print(f"{encoder.tokens:,} tokens, {encoder.tokens / whole.cpu:,.0f} tokens/core-s, {whole}", flush=True)
    return digest.hexdigest()


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--passages", type=int, default=12_000)
    parser.add_argument("--names", type=int, default=6_000)
    parser.add_argument("--part", type=int, default=1_500)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--precision", default="auto")
    chosen = parser.parse_args()
    print(describe_machine())
    (texts, spans, names), files, _ = texts_of(chosen.store)
    work = texts[: chosen.passages], spans[: chosen.passages], names[: chosen.names]
    print(f"{len(work[0]):,} passages, {len(work[2]):,} names")
    options = {"streams": chosen.streams, "precision": chosen.precision}
    digests = set()
    for padded in (True, False):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            digests.add(process.submit(encode, work, files, padded, options, chosen.part).result())
    print("the same bits" if len(digests) == 1 else "OTHER BITS")


if __name__ == "__main__":
    main()
