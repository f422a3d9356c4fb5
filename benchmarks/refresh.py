"""Measure what a nightly refresh costs, against a full build of the same corpus.

    python -m benchmarks.refresh STATE STORE [--docs 3000] [--nights 10]
    python -m benchmarks.refresh STATE STORE --docs 300 --nights 3       # a minute, for daily use
    python -m benchmarks.refresh STATE STORE --docs 600 --nights 15 --fresh  # also the last night into an empty store

STATE is a program that writes the corpus as it was after a night: `STATE NIGHT OUT --docs N --nights LAST`. STORE is
a store of night 0; if it is missing, it is built and timed first, and the times are saved beside it
(`STORE.full.json`). The nights are built into a copy, each with the real command, timed from its start to its exit.

Work is counted independently of the pipeline. New rows are the distinct embedded texts that only the new version has:
passages with their titles, sentences in their passages, names. The bytes of a night are compared with the
bytes of the shards whose documents changed and of all whole-corpus parts. CPU seconds are those of the command and all
its processes; on a busy machine, judge by the share of CPU.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import indexmill
from benchmarks.machine import argument_parser, describe_machine, differing, run_command
from benchmarks.sets import read_rows, write_night
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.text.canonical_names import NameIndex
from storage import lineage
from storage.folder import open_folder
from tasks.stages.split.split import embedded_text

MEDIAN = 0.03
"""The maximum share of the full build's time: for the median night, and, beyond its share of text, for a night of few
documents."""
FEW = 30
BYTES = 1.3
_NIGHTS = 60  # the number of nights from which a cut corpus takes its documents
_WORTH_JUDGING = 300.0  # seconds of a full build; in a shorter one, process start-up is more than 1 %


@dataclass(frozen=True)
class Timed:
    """A command's times: wall seconds from its start to its exit, and CPU seconds."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class UpdateSize:
    """The changes of a night: the documents added, edited and removed, and their share of the text."""

    documents: int
    share: float


def build(store: Path, corpus: Path) -> tuple[dict[str, Any], Timed]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    outcome = run_command("build", "--store", store, "--corpus", corpus)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return outcome, Timed(seconds, cpu)


def change(old: Path, new: Path) -> UpdateSize:
    before, after = ({row["id"]: row for row in read_rows(path)} for path in (old, new))
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    text = sum(len((after.get(name) or before[name])["text"]) for name in changed)
    return UpdateSize(len(changed), text / sum(len(row["text"]) for row in after.values()))


def embedded(store: Path, version: int) -> set[tuple[str, ...]]:
    """Return all texts whose vectors a version has: passages, sentences (with their spans) and entity names."""
    with indexmill.open(store, version=version) as snapshot:
        documents = snapshot.table("documents", ["document_id", "title"]).to_pydict()
        titles = dict(zip(documents["document_id"], documents["title"], strict=True))
        titled = snapshot.manifest.configuration["split"]["title_in_passage"]  # type: ignore[index,call-overload]
        passages = {
            row["passage_id"]: (embedded_text(titles[row["document_id"]], row["text"]) if titled else row["text"])
            for row in snapshot.table("passages", ["passage_id", "document_id", "text"]).to_pylist()
        }
        sentences = snapshot.table("sentences").to_pylist()
        # A build does not embed every name; the packs list the keys of the embedded names.
        keys = {int(key) for pack in snapshot.vectors("names", "entity_keys") for key in pack}
        entities = snapshot.table("entities", ["entity_id", "name"]).to_pydict()
    names = zip(NameIndex.keys(entities["entity_id"]).tolist(), entities["name"], strict=True)
    spans = {(passages[row["passage_id"]], str(row["start"]), str(row["end"])) for row in sentences}
    return {(text,) for text in passages.values()} | spans | {("name", name) for key, name in names if key in keys}


def manifest_of(store: Path, version: int) -> Manifest:
    with indexmill.open(store, version=version) as snapshot:
        return snapshot.manifest


def allowed_bytes(store: Path, version: int) -> int:
    """Return the bytes of a version's whole-corpus parts and parts of changed shards, without the encoder's files."""
    old, new = ({a.name: a.digest for a in manifest_of(store, v).artifacts} for v in (version - 1, version))
    touched = {name.partition("/")[2] for name in new if name.startswith("documents/") and old.get(name) != new[name]}
    opened = open_folder(store)
    entries = lineage.read(opened, manifest_of(store, version).lineage).entries
    unchanged = {a.partition("/")[2] for a in new if a.startswith("documents/")} - touched
    counted = [entry for entry in entries if entry.shard not in unchanged and entry.stage != "encoder"]
    digests = {digest for entry in counted for digest in entry.outputs.values()}
    return sum(opened.blob_size(digest) or 0 for digest in digests)


def size_of(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


def full_build(state: Path, store: Path, documents: int, folder: Path) -> Timed:
    """Return the times of the full build of a store; build the store if it is missing."""
    record = store.with_name(store.name + ".full.json")
    if not store.exists():
        _, timed = build(store, write_night(state, 0, folder, documents, _NIGHTS))
        record.write_text(json.dumps({**asdict(timed), "docs": documents, "machine": describe_machine()}) + "\n")
    if not record.exists():
        raise SystemExit(f"{record} with the times of the full build is missing: give a store that does not exist yet")
    recorded = json.loads(record.read_text())
    if recorded["docs"] != documents:
        raise SystemExit(f"{store} was built with --docs {recorded['docs']}: use that, or a new store")
    return Timed(recorded["seconds"], recorded["cpu"])


@dataclass(frozen=True)
class Night:
    """One night: its changes, the results of the run, and its cost."""

    number: int
    changed: UpdateSize
    published: bool
    vectors: int
    new_rows: int
    timed: Timed
    added: int
    allowed: int

    def line(self, full: Timed) -> str:
        return (
            f"{self.number:>5}  {self.changed.documents:>9}  {self.changed.share:>6.2%}  {self.vectors:>7}  "
            f"{self.new_rows:>8}  {self.timed.seconds:>7.1f}  {self.timed.seconds / full.seconds:>9.2%}  "
            f"{self.timed.cpu:>5.1f}  {self.timed.cpu / full.cpu:>9.2%}  {self.added / 1e6:>8.1f}  "
            f"{self.allowed / 1e6:>7.1f}  {self.added / self.allowed if self.allowed else 0:>5.2f}"
        )

    def missed(self, full: Timed) -> list[str]:
        """Return a message for each exceeded bound, and for a version that was published without need or not at all."""
        share, failures = self.timed.seconds / full.seconds, []
        if self.published != (self.changed.documents > 0):
            failures.append(f"published is {self.published} for {self.changed.documents} changed documents")
        if self.vectors > self.new_rows:
            failures.append(f"{self.vectors} vectors were made for {self.new_rows} new rows")
        if self.published and self.added > BYTES * self.allowed:
            failures.append(f"{self.added} bytes were added, more than {BYTES} times {self.allowed}")
        judged = full.seconds >= _WORTH_JUDGING and self.changed.documents <= FEW
        if judged and share > MEDIAN + self.changed.share:
            failures.append(f"it takes {share:.2%} of the full build's time, for {self.changed.share:.2%} of the text")
        return [f"night {self.number}: {failure}" for failure in failures]


HEADER = "night  documents  text %  vectors  new rows  seconds  % of full  CPU s  % of full  MB added  allowed  ratio"


def apply(number: int, store: Path, before: Path, corpus: Path) -> Night:
    """Build the corpus of the next night into a store; return the measurements."""
    size = size_of(store)
    outcome, timed = build(store, corpus)
    added, new, allowed = size_of(store) - size, 0, 0
    if outcome["published"]:
        version = outcome["version"]
        new, allowed = len(embedded(store, version) - embedded(store, version - 1)), allowed_bytes(store, version)
    published, vectors = outcome["published"], outcome["vectors_made"]
    return Night(number, change(before, corpus), published, vectors, new, timed, added, allowed)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--docs", type=int, default=3000)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--fresh", action="store_true", help="compare the last manifest with that of an empty store")
    chosen = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory(prefix="indexmill-refresh-", dir=chosen.store.absolute().parent) as temporary:
        folder = Path(temporary)
        full = full_build(chosen.state, chosen.store, chosen.docs, folder)
        print(
            f"full build of {chosen.docs} documents: {full.seconds:.1f} s, {full.cpu:.1f} CPU s\n{HEADER}", flush=True
        )
        store = folder / "store"
        shutil.copytree(chosen.store, store)
        corpus = write_night(chosen.state, 0, folder, chosen.docs, _NIGHTS)
        nights: list[Night] = []
        for number in range(1, chosen.nights + 1):
            before, corpus = corpus, write_night(chosen.state, number, folder, chosen.docs, _NIGHTS)
            nights.append(apply(number, store, before, corpus))
            print(nights[-1].line(full), flush=True)
        idle = apply(chosen.nights + 1, store, corpus, corpus)
        unlike = []
        if chosen.fresh and build(folder / "fresh", corpus)[0]["manifest"] != StoreReader(store).newest().manifest:
            unlike = [f"an empty store gets a different manifest: {differing(store, folder / 'fresh')} differ"]
    print(f"a night without a change: {idle.timed.seconds:.1f} s, {idle.timed.cpu:.1f} CPU s")
    missed = unlike + [failure for night in [*nights, idle] for failure in night.missed(full)]
    wall = statistics.median(night.timed.seconds / full.seconds for night in nights)
    cpu = statistics.median(night.timed.cpu / full.cpu for night in nights)
    print(f"median night: {wall:.2%} of the full build's time (bound {MEDIAN:.0%}), {cpu:.2%} of its CPU seconds")
    if full.seconds < _WORTH_JUDGING:
        print(f"a full build of less than {_WORTH_JUDGING:.0f} s: shares of time are shown, not judged")
    elif wall > MEDIAN:
        missed.append(f"the median night takes {wall:.2%} of the full build's time")
    print("\n".join(f"MISSED: {failure}" for failure in missed) or "every bound is met")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
