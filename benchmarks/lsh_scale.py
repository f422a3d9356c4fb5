"""lsh_tree without its language model: time and memory of segmenting random vectors, layer after layer.

    python -m benchmarks.lsh_scale [--rows 10000,100000,1000000] [--quick]

Vectors of 384 dimensions are drawn into a temporary file and mapped from it; a summary's vector is the mean of its
children's, of length one, and stands in for the model and the encoder. Each size runs in a process of its own, whose
peak resident memory is printed: pages of the mapped file that the system keeps are part of it. What is timed is all
else: codes, segments, node ids, the layers above.

--quick takes 2,000 and 20,000 rows: seconds.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import Stopwatch, argument_parser, describe_machine, peak_memory
from tasks.core.groups import Ids
from tasks.families.lsh_tree.hierarchy import Bounds, Layer, Nodes, layer_over
from tasks.families.lsh_tree.hyperplanes import Hyperplanes

DIMENSION = 384
BOUNDS = Bounds(smallest=6, largest=12, layers=16)
TILE = 4096


def draw(path: Path, rows: int) -> None:
    generator = np.random.default_rng(0)
    with path.open("wb") as file:
        for low in range(0, rows, TILE):
            tile = generator.standard_normal((min(TILE, rows - low), DIMENSION), dtype=np.float32)
            file.write((tile / np.linalg.norm(tile, axis=1)[:, None]).tobytes())


def layers_over(
    passages: Nodes, summarise: Callable[[Layer], Ids], bounds: Bounds, fingerprint: str = "mean"
) -> list[Layer]:
    """All layers, from the one over the passages up; `summarise` returns the digests of a layer's summaries."""
    layers: list[Layer] = []
    nodes = passages
    while bounds.want_another(len(layers), len(nodes.ids)):
        layer = layer_over(len(layers) + 1, nodes, bounds, fingerprint)
        layers.append(layer)
        nodes = Nodes(layer.ids, summarise(layer), layer.codes)
    return layers


def measure(path: Path, rows: int, queue: Any) -> None:
    vectors = np.memmap(path, dtype=np.float32, mode="r", shape=(rows, DIMENSION))
    ids = [f"{row:032x}" for row in range(rows)]
    planes = Hyperplanes(0, DIMENSION)
    before, clock = peak_memory(), Stopwatch()
    layers = layers_over(Nodes(ids, ids, vectors), mean_summaries, planes, BOUNDS)
    spent, waited, peak = clock.cpu, clock.wall, peak_memory()
    sizes = np.concatenate([np.diff(layer.segments.offsets) for layer in layers])
    assert sizes.min() >= BOUNDS.smallest
    assert sizes.max() <= BOUNDS.largest
    queue.put((spent, waited, before, peak, [len(layer.ids) for layer in layers]))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    sizes = [2000, 20_000] if chosen.quick else [int(rows) for rows in chosen.rows.split(",")]
    print(describe_machine())
    print(
        f"\n{'vectors':>10}{'CPU s':>9}{'wall s':>9}{'us each':>9}{'peak GiB':>10}{'before':>8}   summaries per layer"
    )
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.f32"
            draw(path, rows)
            queue = context.Queue()
            process = context.Process(target=measure, args=(path, rows, queue))
            process.start()
            spent, waited, before, peak, layers = queue.get()
            process.join()
            path.unlink()
            each = 1e6 * spent / rows
            print(f"{rows:10,}{spent:9.2f}{waited:9.2f}{each:9.1f}{peak:10.2f}{before:8.2f}   {layers}", flush=True)


if __name__ == "__main__":
    main()
