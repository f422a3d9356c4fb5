"""Forgetting: no byte of a document stays, whatever held it and wherever the forgetting is interrupted."""

from __future__ import annotations

import io
import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.build_run import run_build
from flows.forget import forget, lift
from indexmill.command import main
from indexmill.errors import BadInput, IndexmillError, LeaseLost, SnapshotNotFound, StoreError
from indexmill.store.canonical import digest_of
from indexmill.store.layout import ledger_name
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from schemas.config import Configuration
from storage import refs, runs, tombstones
from storage.folder import init_folder, open_folder
from storage.forget import ForgetRecord, LiftRecord
from storage.lease import acquire
from tasks.core.executor import InlineExecutor
from tasks.pipeline.build import Build
from tests.corpora import documents, write_corpus
from tests.deep import WHOLE, share
from tests.flows.children import Forks, build, settings
from tests.flows.commands import write_settings
from tests.flows.forgetting import CANARY, ID, end_state, forget_here, places_of, prepare, state_of
from tests.flows.readers import answers, complete_parts
from tests.storage.quick import quick_folder

FORGET = "tests.flows.forgetting:forget_here"


@dataclass(frozen=True)
class Case:
    """A store that holds the canary everywhere, and what is left of it when nobody disturbs the forgetting."""

    start: Path
    chosen: dict[str, Any]
    crossed: tuple[str, ...]
    end: dict[str, Any]

    def copy(self, root: Path) -> dict[str, Any]:
        """The settings of a copy of the store."""
        shutil.copytree(self.start, root)
        return {**self.chosen, "store": str(root)}

    def sample(self, count: int) -> list[int]:
        """So many boundaries, evenly spread, and those of the records that order everything."""
        ordering = [
            at for at, name in enumerate(self.crossed, 1) if name.startswith(("create refs", "create forgotten"))
        ]
        return sorted({*(len(self.crossed) * part // count + 1 for part in range(count)), *ordering})


@pytest.fixture(scope="module")
def case(forks: Forks) -> Iterator[Case]:
    with quick_folder() as folder:
        chosen = prepare(folder, forks)
        done = folder / "done"
        shutil.copytree(folder / "store", done)
        ended = forks.call(FORGET, str(done), {**chosen, "store": str(done)})
        assert (ended.code, ended.message) == (0, "")
        yield Case(folder / "store", chosen, ended.crossed, end_state(done))


def everything(root: Path) -> dict[str, tuple[bytes, float]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime) for path in root.rglob("*") if path.is_file()}


def test_a_forgotten_document_is_in_no_byte_of_the_store(case: Case, quick: Path) -> None:
    chosen = case.copy(quick / "store")
    before = places_of(quick / "store")
    columns = set().union(*before.values())
    assert {"document_id", "title", "text", "metadata", "surface", "name", "detail"} <= columns
    kinds = {"blobs", "ledger", "poison", "refs", "runs", "tmp"}
    assert {name.split("/")[0] for name in before} == kinds
    assert places_of(quick / "store", "count zanzaqua")  # in the parts of the killed run alone
    forget_here(chosen["store"], chosen)
    assert places_of(quick / "store") == {}
    assert end_state(quick / "store") == case.end
    assert state_of(quick / "store") == []


def test_what_does_not_name_the_document_stays(case: Case) -> None:
    clean = case.end["manifests"][1]
    assert case.end["manifests"][4] == clean  # the corpus without it makes the version that was before it
    assert case.end["removed"] == {2: "forgotten", 3: "forgotten"}
    assert case.end["aliases"] == {"old": 1, "prod": 4}
    assert case.end["poison"] == ["poison/ab/ef.json"]
    assert {rows for _, _, rows in case.end["quarantined"]} == {0, 2}  # other refused rows
    assert case.end["tmp"] == []
    kept = (("kept", "clean"), ("kept, too", "higher"))
    assert case.end["answers"] == sorted(ledger_name(digest_of(" ".join(words).encode())) for words in kept)


def ends_well(case: Case, root: Path, chosen: dict[str, Any]) -> None:
    """Hold a store against the promises after a disturbed forgetting, then run it again."""
    assert state_of(root) == []
    assert verify(StoreReader(root)).ok
    done = open_folder(root).list("forgotten/")
    assert not done or places_of(root) == {}
    forget_here(str(root), chosen)
    assert places_of(root) == {}
    assert end_state(root) == case.end
    assert verify(StoreReader(root)).ok


def killed(forks: Forks, case: Case, boundaries: list[int], mode: str = "kill") -> None:
    with quick_folder() as folder:
        for at in boundaries:
            root = folder / str(at)
            chosen = case.copy(root)
            ended = forks.call(FORGET, str(root), chosen, at=at, mode=mode)
            if mode in ("kill", "torn"):
                assert ended.code in (-signal.SIGKILL, 0), ended
            elif ended.code:
                # A lease that could not be given back is in the way of the next step, until the process has ended.
                assert ended.error in ("StoreError", "StoreNotWritable", "DiskFull", "LeaseLost"), ended
                assert CANARY not in ended.message.lower()
            ends_well(case, root, chosen)
            shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_forgetting_killed_at_many_boundaries(forks: Forks, case: Case) -> None:
    assert len(case.crossed) > 300
    killed(forks, case, case.sample(len(case.crossed) // (1 if WHOLE else 20)))


@pytest.mark.parametrize("mode", ["enospc", "eio"])
def test_forgetting_on_a_failing_disk_loses_nothing(forks: Forks, case: Case, mode: str) -> None:
    total = len(case.crossed)
    killed(forks, case, [total // 2, total * 3 // 4], mode)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "first"), [("torn", 0), ("short", 3), ("enospc", 6), ("eio", 9)])
def test_forgetting_on_a_failing_disk_at_many_boundaries(forks: Forks, case: Case, mode: str, first: int) -> None:
    killed(forks, case, list(share(range(1, len(case.crossed) + 1), 24, first)), mode)


@pytest.mark.slow
def test_later_builds_leave_it_out_and_a_second_forgetting_finds_nothing(case: Case, quick: Path) -> None:
    root = quick / "store"
    chosen = case.copy(root)
    forget_here(str(root), chosen)
    again = build(chosen)
    assert (again.published, again.forgotten, again.quarantined) == (False, 1, 2)
    assert places_of(root) == {}
    forget_here(str(root), chosen)
    *_, last = sorted(open_folder(root).list("forgotten/"))
    record = ForgetRecord.from_bytes(open_folder(root).get(last), last)
    assert (record.versions, record.blobs, record.receipts, record.done) == ((), 0, 0, True)
    assert record.documents == (tombstones.document_digest(ID),)


def test_a_withdrawn_version_says_so_to_everyone(case: Case, quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = quick / "store"
    chosen = case.copy(root)
    with indexmill.open(root, version=2) as unused, indexmill.open(root) as used:
        before = used.retrieve("Who painted the bridge of Vell?", method="bm25")
        forget_here(str(root), chosen)
        assert used.retrieve("Who painted the bridge of Vell?", method="bm25") == before
        with pytest.raises(SnapshotNotFound, match="version 2 was withdrawn"):
            unused.retrieve("Who painted the bridge of Vell?", method="bm25")
    reader = StoreReader(root)
    for look in (lambda: indexmill.open(root, version=2), lambda: verify(reader, 3)):
        with pytest.raises(SnapshotNotFound, match="is to be forgotten"):
            look()
    with pytest.raises(SnapshotNotFound, match="version 3 was withdrawn"):
        refs.promote(open_folder(root), "prod", 3, "2026-01-31T02:00:00Z")
    with indexmill.open(root, alias="prod") as moved:
        assert moved.version == 4
    assert main(["snapshots", "--store", str(root), "--json"]) == 0
    listed = {one["version"]: one for one in json.loads(capsys.readouterr().out)["snapshots"]}
    assert listed[2]["removed"]["reason"] == listed[3]["removed"]["reason"] == "forgotten"
    assert listed[1]["removed"] is None is listed[2]["damaged"]
    assert main(["snapshots", "--store", str(root)]) == 0
    assert "withdrawn: contained a forgotten document" in capsys.readouterr().out


def test_no_build_is_refused_where_the_newest_version_holds_it(case: Case, quick: Path) -> None:
    chosen = case.copy(quick / "store")
    store = open_folder(chosen["store"])
    with pytest.raises(BadInput, match=r"version 3 of .*, the newest, contains documents to forget, and no corpus"):
        forget(store, [ID], build=None, why_not="no corpus is configured")
    assert store.list("tombstones/") == []
    assert refs.removals(store) == {}
    assert CANARY not in str(runs.list_runs(store)[-1]).lower()


@pytest.mark.slow
def test_without_a_build_where_the_newest_version_is_clean(quick: Path) -> None:
    rows = documents(6, words=60)
    root = quick / "store"
    for left in (rows, {name: row for name, row in rows.items() if name != "doc-0002"}):
        build(settings(root, write_corpus(quick / "corpus.jsonl", left)))
    record, known = forget(open_folder(root), ["doc-0002", "doc-9999"], build=None)
    assert (record.versions, known) == ((1,), {"doc-0002"})
    assert len(open_folder(root).list("tombstones/")) == 2
    assert verify(StoreReader(root)).ok


def test_a_build_that_fails_leaves_the_tombstones_and_every_version(case: Case, quick: Path) -> None:
    chosen = case.copy(quick / "store")
    store = open_folder(chosen["store"])

    def fail() -> None:
        raise StoreError("no space")

    with pytest.raises(StoreError, match="no space"):
        forget(store, [ID], build=fail)
    assert len(store.list("tombstones/")) == 1
    assert refs.removals(store) == {}
    ends_well(case, quick / "store", chosen)


def test_a_run_at_work_is_waited_for(case: Case, quick: Path) -> None:
    chosen = case.copy(quick / "store")
    store = open_folder(chosen["store"])
    with acquire(store, "other"), pytest.raises(LeaseLost):
        forget(store, [ID], build=None)
    assert store.list("tombstones/") == []


def test_every_document_can_be_forgotten(quick: Path) -> None:
    rows = documents(5, words=60)
    root = quick / "store"
    chosen = settings(root, write_corpus(quick / "corpus.jsonl", rows))
    build(chosen)
    forget_here(str(root), chosen, *rows)
    assert verify(StoreReader(root)).ok
    with indexmill.open(root) as empty:
        assert (empty.version, empty.manifest.corpus.documents) == (2, 0)
        for method in empty.methods:
            assert empty.retrieve("Who built the bridge of Vell?", method=method) == []
    for name in rows:
        assert places_of(root, name) == {}
    with pytest.raises(SnapshotNotFound):
        indexmill.open(root, version=1)
    configuration = Configuration.model_validate(settings(root, write_corpus(quick / "more.jsonl", documents(7))))
    from tasks.core.report import Silent

    more = run_build(configuration, InlineExecutor(), Build.run, progress=Silent())
    assert (more.documents, more.forgotten) == (2, 5)


@pytest.mark.slow
def test_unpublished_parts_that_cannot_hold_it_are_not_made_again(quick: Path, forks: Forks) -> None:
    rows = documents(30, words=110)
    root = quick / "store"
    first = settings(root, write_corpus(quick / "first.jsonl", {name: rows[name] for name in list(rows)[:4]}))
    build(first)
    chosen = settings(root, write_corpus(quick / "corpus.jsonl", rows))
    whole = forks.build({**chosen, "store": str(quick / "whole")})
    assert whole.outcome is not None
    assert forks.build(chosen, len(whole.crossed) * 3 // 4).code == -signal.SIGKILL
    unpublished = len(complete_parts(root))
    forget_here(str(root), first, "doc-0002")
    left = complete_parts(root)
    assert 10 < len(left) < unpublished
    made = build(chosen)
    assert (made.documents, made.forgotten) == (29, 1)
    assert made.parts_made < whole.outcome.parts_made * 0.6
    assert made.vectors_made < whole.outcome.vectors_made / 2
    assert places_of(root, "doc-0002") == {}


@pytest.mark.slow
def test_a_forgetting_equals_a_store_that_never_saw_the_document(quick: Path) -> None:
    rows = documents(12, words=110)
    chosen = settings(quick / "store", write_corpus(quick / "corpus.jsonl", rows))
    build(chosen)
    forget_here(chosen["store"], chosen, "doc-0003", "doc-0007")
    others = {name: row for name, row in rows.items() if name not in ("doc-0003", "doc-0007")}
    fresh = build(settings(quick / "fresh", write_corpus(quick / "others.jsonl", others)))
    assert refs.history(open_folder(quick / "store"))[-1].manifest == fresh.manifest
    assert answers(quick / "store", 2) == [
        [{**hit, "version": 2} for hit in hits] for hits in answers(quick / "fresh", 1)
    ]


# The command


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    def build_here(configuration: Configuration, *, dask: str | None = None, **options: Any) -> object:
        return run_build(configuration, InlineExecutor(), Build.run, **options)

    monkeypatch.setattr("flows.local.build_under_prefect", build_here)


@pytest.mark.slow
def test_the_command_rehearses_and_forgets(
    case: Case, quick: Path, inline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    root = quick / "store"
    chosen = case.copy(root)
    store = open_folder(root)
    for number, version in enumerate((1, 3), 1):
        manifest = refs.read(store, version).manifest
        record = {"number": number, "version": version, "manifest": manifest, "path": f"/mnt/copy-{version}"}
        store.create(f"exports/{number:020d}.json", json.dumps(record).encode())
    configuration = str(write_settings(quick / "i.yaml", chosen))
    before = everything(root)
    assert main(["forget", ID, "nobody", "-c", configuration, "--dry-run", "--json"]) == 0
    rehearsed = json.loads(capsys.readouterr().out)
    assert everything(root) == before
    assert main(["forget", ID, "nobody", "-c", configuration, "--json", "--allow-shrink", "--yes"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert rehearsed["dry_run"] is rehearsed["build_needed"] is True
    assert done["done"] is True
    for told in (rehearsed, done):
        assert told["documents"] == [ID, "nobody"]
        assert told["unknown"] == ["nobody"]
        assert told["versions"] == [2, 3]
        assert told["aliases"] == {"prod": [2, 4]}
        assert told["exports"] == [{"version": 3, "path": "/mnt/copy-3"}]
        assert told["blobs"] > 30
    assert rehearsed["receipts"] == done["receipts"]  # the version that is made anew is version 1 again
    # The build that came in between refused the broken line again.
    assert rehearsed["quarantine_rows"] <= done["quarantine_rows"]
    assert places_of(root) == {}
    assert main(["forget", ID, "--store", str(root), "--yes"]) == 0
    out = capsys.readouterr().out
    assert "versions withdrawn: none" in out
    assert "out of reach: version 3, exported to /mnt/copy-3" in out
    assert "a final search of the store found no trace of them" in out


def test_the_command_lets_an_id_in_again(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = quick / "store"
    store = init_folder(root)
    tombstones.put(store, ["docs/a.md", "b"], run_id="run", created="2026-01-31T02:00:00Z")
    assert main(["forget", "--lift", "c", "--store", str(root)]) == 2
    assert "c: not forgotten in" in capsys.readouterr().err
    assert main(["forget", "--lift", "docs/a.md", "--store", str(root), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("docs/a.md: later builds would include a document with this id again")
    assert "docs/a.md" in tombstones.forgotten(store)
    assert main(["forget", "--lift", "docs/a.md", "c", "--store", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dry_run": False, "lifted": ["docs/a.md"], "unknown": ["c"]}
    forgotten = tombstones.forgotten(store)
    assert ("docs/a.md" in forgotten, "b" in forgotten) == (False, True)
    (name,) = store.list("forgotten/")
    assert LiftRecord.from_bytes(store.get(name), name).lifted == (tombstones.document_digest("docs/a.md"),)


@pytest.mark.slow
def test_a_new_file_at_the_path_of_a_forgotten_one_is_let_in_once_it_is_lifted(quick: Path) -> None:
    root, folder = quick / "store", quick / "docs"
    folder.mkdir()
    for name, (_, words) in documents(4, words=60).items():
        (folder / f"{name.replace('/', '-')}.md").write_text(words, encoding="utf-8")
    (folder / "a.md").write_text("Lady Zanzaqua painted the old bridge.", encoding="utf-8")
    chosen = settings(root, folder)
    build(chosen)
    store = open_folder(root)
    forget(store, ["a.md"], build=lambda: build(chosen))
    (folder / "a.md").write_text("A new page about the mill.", encoding="utf-8")
    assert build(chosen).forgotten == 1
    assert lift(store, ["a.md"]) == ("a.md",)
    assert (build(chosen).published, build(chosen).published) == (True, False)
    with indexmill.open(root) as snapshot:
        assert "a.md" in snapshot.table("documents").column("document_id").to_pylist()


@pytest.mark.slow
def test_the_command_asks_before_it_touches_anything(
    case: Case, quick: Path, inline: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = quick / "store"
    configuration = str(write_settings(quick / "i.yaml", case.copy(root)))
    before = everything(root)

    def asked(answer: str, *ids: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code = main(["forget", *ids, "-c", configuration, "--allow-shrink"])
        return code, capsys.readouterr().err

    for answer, code, told in (("n\n", 1, "nothing was done"), ("\n", 1, "nothing was done"), ("", 2, "--yes")):
        found, err = asked(answer, ID)
        assert (found, told in err) == (code, True), err
        assert "versions to withdraw: 2, 3" in err
        assert "alias prod: from version 2 to 4" in err
        assert f"{ID}: found; later builds exclude it" in err
        assert "Forget this document for good?" in err
    found, err = asked("n\n", "1")
    assert "1 is treated as a document id, not as version 1" in err
    assert "1: found nowhere" in err
    assert everything(root) == before
    found, err = asked("y\n", ID)
    assert found == 0, err
    assert places_of(root) == {}


@pytest.mark.slow
def test_the_command_says_what_is_missing(
    case: Case, quick: Path, inline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = case.copy(quick / "store")
    assert main(["forget", ID, "--store", chosen["store"], "--yes"]) == 2
    assert "no corpus is configured" in capsys.readouterr().err
    configuration = str(write_settings(quick / "i.yaml", chosen))
    assert main(["forget", ID, "-c", configuration, "--no-build", "--yes"]) == 2
    assert "--no-build is given" in capsys.readouterr().err
    assert main(["forget", ID, "--store", str(quick / "none")]) == 2
    assert main(["forget", "\udcff", "--store", chosen["store"]]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    with pytest.raises(IndexmillError):
        open_folder(quick / "none")
