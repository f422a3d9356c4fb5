"""kill -9 of the real `indexmill build`: nothing is left running, nothing is lost, nothing is seen by halves."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from indexmill.command import main
from storage import runs
from storage.folder import open_folder
from tests.deep import WHOLE
from tests.flows.children import build, settings
from tests.flows.commands import command
from tests.flows.expected import Expected
from tests.flows.readers import answers, complete_parts, whole_versions


@contextmanager
def watched(root: Path, manifest: str) -> Iterator[None]:
    """Read the store all the time; at the end nothing but whole versions must have been seen."""
    failures: list[BaseException] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            try:
                if whole_versions(root, {1: manifest}):
                    assert answers(root)
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert failures == []


def ends_well(expected: Expected, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hold a store against the promises after a kill, and finish its build."""
    newest = whole_versions(root, {1: expected.manifest})
    kept = complete_parts(root)
    if root.exists() and (root / "store.json").exists():
        assert main(["snapshots", "--store", str(root)]) == 0
        assert main(["query", "Who built the bridge of Vell?", "--store", str(root)]) == (0 if newest else 2)
        capsys.readouterr()
    again = build(settings(root, expected.corpus))
    assert (again.manifest, again.version, again.published) == (expected.manifest, 1, not newest)
    assert again.parts_made + len(kept) == expected.parts  # what was complete is not made again
    assert kept.items() <= complete_parts(root).items()
    assert whole_versions(root, {1: expected.manifest}) == 1
    ended = runs.list_runs(open_folder(root))
    states = [run.state for run in ended]
    assert states in (["published"], ["killed", "published"], ["published", "unchanged"]), ended


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_and_a_store_that_the_next_one_finishes(
    expected: Expected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    with watched(root, expected.manifest), command(tmp_path, *expected.argv(tmp_path, workers=1)) as killed:
        killed.wait_for("split:")
        assert any("flows.prefect_server" in words for words in killed.processes().values())
        assert killed.workers()
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        assert killed.left_behind() == {}
    assert list(killed.home.rglob("*")) == []
    assert complete_parts(root)
    ends_well(expected, root, capsys)


STAGES = ("ingest", "split", "recognise", "embed", "resolve", "embed_names", "check")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_at_random_times(expected: Expected, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(2026)  # noqa: S311
    first = expected.folder / "first"
    first.mkdir()
    with watched(first / "store", expected.manifest), command(first, *expected.argv(first)) as whole:
        began = time.monotonic()
        whole.wait_for("ingest:")
        startup = time.monotonic() - began
        assert whole.wait() == 0, whole.err
    assert whole.json()["manifest"] == expected.manifest
    # Three while the server and the workers start, and one shortly after the end of each stage but one.
    for number, stage in enumerate([None, None, None, *STAGES] * (2 if WHOLE else 1)):
        folder = expected.folder / f"kill-{number}"
        folder.mkdir()
        root = folder / "store"
        with watched(root, expected.manifest), command(folder, *expected.argv(folder)) as killed:
            if stage is not None:
                killed.wait_for(f"{stage}:")
            pause = chance.random() * (0.3 if stage else startup / 2)
            time.sleep(0 if stage == "check" else pause)  # the rest of a build takes a moment
            killed.signal(signal.SIGKILL)
            assert killed.wait() == -signal.SIGKILL
            assert killed.left_behind() == {}
        if stage not in ("split", "embed_names"):
            ends_well(expected, root, capsys)
            continue
        newest, kept = whole_versions(root, {1: expected.manifest}), complete_parts(root)
        with watched(root, expected.manifest), command(folder, *expected.argv(folder)) as finished:
            assert finished.wait() == 0, finished.err
        told = finished.json()
        assert (told["manifest"], told["published"]) == (expected.manifest, not newest)
        assert told["parts_made"] + len(kept) == expected.parts
        assert whole_versions(root, {1: expected.manifest}) == 1
