"""Seconds and bytes of the explorer's pages, by the number of nodes and the start.

    python -m benchmarks.explore STORE [--nodes 300,2000] [--question TEXT] [--rounds 3]

For the most connected entities, for the most connected one alone, and for a question, if one is given: seconds to
choose the nodes (the retrieval included), to compute their places, to make the page, each the median of the rounds, and
what the page holds. The first row has the seconds of the first neighbourhood of all, which reads the tables.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.explore.graph import Part
from indexmill.explore.layout import laid_out
from indexmill.explore.neighbourhood import neighbourhood
from indexmill.explore.page import page_of
from indexmill.text.counted import byte_size
from indexmill.text.table import table


def measured(snapshot: indexmill.Snapshot, nodes: int, rounds: int, start: dict[str, Any]) -> list[str]:
    """The medians of a start, and what its page holds."""
    seconds: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        began = time.perf_counter()
        part = neighbourhood(snapshot, nodes=nodes, principals=indexmill.UNRESTRICTED, **start)
        chosen = time.perf_counter()
        laid_out(len(part.nodes), ends(part))
        placed = time.perf_counter()
        html = page_of(part).html
        seconds.append((chosen - began, placed - chosen, time.perf_counter() - placed))
    medians = [f"{statistics.median(column):.2f}" for column in zip(*seconds, strict=True)]
    return [f"{len(part.nodes):,}", f"{len(part.edges):,}", *medians, byte_size(len(html))]


def ends(part: Part) -> np.ndarray[Any, Any]:
    """The edges as the layout takes them."""
    return np.array([(edge.source, edge.target) for edge in part.edges], dtype=np.int64).reshape(-1, 2)


def main() -> int:
    """Print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--nodes", default="300,2000")
    parser.add_argument("--question")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(describe_machine())
    with indexmill.open(given.store) as snapshot:
        began = time.perf_counter()
        first = neighbourhood(snapshot, nodes=1, principals=indexmill.UNRESTRICTED)
        opened = time.perf_counter() - began
        starts: dict[str, dict[str, Any]] = {"index": {}, "entity": {"entity": first.nodes[0].id.partition(":")[2]}}
        if given.question:
            starts["question"] = {"question": given.question}
            neighbourhood(snapshot, nodes=1, principals=indexmill.UNRESTRICTED, **starts["question"])
        rows = [["(first)", "1", "0", f"{opened:.2f}", "", "", ""]]
        for nodes in map(int, given.nodes.split(",")):
            rows += [[name, *measured(snapshot, nodes, given.rounds, start)] for name, start in starts.items()]
    print(table(["start", "nodes", "links", "choose s", "places s", "page s, places included", "bytes"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
