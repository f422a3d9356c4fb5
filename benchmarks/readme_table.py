"""The README's table of recall, and the file with its figures: a column for each set, a row for each method.

`python -m benchmarks.protocol DATA WORK --families all --sets 2wiki,hotpot --readme` measures these columns, writes
them to `FIGURES` and prints the whole table; columns of other sets stay as they are. Each column records the command
that measured it, the index, and the methods that were not run; unrecorded fields are null.
A test compares the table with the README.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from indexmill.retrieve.method_registry import METHODS
from indexmill.snapshot import Snapshot

FIGURES = Path(__file__).parent.parent / "docs" / "measurements" / "recall.json"

TITLES = {"2wiki": "2WikiMultiHopQA", "hotpot": "HotpotQA", "techfull": "48,213 pages of documentation"}
"""The README's sets, with the titles of their columns."""

ROWS = ("dense", "bm25", "tri_graph", "zoom_graph", "lsh_tree", "community_tree", "heterograph", "fused")
"""The methods, from the baselines to the default, which is in bold."""

DEPTHS = (5, 10)
DEFAULT = next(iter(METHODS))

Column = Mapping[str, Any]


def read_columns(path: Path) -> dict[str, Column]:
    columns: dict[str, Column] = json.loads(path.read_text(encoding="utf-8"))
    return columns


def column(command: str, snapshot: Snapshot, recall: Mapping[str, Sequence[float]], questions: int) -> Column:
    """Return a column, which names its command and index. recall: the recall at 5 and 10 documents, by method."""
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
    """Replace columns in the file; return all columns, in the order of the table."""
    merged = {**(read_columns(path) if path.exists() else {}), **columns}
    ordered = {name: merged[name] for name in TITLES if name in merged}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return ordered


def cells(figures: Column, methods: Sequence[str] = ROWS) -> list[str]:
    """Format recall at both depths compactly: the default in bold, a dash for a method that was not run."""
    recall = figures["recall"].values()
    texts = []
    for method in methods:
        text = "-" if method in figures["not_run"] else " / ".join(f"{means[method]:.3f}" for means in recall)
        texts.append(f"**{text}**" if method == DEFAULT else text)
    return texts


def table(columns: Mapping[str, Column]) -> Iterator[str]:
    titles = [f"**`{method}`**" if method == DEFAULT else f"`{method}`" for method in ROWS]
    yield f"| | {' | '.join(TITLES[name] for name in columns)} |"
    yield f"|{' --- |' * (len(columns) + 1)}"
    for row in zip(titles, *map(cells, columns.values()), strict=True):
        yield f"| {' | '.join(row)} |"
