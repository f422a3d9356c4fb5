"""The README's table of recall and the file of its figures: a column for each set, a row for each method.

`python -m benchmarks.protocol DATA WORK --families all --sets 2wiki,hotpot --readme` measures these columns, writes
them to `FIGURES` and prints the whole table; columns of sets that the command does not name stay as they are. Each
column says which command printed it, of which index, and which methods were not run; what an earlier state of the
program did not record is null. A test compares the table with the README.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from indexmill.retrieve.registry import METHODS
from indexmill.snapshot import Snapshot

FIGURES = Path(__file__).parent.parent / "docs" / "measurements" / "recall.json"

TITLES = {"2wiki": "2WikiMultiHopQA", "hotpot": "HotpotQA", "techfull": "48,213 pages of documentation"}
"""The sets that the README shows, with the titles of their columns."""

ROWS = ("dense", "bm25", "tri_graph", "zoom_graph", "lsh_tree", "community_tree", "heterograph", "fused")
"""The methods from the baseline to the default, which is in bold."""

DEPTHS = (5, 10)
DEFAULT = next(iter(METHODS))

Column = Mapping[str, Any]


def read_columns(path: Path) -> dict[str, Column]:
    """The columns by the names of their sets."""
    columns: dict[str, Column] = json.loads(path.read_text(encoding="utf-8"))
    return columns


def column(command: str, snapshot: Snapshot, recall: Mapping[str, Sequence[float]], questions: int) -> Column:
    """A column, and what it was measured of; recall at 5 and 10 documents by method."""
    manifest = snapshot.manifest
    encoder = cast(Mapping[str, Any], manifest.models["encoder"])
    return {
        "command": command,
        "manifest": None if snapshot.ref is None else snapshot.ref.manifest,
        "documents": manifest.corpus.documents,
        "questions": questions,
        "encoder": encoder.get("model", encoder["backend"]),
        "precision": encoder.get("precision"),
        "recall": {
            str(k): {method: round(recall[method][place], 3) for method in ROWS if method in recall}
            for place, k in enumerate(DEPTHS)
        },
        "not_run": [method for method in ROWS if method not in recall],
    }


def write_columns(path: Path, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Replace columns in the file; returns all of them, in the order of the table."""
    known = {**(read_columns(path) if path.exists() else {}), **columns}
    ordered = {name: known[name] for name in TITLES if name in known}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return ordered


def cells(figures: Column, methods: Sequence[str] = ROWS) -> list[str]:
    """Recall at both depths in short, the default's in bold and a dash for a method that was not run."""
    recall = figures["recall"].values()
    texts = []
    for method in methods:
        text = "-" if method in figures["not_run"] else " / ".join(f"{means[method]:.3f}" for means in recall)
        texts.append(f"**{text}**" if method == DEFAULT else text)
    return texts


def table(columns: Mapping[str, Column]) -> Iterator[str]:
    """The lines of the README's table."""
    titles = [f"**`{method}`**" if method == DEFAULT else f"`{method}`" for method in ROWS]
    yield f"| | {' | '.join(TITLES[name] for name in columns)} |"
    yield f"|{' --- |' * (len(columns) + 1)}"
    for row in zip(titles, *map(cells, columns.values()), strict=True):
        yield f"| {' | '.join(row)} |"
