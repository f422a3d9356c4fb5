"""The pipeline's commands: what they print, how they end, and what they leave behind."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flows.interrupt import STOPPING
from indexmill.store.layout import STORE_FILE, blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from indexmill.text.durations import duration
from schemas.config import Configuration, load_configuration
from storage import runs
from storage.folder import init_folder, open_folder
from storage.lease import acquire, holding
from tests.corpora import documents, write_corpus
from tests.flows.built import Built
from tests.flows.children import build, settings
from tests.flows.commands import Command, Run, command, write_settings
from tests.paths import ROOT
from tests.storage.quick import quick_folder

FIELDS = {
    "published",
    "version",
    "manifest",
    "documents",
    "passages",
    "parts_made",
    "parts_reused",
    "vectors_made",
    "vectors_reused",
    "llm_calls",
    "llm_tokens",
    "quarantined",
    "seconds",
}
"""What scripts rely on in `build --json`."""


@pytest.fixture
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a server nor a worker may be started."""

    def fail(*arguments: object) -> None:
        pytest.fail("the build started a server or workers")

    monkeypatch.setattr("flows.local.private_prefect", fail)
    monkeypatch.setattr("flows.cluster.private_cluster", fail)


@pytest.fixture
def store(built: Built, tmp_path: Path) -> Path:
    """A copy of the built store, to be damaged at will."""
    return Path(shutil.copytree(built.store, tmp_path / "store"))


# The real command


def test_build_prints_one_json_object_with_the_fields_scripts_rely_on(built: Built) -> None:
    assert built.code == 0, built.err
    assert built.out.count("\n") == 1
    told = json.loads(built.out)
    assert told.keys() >= FIELDS
    assert (told["published"], told["version"], told["documents"], told["quarantined"]) == (True, 1, 24, 2)
    assert (told["parts_reused"], told["vectors_reused"], told["llm_calls"], told["llm_tokens"]) == (0, 0, 0, 0)
    assert told["passages"] >= 24
    assert told["vectors_made"] > told["passages"]
    assert told["seconds"] > 0
    assert told["manifest"] == StoreReader(built.store).newest().manifest


def test_build_tells_its_progress_in_plain_lines_on_standard_error(built: Built) -> None:
    first, *lines = built.err.splitlines()
    assert first == f"indexmill build: store {built.store}, corpus {built.corpus}"
    finished, going_on = r"\w+: \d+ made, \d+ reused in [\w. ]+ s", r"\w+: \d+ of \d+.*"
    assert all(re.fullmatch(f"{finished}|{going_on}", line) for line in lines), lines
    assert {"ingest", "split", "recognise", "embed", "resolve", "bm25", "mention_links", "check"} <= {
        line.partition(":")[0] for line in lines
    }


def test_build_leaves_no_process_and_no_file_but_the_store(built: Built) -> None:
    assert built.left_behind == ()
    assert built.files == ()
    assert sorted(path.name for path in built.folder.iterdir()) == sorted(
        ["corpus.jsonl", "cwd", "home", "indexmill.yaml", "lock", "record.json", "store", "tmp"]
    )
    assert list((built.store / "tmp").iterdir()) == []


def test_the_command_makes_the_bytes_of_an_inline_build(built: Built, tmp_path: Path) -> None:
    lines = built.corpus.read_bytes().splitlines(keepends=True)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_bytes(b"".join(lines[::-1]))
    assert build(settings(tmp_path / "inline", shuffled)).manifest == json.loads(built.out)["manifest"]


@pytest.mark.slow
def test_the_real_command_finds_nothing_to_do(built: Built, store: Path, tmp_path: Path) -> None:
    configuration = write_settings(tmp_path / "i.yaml", settings(store, built.corpus, run={"workers": 1}))
    for _ in range(2):
        with command(tmp_path, "build", "-c", configuration, "--json") as again:
            assert again.wait() == 0
        assert again.json() | {"published": False, "version": 1, "parts_made": 0, "vectors_made": 0} == again.json()
        assert again.left_behind() == {}


def interrupted(
    built: Built, folder: Path, stop: Callable[[Command], None], environment: Mapping[str, str] | None = None
) -> Command:
    """A build that `stop` ends, held against what every interrupted build promises, and finished by another."""
    root = folder / "store"
    configuration = write_settings(folder / "i.yaml", settings(root, built.corpus, run={"workers": 1}))
    with command(folder, "build", "-c", configuration, "--json", environment=environment) as stopped:
        stop(stopped)
        assert stopped.wait(60) == 130, stopped.err
        assert stopped.left_behind() == {}
    assert stopped.out == ""
    assert stopped.lines[-1] == "interrupted\n"
    assert "Traceback" not in stopped.err
    assert [*stopped.home.rglob("*"), *stopped.temporary.rglob("*"), *stopped.current.rglob("*")] == []
    opened = open_folder(root)
    (ended,) = runs.list_runs(opened)
    assert (ended.state, ended.exit_code, ended.version) == ("interrupted", 130, None)
    assert ended.end is not None
    named = "Ctrl-C" if "Ctrl-C again" in stopped.err else "SIGTERM"
    assert ended.end.error == f"interrupted by {named}: finished parts are kept, the next run continues"
    again = {"Ctrl-C": "Ctrl-C again", "SIGTERM": "a second signal"}[named]
    assert f"interrupted: {STOPPING}; {again} ends it at once\n" in stopped.lines
    lease = holding(opened)
    assert lease is not None
    assert lease.released
    assert StoreReader(root).versions() == []
    finished = build(settings(root, built.corpus))
    assert finished.manifest == json.loads(built.out)["manifest"]
    assert ended.end is not None
    # A worker may have finished the part it was at.
    assert finished.parts_reused >= sum(stage["parts_made"] for stage in _stages(ended.end.report))
    return stopped


def _stages(report: dict[str, Any]) -> list[dict[str, int]]:
    return list(report["stages"].values())


@pytest.mark.end_to_end
def test_sigterm_ends_a_build_as_failed_and_gives_the_lease_back(built: Built, tmp_path: Path) -> None:
    def stop(running: Command) -> None:
        running.wait_for("ingest:")
        running.signal(signal.SIGTERM)

    interrupted(built, tmp_path, stop)


@pytest.mark.slow
def test_ctrl_c_reaches_every_process_and_ends_the_build_alone(built: Built, tmp_path: Path) -> None:
    def stop(running: Command) -> None:
        running.wait_for("split:")
        running.signal(signal.SIGINT, everywhere=True)

    interrupted(built, tmp_path, stop)


@pytest.mark.slow
def test_sigterm_while_the_workers_start_ends_the_build_at_once(built: Built, tmp_path: Path) -> None:
    def stop(running: Command) -> None:
        while not running.workers():
            assert running.running
        running.signal(signal.SIGTERM)

    interrupted(built, tmp_path, stop)


@pytest.mark.slow
def test_sigterm_while_the_scheduler_starts_is_told_in_one_line(built: Built, tmp_path: Path) -> None:
    signalling = tmp_path / "signalling.py"
    signalling.write_text(
        """
import os, signal, sys


def dask_setup(scheduler):
    sys.indexmill_held = scheduler  # it is there until the process ends
    os.kill(os.getpid(), signal.SIGTERM)
""",
        encoding="utf-8",
    )
    preload = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": json.dumps([str(signalling)])}
    interrupted(built, tmp_path, lambda running: running.wait_for("interrupted:"), preload)


@pytest.mark.slow
def test_modules_in_the_current_folder_are_not_taken_for_our_own(
    built: Built, prefect_environment: dict[str, str], tmp_path: Path
) -> None:
    for name in ("tasks", "flows", "storage"):
        folder = tmp_path / "cwd" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemError('of another project')\n", encoding="utf-8")
    chosen = settings(tmp_path / "store", built.corpus, run={"workers": 1})
    argv = ["build", "-c", write_settings(tmp_path / "i.yaml", chosen), "--json"]
    with command(tmp_path, *argv, environment=prefect_environment) as run:
        assert run.wait() == 0, run.err
    assert run.json()["manifest"] == json.loads(built.out)["manifest"]


# Exit codes


def test_nothing_to_do_is_exit_code_0_however_often(run: Run, inline: None, built: Built, store: Path) -> None:
    configuration = write_settings(store.parent / "i.yaml", settings(store, built.corpus))
    for _ in range(2):
        told = run.json("build", "-c", configuration)
        assert (told["published"], told["version"], told["parts_made"], told["vectors_made"]) == (False, 1, 0, 0)
        assert told["parts_reused"] == json.loads(built.out)["parts_made"]
    assert run("build", "-c", configuration) == 0
    assert run.out.startswith("nothing to do: version 1 is up to date\n")
    assert "2 rows were refused: see `indexmill quarantine`" in run.out
    assert StoreReader(store).versions() == [1]
    assert [one["state"] for one in run.json("runs", "--store", store)["runs"]] == ["published", *["unchanged"] * 3]


def test_a_change_is_published_as_the_next_version(run: Run, inline: None, built: Built, store: Path) -> None:
    corpus = store.parent / "corpus.jsonl"
    corpus.write_bytes(b"".join(built.corpus.read_bytes().splitlines(keepends=True)[:20]))
    configuration = write_settings(store.parent / "i.yaml", settings(store, built.corpus))
    assert run("build", "-c", configuration, "--corpus", corpus, "--note", "smaller") == 0
    assert run.out.startswith("published version 2: 20 documents, ")
    assert run.json("snapshots", "--store", store)["snapshots"][0]["note"] == "smaller"


CORPUS = ("--corpus", "corpus.jsonl")


@pytest.mark.parametrize(
    ("argv", "written", "code", "message"),
    [
        (["--store", "new"], {}, 2, "no corpus: give --corpus"),
        (["--store", "new", "--corpus", "missing.jsonl"], {}, 2, "missing.jsonl"),
        (["--store", "corpus.jsonl/store", *CORPUS], {}, 2, "cannot be written"),
        (["--store", "corpus.jsonl", *CORPUS], {}, 2, "is a file; a store is a folder"),
        (["--store", "photos", *CORPUS], {"photos/cat.jpg": ""}, 2, "cat.jpg"),
        (["--store", "newer", *CORPUS], {f"newer/{STORE_FILE}": '{"format_version":99}'}, 2, "store of format 99"),
        (["--store", "damaged", *CORPUS], {f"damaged/{STORE_FILE}": '{"format_'}, 1, "is damaged"),
        (["--config", "i.yaml", *CORPUS], {"i.yaml": "embed: {model: no-such-model}"}, 2, "no-such-model"),
        (["--config", "i.yaml", *CORPUS], {"i.yaml": "recognise: {recogniser: xx_no_such}"}, 2, "xx_no_such"),
        (["--config", "missing.yaml", *CORPUS], {}, 2, "no such configuration file"),
        (["--config", "i.yaml", *CORPUS], {"i.yaml": "embed: {modell: hash}"}, 2, "embed.modell"),
        (["--config", "i.yaml", *CORPUS], {"i.yaml": "split: {tokens: 1}"}, 2, "split.tokens"),
        (["--config", "i.yaml", *CORPUS], {"i.yaml": "embed: {"}, 2, "cannot be read"),
    ],
)
def test_what_cannot_be_built_is_refused_at_once(
    run: Run, nothing_started: None, argv: list[str], written: dict[str, str], code: int, message: str
) -> None:
    write_corpus(Path("corpus.jsonl"), documents(2))
    for name, text in written.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    assert run("build", *argv, "--json") == code
    assert message in run.err
    begins, error, _ = run.err.rpartition("error: ")
    assert re.fullmatch(r"(indexmill build: store .*\n)?", begins)  # not where the configuration cannot be read
    assert error
    assert "Traceback" not in run.err
    assert run.out == ""


def test_a_second_writer_is_told_who_is_at_work(
    run: Run, nothing_started: None, built: Built, store: Path, tmp_path: Path
) -> None:
    with acquire(init_folder(store), "the-first"):
        assert run("build", "--store", store, "--corpus", built.corpus) == 5
        assert "run the-first (process" in run.err
        assert run("query", "Esme Quill", "--store", store) == 0


def test_strict_refuses_a_corpus_with_a_refused_row(run: Run, inline: None, built: Built, tmp_path: Path) -> None:
    configuration = write_settings(tmp_path / "i.yaml", settings(tmp_path / "strict", built.corpus))
    assert run("build", "-c", configuration, "--strict") == 2
    assert "2 rows were refused (1 no-text, 1 not-json) and --strict is on" in run.err
    assert run.json("quarantine", "-c", configuration)["quarantined"] == 2
    assert run.json("snapshots", "-c", configuration)["snapshots"] == []
    assert run.json("runs", "-c", configuration)["runs"][0]["exit_code"] == 2


def test_a_corpus_without_a_document_is_refused(run: Run, inline: None, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    configuration = write_settings(tmp_path / "i.yaml", settings(tmp_path / "new", tmp_path / "empty.jsonl"))
    assert run("build", "-c", configuration) == 2
    assert "no document that can be indexed" in run.err


AS_NOBODY = """
import os, sys
import flows.command.build, flows.local, flows.plan, indexmill.command
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
sys.exit(indexmill.command.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_store_without_permission_is_refused(built: Built) -> None:
    with quick_folder() as folder:
        folder.chmod(0o755)
        closed = folder / "closed"
        closed.mkdir(mode=0o555)
        corpus = Path(shutil.copy(built.corpus, folder))
        argv = ["build", "--store", str(closed / "store"), "--corpus", str(corpus)]
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, *argv], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert f"{closed / 'store'} cannot be written: Permission denied" in done.stderr
        assert list(closed.iterdir()) == []


# The other commands


def test_runs_lists_every_run_and_shows_one(run: Run, built: Built) -> None:
    (listed,) = run.json("runs", "--store", built.store)["runs"]
    assert (listed["state"], listed["exit_code"], listed["version"], listed["quarantined"]) == ("published", 0, 1, 2)
    shown = run.json("runs", listed["run"], "--store", built.store)
    told = json.loads(built.out)
    assert (listed["command"], listed["seconds"]) == ("build", pytest.approx(told["seconds"], abs=3.0))
    assert (shown, shown["run"]) == (listed, told["run"])
    assert sum(stage["parts_made"] for stage in shown["stages"].values()) == told["parts_made"]
    assert sum(stage.get("vectors_made", 0) for stage in shown["stages"].values()) == told["vectors_made"]
    assert run("runs", "--store", built.store) == 0
    header, line = run.out.splitlines()
    assert re.split("  +", header) == ["run", "started (UTC)", "command", "state", "version", "duration", "refused"]
    assert re.split("  +", line) == [
        *(told["run"], listed["started"][:19].replace("T", " "), "build", "published", "1"),
        *(duration(listed["seconds"]), "2"),
    ]
    assert run("runs", told["run"], "--store", built.store) == 0
    assert "state: published" in run.out
    assert re.search(r"^embed +\d+ +0 ", run.out, re.MULTILINE)
    assert run("runs", "never", "--store", built.store) == 2
    assert "has no run never" in run.err


def test_quarantine_shows_file_line_and_reason(run: Run, built: Built) -> None:
    shown = run.json("quarantine", "--store", built.store)
    assert (shown["run"], shown["quarantined"]) == (json.loads(built.out)["run"], 2)
    assert [(row["line"], row["reason"], row["document_id"]) for row in shown["rows"]] == [
        (25, "not-json", None),
        (26, "no-text", "empty"),
    ]
    assert run("quarantine", "--store", built.store, "--run", shown["run"]) == 0
    _, first, second = run.out.splitlines()
    assert re.match(r"\S*corpus\.jsonl +25 .*not-json", first)
    assert re.match(r"\S*corpus\.jsonl +26 +empty +no-text", second)
    assert run("quarantine", "--store", built.store, "--run", "never") == 2


def test_coverage_shows_what_became_of_each_file(run: Run, built: Built) -> None:
    shown = run.json("coverage", "--store", built.store)
    assert (shown["run"], shown["files"], shown["unchanged"]) == (json.loads(built.out)["run"], {"partly": 1}, 0)
    assert shown["formats"]["json-lines"]["documents"] == 24
    (row,) = run.json("coverage", "--store", built.store, "--outcome", "partly")["files"]
    assert (row["documents"], row["rejected"], row["text_words"], row["left_out"]) == (24, 2, None, {})
    assert run("coverage", "--store", built.store, row["name"]) == 0
    assert re.search(r"partly \(no-text\)|partly \(not-json\)", run.out)
    assert "rejected line 26: no-text" in run.out
    assert run("status", "--store", built.store, "--coverage") == 0
    assert "partly: 1 file" in run.out
    assert run.json("status", "--store", built.store, "--coverage")["coverage"]["files"] == {"partly": 1}
    assert "coverage" not in run.json("status", "--store", built.store)
    assert run("coverage", "--store", built.store, "never.md") == 2
    assert "listed no file 'never.md'" in run.err
    assert run("coverage", "--store", built.store, "--run", "never") == 2


def test_init_writes_a_configuration_that_loads_and_never_overwrites(run: Run, tmp_path: Path) -> None:
    assert run.json("init", "mine")["written"] == ["corpus.jsonl", "indexmill.yaml", "questions.jsonl"]
    edited = tmp_path / "mine" / "indexmill.yaml"
    loaded, mine = load_configuration(edited), tmp_path / "mine"
    assert loaded == Configuration(store=mine / "store", corpus=loaded.corpus)
    edited.write_text("store: elsewhere\n")
    (tmp_path / "mine" / "corpus.jsonl").unlink()
    assert run("init", "mine") == 2
    assert "indexmill.yaml" in run.err
    assert edited.read_text() == "store: elsewhere\n"
    assert not (tmp_path / "mine" / "corpus.jsonl").exists()
    corpus = write_corpus(tmp_path / "own.jsonl", documents(2))
    assert run("init", "other", "--corpus", corpus) == 0
    assert [path.name for path in Path("other").iterdir()] == ["indexmill.yaml"]
    assert run("init", corpus / "below") == 2


# Damage


def artifact(store: Path, name: str) -> Path:
    """The blob of the first artifact whose name begins so."""
    reader = StoreReader(store)
    found = next(one for one in reader.manifest(reader.newest().manifest).artifacts if one.name.startswith(name))
    return store / blob_path(found.digest)


def manifest_of(store: Path) -> Path:
    return store / blob_path(StoreReader(store).newest().manifest)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(change(data))


def flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("damage", ["flipped", "missing", "cut"])
@pytest.mark.parametrize("name", ["passages/", "vectors/", "mention_links/", "manifest"])
def test_damage_is_found_by_verify_and_by_whoever_reads_it(
    run: Run, store: Path, name: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INDEXMILL_CACHE", raising=False)  # what another reader has assembled is not read again
    path = manifest_of(store) if name == "manifest" else artifact(store, name)
    if damage == "missing":
        path.unlink()
    else:
        rewrite(path, flip if damage == "flipped" else lambda data: data[: len(data) // 2])
    assert run("verify", "--store", store, "--json") == 1
    report = json.loads(run.out)
    (problem,) = report["problems"]
    assert problem["what"].startswith(name)
    assert path.name in problem["detail"]
    assert run("query", "Who built the bridge of Vell?", "--store", store) == 1
    assert str(path) in run.err
    assert ("is missing" if damage == "missing" else "is damaged") in run.err
    assert "restore it from a copy of the store" in run.err
    assert run.out == ""
    assert run.json("snapshots", "--store", store)["snapshots"][0]["version"] == 1


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("documents/", "flipped"),
        ("vectors/", "missing"),
        ("manifest", "flipped"),
        *(
            pytest.param(name, damage, marks=pytest.mark.slow)
            for name in ("passages/", "mentions/", "names/", "bm25/", "mention_links/")
            for damage in ("flipped", "missing")
        ),
    ],
)
def test_a_build_restores_what_is_lost(
    run: Run, inline: None, built: Built, store: Path, name: str, damage: str
) -> None:
    path = manifest_of(store) if name == "manifest" else artifact(store, name)
    whole = path.read_bytes()
    configuration = write_settings(store.parent / "i.yaml", settings(store, built.corpus))
    if damage == "missing":
        path.unlink()
        assert run("build", "-c", configuration) == 0, run.err
    else:
        rewrite(path, flip)
        assert run("build", "-c", configuration, "--cold") == 0, run.err
    assert StoreReader(store).versions() == [1]
    assert path.read_bytes() == whole
    assert verify(StoreReader(store)).ok


@pytest.mark.slow
def test_a_refresh_over_a_damaged_part_goes_on_or_names_the_file(
    run: Run, inline: None, built: Built, store: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(b"".join(built.corpus.read_bytes().splitlines(keepends=True)[:20]))
    expected = build(settings(tmp_path / "fresh", corpus)).manifest
    configuration = write_settings(tmp_path / "i.yaml", settings(store, corpus))
    for name in ("mentions/", "vectors/", "names/", "bm25/"):
        root = Path(shutil.copytree(store, tmp_path / name.strip("/")))
        path = artifact(root, name)
        rewrite(path, flip)
        code = run("build", "-c", configuration, "--store", root)
        if code:
            assert code == 1
            assert str(path) in run.err
            assert "delete it and build again" in run.err
            assert StoreReader(root).versions() == [1]
            path.unlink()
            assert run("build", "-c", configuration, "--store", root) == 0, run.err
        assert StoreReader(root).ref(2).manifest == expected
        reports = [verify(StoreReader(root), version) for version in (1, 2)]
        assert all(str(path) in str(problem) for report in reports for problem in report.problems)
