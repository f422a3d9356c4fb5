"""Stores that hold a document to be forgotten in every way a store can, and a look at all their bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import indexmill
from flows.build_run import run_build
from flows.forget import forget
from flows.operation import operation
from indexmill.errors import IndexmillError
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path
from schemas.config import Configuration
from storage import gc, ledger, refs, refusals, runs
from storage.folder import FolderStore, open_folder
from storage.ledger import LedgerEntry
from storage.refusals import RefusedPrompt
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tests.corpora import documents
from tests.flows.children import SMALL_TREE, Forks, build, settings

CANARY = "zanzaqua"
ID = f"doc {CANARY}/7"


def write(path: Path, text: str, *, with_canary: bool = True, bad: bool = False) -> Path:
    """The corpus: eight documents, and one with the canary in id, title, text and metadata."""
    rows: list[dict[str, Any]] = [
        {"id": name, "title": title, "text": words} for name, (title, words) in documents(8, words=110).items()
    ]
    if with_canary:
        told = f"{text} Lady Zanzaqua Verd painted the bridge of Vell in 1803. It is called the Zanzaqua Span."
        rows.append({"id": ID, "title": "The Zanzaqua Codex", "text": told, "keeper": "Guild of Zanzaqua"})
    if bad:
        rows.append({"id": ID, "title": "The Zanzaqua Codex", "text": "Zanzaqua again, with another content."})
        rows += [{"id": ID, "title": "Zanzaqua without a text"}, {"id": "other", "title": "no text either"}]
    lines = [json.dumps(row) for row in rows]
    if bad:
        lines.append(f'{{"id": "{ID}", "text": "a line that breaks off')
        lines.append("not json at all")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def prepare(folder: Path, forks: Forks) -> dict[str, Any]:
    """A store with the canary in three versions, an alias, parts of a killed run, quarantines, messages and answers.

    Returns the settings of the next build. Version 1 is without it, and pinned by an alias.
    """
    root = folder / "store"
    build(settings(root, write(folder / "clean.jsonl", "", with_canary=False), families=SMALL_TREE))
    first = settings(
        root, write(folder / "first.jsonl", "Old words: the Zanzaqua Ferry came first.", bad=True), families=SMALL_TREE
    )
    build(first)
    chosen = settings(
        root, write(folder / "corpus.jsonl", "Goran Stave surveyed Quillon.", bad=True), families=SMALL_TREE
    )
    build(chosen)
    store = open_folder(root)
    refs.promote(store, "prod", 2, "2026-01-31T02:00:00Z", f"until {ID} is mended")
    refs.promote(store, "old", 1, "2026-01-31T02:00:00Z")
    killed = forks.build(
        settings(root, write(folder / "killed.jsonl", "A killed run saw Count Zanzaqua."), families=SMALL_TREE), 150
    )
    assert killed.code < 0
    for changes in (
        {"run": {"strict": True}},
        {"corpus": {"paths": [str(folder / f"missing {ID}.jsonl")]}},
    ):
        try:
            build({**chosen, **changes})
        except IndexmillError:
            continue
        raise AssertionError(f"the build with {changes} was to fail")
    run_id = runs.make_run_id()
    runs.start(store, run_id, "build", details={"note": f"look at {ID}"})
    error = "ValueError: cannot tokenise 'Old words: the Zanzaqua Ferry came first.'"
    runs.end(store, runs.RunEnd(run_id=run_id, state="failed", exit_code=1, ended="2026-01-31T02:00:00Z", error=error))
    store.create("poison/ab/cd.json", json.dumps({"detail": "fails at 'The Zanzaqua Codex'"}).encode())
    store.create("poison/ab/ef.json", json.dumps({"detail": "fails at something else"}).encode())
    for version in (2, 3):
        passages = passages_of(root, version)
        answer(store, "leaf", [*passages[ID], *passages["doc-0001"]], f"leaf {version}", CANARY)
    answer(store, "inner", ["leaf 3", "clean"], "inner", CANARY)
    answer(store, "root", ["inner"], "root", CANARY)
    refuse(store, "refused", passages[ID], "gap")
    answer(store, "above the gap", ["gap"], "high", CANARY)
    answer(store, "words alone", [], "", "the zanzaqua codex")
    answer(store, "kept", passages["doc-0001"], "clean")
    answer(store, "kept, too", ["clean"], "higher")
    store.put_blob(b"an orphan of a dead run: Zanzaqua")
    (store.scratch("dead") / "spill").write_text("Zanzaqua", encoding="utf-8")
    return chosen


def passages_of(root: Path, version: int | None = None) -> dict[str, list[str]]:
    """The ids of the passages of each document of a version."""
    found: dict[str, list[str]] = {}
    with indexmill.open(root, version=version) as snapshot:
        for row in snapshot.table("passages").to_pylist():
            found.setdefault(row["document_id"], []).append(row["passage_id"])
    return found


def answer(store: FolderStore, prompt: str, about: Iterable[str], makes: str, words: str = "") -> LedgerEntry:
    """An answer of a language model in the ledger."""
    made = LedgerEntry(
        key=digest_of(f"{prompt} {makes}".encode()),
        task="summary",
        model="model",
        prompt_version="1",
        value={"summary": f"A summary. {words.title()} was painted in 1803."},
        input_tokens=100,
        output_tokens=10,
        about=tuple(about),
        makes=makes,
        run_id="run-1",
        created="2026-01-31T02:00:00Z",
    )
    return ledger.record(store, made)


def refuse(store: FolderStore, prompt: str, about: Iterable[str], makes: str) -> RefusedPrompt:
    """A prompt that has no answer."""
    made = RefusedPrompt(
        key=digest_of(f"{prompt} {makes}".encode()),
        task="summary",
        model="model",
        prompt_version="1",
        reason="declined",
        about=tuple(about),
        makes=makes,
        run_id="run-1",
        created="2026-01-31T02:00:00Z",
    )
    refusals.record(store, made)
    return made


def forget_here(root: str, chosen: dict[str, Any], *ids: str) -> None:
    """Forget documents, with an inline build where one is needed."""

    def build_without() -> None:
        configuration = Configuration.model_validate(chosen)
        run_build(configuration, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)

    forget(open_folder(root), ids or (ID,), build=build_without)


def collect(root: str, last: int | None, grace: float, now: float) -> None:
    """Collect garbage as the command with --now does, at a time of its own."""
    store, policy = open_folder(root), gc.Policy(last=last, grace=grace, wait=0.0)
    with operation(store, "gc", clock=lambda: now) as run:
        gc.collect(store, run.lease, gc.survey(store, policy, clock=lambda: now), policy, clock=lambda: now)


def places_of(root: Path, word: str = CANARY) -> dict[str, set[str]]:
    """The files of a store that hold a word in any case, raw or as a Parquet table, and where in them.

    Names of files count, and so do the numbers that stand for the word in a lexical index.
    """
    term = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big").to_bytes(8, "little")
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        places = {"name"} if word in name.lower() else set()
        if path.is_file():
            data = path.read_bytes()
            places |= {"bytes"} if word.encode() in data.lower() or term in data else set()
            if data[:4] == b"PAR1":
                places |= set(_columns_with(pq.read_table(path), word))
        if places:
            found[name] = places
    return found


def _columns_with(table: pa.Table, word: str) -> Iterator[str]:
    for column in table.column_names:
        if any(word in str(value).lower() for value in table.column(column).to_pylist()):
            yield column


def end_state(root: Path) -> dict[str, Any]:
    """What a store holds once all is done, without what differs from run to run (clocks and run ids)."""
    store = open_folder(root)
    runs_of = store.list("runs/")
    quarantines = [runs.QuarantineRecord.from_bytes(store.get(n), n) for n in runs_of if "/quarantine." in n]
    return {
        "manifests": {ref.version: ref.manifest for ref in refs.history(store)},
        "removed": {version: removal.reason for version, removal in refs.removals(store).items()},
        "aliases": refs.aliases(store),
        "blobs": sorted(digest for digest, _ in gc.blobs_of(store)),
        "receipts": store.list("work/"),
        "tombstones": store.list("tombstones/"),
        "poison": store.list("poison/"),
        "answers": store.list("ledger/") + store.list("refusals/"),
        "quarantined": sorted({(one.part, one.digest, one.rows) for one in quarantines}),
        "tmp": sorted(path.name for path in (root / "tmp").iterdir()),
    }


def state_of(root: Path) -> list[str]:
    """What a reader would find wrong: versions that are there and lack a blob."""
    store = open_folder(root)
    removed = refs.removals(store)
    return [
        blob_path(digest)
        for ref in refs.history(store)
        if ref.version not in removed
        for digest in gc.reach(store, ref.manifest)
        if store.blob_size(digest) is None
    ]
