"""The command `gc` on real stores: readers, refreshes, and death at its boundaries."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

import indexmill
from flows.candidates import publish_candidate
from flows.rollback import roll_back
from indexmill.command import main
from indexmill.errors import SnapshotNotFound, VersionWithdrawn
from indexmill.store.manifest import Removal
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import faults, gc, refs, runs
from storage.clock import timestamp
from storage.folder import open_folder
from storage.gc import DAY
from storage.lease import acquire
from storage.processes import Process
from storage.readings import ReadingRecord
from tasks.stages.ingest import source_files
from tests.corpora import Documents, documents, write_corpus
from tests.deep import share
from tests.flows.children import Forks, build, settings
from tests.flows.forgetting import collect, end_state, state_of
from tests.flows.readers import QUESTIONS, Answers, answers, complete_parts
from tests.storage.quick import quick_folder


def refreshed(root: Path, rows: Documents, number: int) -> None:
    """Publish a version in which one document is another, or edited."""
    names = sorted(rows)
    rows[names[number % len(names)]] = (f"Night {number}", f"In night {number} Fenna Rook visited Port Lassen.")
    build(settings(root, write_corpus(root.parent / "corpus.jsonl", rows)))


def held(snapshot: indexmill.Snapshot) -> Answers:
    return [
        [hit.to_dict() for hit in hits]
        for method in snapshot.methods
        for hits in snapshot.retrieve_batch(QUESTIONS, method=method, k=3)
    ]


def readers_stay(quick: Path, refreshes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last store would know the file, if that has become old enough by then.
    monkeypatch.setattr(source_files, "_SETTLED", math.inf)
    root, rows = quick / "store", documents(6, words=60)
    build(settings(root, write_corpus(quick / "corpus.jsonl", rows)))
    with indexmill.open(root) as warm, indexmill.open(root) as cold:
        before = held(warm)
        for number in range(refreshes):
            refreshed(root, rows, number)
            assert held(warm) == before
        collect(str(root), 1, 0.0, time.time() + DAY)
        assert held(warm) == before
        assert refs.removals(open_folder(root)).keys() == set(range(1, refreshes + 1))
        with pytest.raises(SnapshotNotFound, match="version 1 was removed by gc"):
            held(cold)
    assert verify(StoreReader(root)).ok
    fresh = build(settings(quick / "fresh", quick / "corpus.jsonl"))
    assert refs.newest(open_folder(root)).manifest == fresh.manifest  # type: ignore[union-attr]
    assert complete_parts(quick / "fresh").keys() <= complete_parts(root).keys()
    expected = {digest for digest, _ in gc.blobs_of(open_folder(quick / "fresh"))}
    # Records of runs are kept for 90 days, and name the tables of what became of files.
    records = [ReadingRecord.model_validate_json(path.read_bytes()) for path in root.glob("runs/*/reading.json")]
    tables = {digest for record in records for digest in record.files}
    assert expected <= (kept := {digest for digest, _ in gc.blobs_of(open_folder(root))}) <= expected | tables
    assert len(kept - expected) <= refreshes
    collect(str(root), 1, 0.0, time.time() + 100 * DAY)
    assert {digest for digest, _ in gc.blobs_of(open_folder(root))} == expected


@pytest.mark.slow
def test_a_reader_keeps_its_answers_over_refreshes_and_a_collection(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers_stay(quick, 4, monkeypatch)


@pytest.mark.slow
def test_a_reader_keeps_its_answers_over_fifty_refreshes_and_a_collection(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers_stay(quick, 50, monkeypatch)


@pytest.mark.slow
def test_a_collection_makes_no_later_build_do_more(quick: Path) -> None:
    root, rows = quick / "store", documents(8, words=110)
    build(settings(root, write_corpus(quick / "corpus.jsonl", rows)))
    refreshed(root, rows, 1)
    shutil.copytree(root, quick / "twin")
    collect(str(root), 1, 0.0, time.time() + DAY)
    assert sum(one.stat().st_size for one in root.rglob("*") if one.is_file()) < sum(
        one.stat().st_size for one in (quick / "twin").rglob("*") if one.is_file()
    )
    rows["doc-0001"] = ("Another night", "On another night Goran Stave left the bridge of Quillon.")
    corpus = write_corpus(quick / "next.jsonl", rows)
    one, other = build(settings(root, corpus)), build(settings(quick / "twin", corpus))
    assert (one.manifest, one.parts_made, one.vectors_made) == (other.manifest, other.parts_made, other.vectors_made)


def killed(boundaries: int | None) -> None:
    with quick_folder() as folder, Forks() as forks:
        root, rows = folder / "store", documents(6, words=60)
        for number in range(3):
            refreshed(root, rows, number)
        forks.build(settings(root, write_corpus(folder / "killed.jsonl", documents(5, seed=3))), 120)
        now = time.time() + 2 * DAY
        done = folder / "done"
        shutil.copytree(root, done)
        whole = forks.call("tests.flows.forgetting:collect", str(done), 1, DAY, now)
        assert (whole.code, whole.message) == (0, "")
        expected, newest = end_state(done), answers(done)
        total = len(whole.crossed)
        at_every = range(1, total + 1)
        for at in share(at_every, 3) if boundaries is None else at_every[:: total // boundaries]:
            copy = folder / str(at)
            shutil.copytree(root, copy)
            ended = forks.call("tests.flows.forgetting:collect", str(copy), 1, DAY, now, at=at)
            assert ended.code == -signal.SIGKILL
            assert state_of(copy) == []
            assert answers(copy) == newest
            complete_parts(copy)  # no receipt promises what is not there
            collect(str(copy), 1, DAY, now)
            assert end_state(copy) == expected
            shutil.rmtree(copy)


@pytest.mark.slow
def test_a_collection_killed_at_a_boundary_is_finished_by_the_next() -> None:
    killed(6)


@pytest.mark.slow
def test_a_collection_killed_at_every_boundary() -> None:
    killed(None)


@pytest.mark.slow
def test_the_command_tells_withdrawn_versions_from_kept_ones(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, rows = quick / "store", documents(6, words=60)
    for number in range(3):
        refreshed(root, rows, number)
    withdrawn = Removal(version=1, reason="forgotten", run_id="forgets", created="2026-01-01T00:00:00Z")
    refs.remove(open_folder(root), withdrawn)
    assert main(["gc", "--store", str(root), "--keep-last", "1", "--dry-run"]) == 0
    assert "versions: 1 (2) would be removed, 1 (3) kept, 1 (1) withdrawn by forget\n" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_says_what_it_would_remove_and_then_does(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, rows = quick / "store", documents(6, words=60)
    for number in range(3):
        refreshed(root, rows, number)
    store = open_folder(root)
    options = ["gc", "--store", str(root), "--keep-last", "1", "--grace", "0s", "--now"]
    before = {str(path): path.stat().st_mtime for path in root.rglob("*")}
    assert main([*options, "--dry-run", "--json"]) == 0
    rehearsed = json.loads(capsys.readouterr().out)
    assert {str(path): path.stat().st_mtime for path in root.rglob("*")} == before
    assert main([*options, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {**rehearsed, "dry_run": False}
    assert (done["versions_removed"], done["versions_kept"]) == ([1, 2], [3])
    assert done["blobs_removed"] > 10
    assert done["bytes_kept"] == sum(blob.bytes for _, blob in gc.blobs_of(store))
    last = runs.list_runs(store)[-1]
    assert last.start.command == "gc"
    assert last.end is not None
    assert last.end.report["gc"]["blobs_removed"] == done["blobs_removed"]  # type: ignore[index,call-overload]
    assert main(options) == 0
    out = capsys.readouterr().out
    assert "versions: none removed, 1 (3) kept\n" in out
    assert "blobs: 0 removed" in out
    assert main(["snapshots", "--store", str(root)]) == 0
    assert capsys.readouterr().out.count("(removed by gc)") == 2
    assert main(["show", "2", "--store", str(root)]) == 2
    assert "version 2 was removed by gc" in capsys.readouterr().err
    assert main(["gc", "--keep-within", "soon", "--store", str(root)]) == 2
    assert "'soon' is not a duration" in capsys.readouterr().err


def test_the_command_sets_aside_and_removes_an_hour_later(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, rows = quick / "store", documents(6, words=60)
    for number in range(3):
        refreshed(root, rows, number)
    options = ["gc", "--store", str(root), "--keep-last", "1", "--grace", "0s"]
    assert main([*options, "--dry-run", "--json"]) == 0
    rehearsed = json.loads(capsys.readouterr().out)
    assert rehearsed["blobs_set_aside"] > 10
    assert (rehearsed["blobs_removed"], rehearsed["blobs_waiting"]) == (0, 0)
    bytes_before = sum(blob.bytes for _, blob in gc.blobs_of(open_folder(root)))
    assert main(options) == 0
    out = capsys.readouterr().out
    assert f"blobs: 0 removed, {rehearsed['blobs_set_aside']} set aside, {rehearsed['blobs_kept']} kept\n" in out
    assert "files set aside are removed by a gc at least an hour later, or by `indexmill gc --now`" in out
    assert sum(blob.bytes for _, blob in gc.blobs_of(open_folder(root))) == bytes_before
    assert main([*options, "--dry-run"]) == 0
    waiting = f"blobs: 0 would be removed, {rehearsed['blobs_set_aside']} set aside before, "
    assert waiting in capsys.readouterr().out
    (record,) = (root / "aside").iterdir()
    an_hour_ago = timestamp(time.time() - 3601)
    record.chmod(0o644)
    record.write_text(re.sub(r'"since":"[^"]+"', f'"since":"{an_hour_ago}"', record.read_text()))
    for path in (root / "blobs").rglob("*"):
        os.utime(path, (0, 0))
    for name in (root / "work").rglob("*"):
        os.utime(name, (0, 0))
    for name in (root / "refs/removed").iterdir():
        name.chmod(0o644)
        name.write_text(re.sub(r'"created":"[^"]+"', f'"created":"{an_hour_ago}"', name.read_text()))
    assert main([*options, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"blobs: {rehearsed['blobs_set_aside']} would be removed, {rehearsed['blobs_kept']} kept\n" in out
    assert f"what would be removed was set aside at {an_hour_ago}\n" in out
    assert main([*options, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["blobs_removed"], done["removed_were_set_aside"]) == (rehearsed["blobs_set_aside"], [an_hour_ago])
    assert list((root / "aside").iterdir()) == list((root / "removing").iterdir()) == []
    assert verify(StoreReader(root)).ok


def test_all_at_once_is_refused_where_a_lost_run_may_still_write(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, rows = quick / "store", documents(6, words=60)
    for number in range(2):
        refreshed(root, rows, number)
    elsewhere = Process(host="elsewhere", space="b", pid=7, started="7")
    acquire(open_folder(root), "lost", clock=lambda: time.time() - 300, process=elsewhere)
    options = ["gc", "--store", str(root), "--keep-last", "1", "--grace", "0s"]
    assert main([*options, "--now"]) == 5
    assert "run lost never released its lease" in capsys.readouterr().err
    assert refs.removals(open_folder(root)) == {}
    assert main(options) == 0


@pytest.mark.slow
def test_a_build_goes_on_after_a_version_that_was_withdrawn(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers, `status` and a rollback have the one before, and a build takes the next number."""
    root, rows = quick / "store", documents(6, words=60)
    for number in range(3):
        refreshed(root, rows, number)
    store = open_folder(root)
    refs.remove(store, Removal(version=3, reason="incomplete", run_id="asleep", created="2026-01-01T00:00:00Z"))
    with indexmill.open(root) as snapshot:
        assert snapshot.version == 2
    assert main(["status", "--store", str(root), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["version"]["version"] == 2
    assert any("version 3 was withdrawn at" in problem for problem in status["problems"])
    assert main(["snapshots", "--store", str(root)]) == 0
    assert "(withdrawn: was incomplete)" in capsys.readouterr().out
    again = build(settings(root, quick / "corpus.jsonl"))
    assert (again.published, again.version) == (True, 4)
    assert again.manifest == refs.read(store, 3).manifest
    refs.remove(store, Removal(version=4, reason="incomplete", run_id="asleep", created="2026-01-01T00:00:00Z"))
    back = roll_back(store, 2)
    assert (back.published, back.version) == (False, 2)
    assert main(["gc", "--store", str(root), "--keep-last", "1", "--dry-run"]) == 0
    assert "2 (3, 4) withdrawn because they were incomplete\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_was_asleep_as_it_published_says_that_its_version_is_withdrawn(quick: Path) -> None:
    """Between its last look at the lease and its ref, others remove the version that it goes back to."""
    root, rows = quick / "store", documents(6, words=60)
    for number in range(2):
        refreshed(root, rows, number)

    def collected(name: str) -> None:
        if name.startswith("create refs/main/"):
            faults.install(None)
            policy = gc.Policy(last=1, grace=0.0)
            for days in (1, 2):
                later = time.time() + days * DAY
                with acquire(store, f"gc-{days}", clock=lambda later=later: later) as lease:
                    gc.collect(store, lease, gc.survey(store, policy, clock=lease.clock), policy, clock=lease.clock)

    store = open_folder(root)
    faults.install(collected)
    with pytest.raises(VersionWithdrawn, match=r"version 3 of .* was published, and withdrawn again") as raised:
        roll_back(open_folder(root), 1)
    assert raised.value.exit_code == 5
    last = [run for run in runs.list_runs(open_folder(root)) if run.start.command == "rollback"][-1]
    assert (last.state, last.exit_code) == ("superseded", 5)
    assert "withdrawn again" in (last.end.error or "")  # type: ignore[union-attr]
    with indexmill.open(root) as snapshot:
        assert snapshot.version == 2


def test_a_candidate_is_published_after_a_version_that_was_withdrawn(quick: Path) -> None:
    root, rows = quick / "store", documents(6, words=60)
    for number in range(2):
        refreshed(root, rows, number)
    store = open_folder(root)
    manifest = refs.read(store, 1).manifest
    runs.start(store, "refused", "build", parent=2)
    end = {
        "run_id": "refused",
        "state": "refused",
        "exit_code": 3,
        "ended": timestamp(time.time()),
        "manifest": manifest,
    }
    runs.end(store, runs.RunEnd.model_validate(end))
    refs.commit(store, manifest, 2, 1000, "asleep", timestamp(time.time()), {}, "")
    refs.remove(store, Removal(version=3, reason="incomplete", run_id="asleep", created="2026-01-01T00:00:00Z"))
    for published in (True, False):
        made = publish_candidate(store, "refused")
        assert (made.published, made.version, made.manifest) == (published, 4, manifest)
