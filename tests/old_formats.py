"""Snapshots of the formats that readers promise to read, as the code of their day wrote them.

    python -m tests.old_formats

writes `tests/fixtures/format-<version>.tar.xz`, a store with every family, and the answers that it gave beside it. Run
it when a new format version begins; an archive that is there stays as it is.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import indexmill
from flows.copy import copy_version
from flows.promote import promote
from indexmill.snapshot import Snapshot
from indexmill.store.layout import FORMAT_VERSION, STORE_FILE
from storage.folder import open_folder
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings

FIXTURES = Path(__file__).parent / "fixtures"

QUESTIONS = ["Who built the bridge of Ostrava?", "What did Ada Marl found?", "lighthouse"]

FAMILIES: dict[str, Any] = {
    "lsh_tree": {"smallest": 2, "largest": 3},
    "community_tree": {"enabled": True, "fewest": 3, "largest": 4},
    "heterograph": {"enabled": True, "neighbours": 3, "grain": 0, "largest": 8},
}


def formats() -> list[int]:
    """The versions of the formats that are kept."""
    return sorted(int(path.name.split(".")[0].removeprefix("format-")) for path in FIXTURES.glob("format-*.tar.xz"))


def extracted(version: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The store of a format, unpacked into a folder, and what was recorded of it."""
    with tarfile.open(FIXTURES / f"format-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store", json.loads((FIXTURES / f"format-{version}.json").read_text(encoding="utf-8"))


def answers_of(snapshot: Snapshot) -> dict[str, list[list[dict[str, Any]]]]:
    """What each method finds for the questions."""
    return {
        method: [
            [{"kind": hit.kind, "id": hit.id, "score": round(hit.score, 5), "text": hit.text} for hit in hits]
            for hits in snapshot.retrieve_batch(QUESTIONS, method, 3)
        ]
        for method in sorted(snapshot.methods)
    }


def _write(version: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = write_corpus(folder / "corpus.jsonl", documents(12, words=80))
        build(settings(folder / "built", corpus, families=FAMILIES, resolve={"description": {"enabled": True}}))
        copy_version(open_folder(folder / "built"), 1, str(folder / "store"), progress=Silent(), note="kept")
        promote(open_folder(folder / "store"), 1, "prod")
        with indexmill.open(folder / "store") as snapshot:
            recorded = {"manifest": snapshot.ref.manifest if snapshot.ref else "", "answers": answers_of(snapshot)}
        FIXTURES.mkdir(exist_ok=True)
        with tarfile.open(FIXTURES / f"format-{version}.tar.xz", "x:xz") as archive:
            for name in (STORE_FILE, "refs", "blobs"):  # what a reader needs
                archive.add(folder / "store" / name, f"store/{name}", filter=_plain)
    text = json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False)
    (FIXTURES / f"format-{version}.json").write_text(f"{text}\n", encoding="utf-8")


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without owner and time."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    if FORMAT_VERSION in formats():
        sys.exit(f"format {FORMAT_VERSION} is kept already: it is what older code wrote, and is not written again")
    _write(FORMAT_VERSION)
