"""The golden snapshot: a store with every family, and the answers that it gave.

    python -m tests.golden_snapshot

writes `tests/fixtures/format-<version>.tar.xz` and the answers beside it, once a format or reader version begins.
"""

from __future__ import annotations

import json
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

QUESTIONS = ["Who built the bridge of Ostrava?", "What did Ada Marl found?", "lighthouse"]

DOCUMENTS = documents(12, words=80)

SETTINGS: dict[str, Any] = {
    "families": {
        "lsh_tree": {"smallest": 2, "largest": 3},
        "community_tree": {"enabled": True, "fewest": 3, "largest": 4},
        "heterograph": {"enabled": True, "neighbours": 3, "grain": 0, "largest": 8},
    },
    "resolve": {"description": {"enabled": True}},
}

_ARCHIVE = Path(__file__).parent / "fixtures" / f"format-{FORMAT_VERSION}.tar.xz"
_ANSWERS = _ARCHIVE.with_name(f"format-{FORMAT_VERSION}.json")


def extracted(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The store, unpacked into a folder, and what was recorded of it."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store", json.loads(_ANSWERS.read_text(encoding="utf-8"))


def answers_of(snapshot: Snapshot) -> dict[str, list[list[dict[str, Any]]]]:
    """What each method finds for the questions."""
    return {
        method: [
            [{"kind": hit.kind, "id": hit.id, "score": round(hit.score, 5), "text": hit.text} for hit in hits]
            for hits in snapshot.retrieve_batch(QUESTIONS, method=method, k=3)
        ]
        for method in sorted(snapshot.methods)
    }


def _write() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build(settings(folder / "built", write_corpus(folder / "corpus.jsonl", DOCUMENTS), **SETTINGS))
        copy_version(open_folder(folder / "built"), 1, str(folder / "store"), progress=Silent(), note="kept")
        promote(open_folder(folder / "store"), 1, "prod")
        with indexmill.open(folder / "store") as snapshot:
            recorded = {"manifest": snapshot.ref.manifest if snapshot.ref else "", "answers": answers_of(snapshot)}
        with tarfile.open(_ARCHIVE, "w:xz") as archive:
            for name in (STORE_FILE, "refs", "blobs"):  # what a reader needs
                archive.add(folder / "store" / name, f"store/{name}", filter=_plain)
    text = json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False)
    _ANSWERS.write_text(f"{text}\n", encoding="utf-8")


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without owner and time."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    _write()
