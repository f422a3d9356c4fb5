"""Death and failing disks at the write boundaries of a build: nothing is lost, and readers never see half of anything.

A child process builds with the deterministic encoder and dies, or meets a failing disk, at a chosen crossing of
`storage.faults`. What it leaves is what any reader would have seen at that moment.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storage import runs
from storage.folder import open_folder
from tasks.stages.ingest.source_files import _SETTLED
from tests.corpora import Documents, documents, write_corpus
from tests.deep import WHOLE
from tests.flows.children import SMALL_TREE, Ended, Forks, build, settings
from tests.flows.readers import Answers, answers, complete_parts, whole_versions
from tests.storage.quick import quick_folder


@dataclass(frozen=True)
class Job:
    """A build to be disturbed, and how it goes when nobody does."""

    corpus: Path
    start: Path | None  # the store it starts from, None for no store
    manifests: dict[int, str]
    answered: dict[int, Answers]
    parts_made: int
    seconds: float
    crossed: tuple[str, ...]

    @property
    def version(self) -> int:
        """The version it publishes."""
        return max(self.manifests)

    def settings(self, root: Path) -> dict[str, Any]:
        """Its settings in another store, which is a copy of the one it starts from."""
        if self.start is not None and not root.exists():
            shutil.copytree(self.start, root)
        return settings(root, self.corpus, families=SMALL_TREE)

    def sample(self, count: int) -> list[int]:
        """So many boundaries, evenly spread, and those around the commit."""
        total = len(self.crossed)
        return sorted({*(total * part // count + 1 for part in range(count)), *self.commit, self.commit[-1] + 1})

    @property
    def commit(self) -> list[int]:
        """The boundaries of creating the ref: before it has its name, after, and when that is durable."""
        return [at for at, name in enumerate(self.crossed, 1) if "refs/" in name]


@pytest.fixture(scope="module")
def first(memory: Path, forks: Forks) -> Job:
    """The first build of a corpus of two shards."""
    return undisturbed(forks, memory, "first", documents(8, words=110))


@pytest.fixture(scope="module")
def refresh(memory: Path, forks: Forks, first: Job) -> Job:
    """The refresh after one document was edited: other entities, another passage."""
    rows = documents(8, words=110)
    title, text = rows["doc-0003"]
    rows["doc-0003"] = (title, text.replace("bridge of", "lighthouse of Saint Corvin near", 1))
    return undisturbed(forks, memory, "refresh", rows, first)


def undisturbed(forks: Forks, folder: Path, name: str, rows: Documents, before: Job | None = None) -> Job:
    corpus = write_corpus(folder / f"{name}.jsonl", rows)
    time.sleep(_SETTLED + 0.1)  # a younger file is not known to the next run, which then writes less
    root = folder / name
    if before is not None:
        shutil.copytree(folder / "first", root)
    ended = forks.build(settings(root, corpus, families=SMALL_TREE))
    assert (ended.code, ended.error, ended.message) == (0, "", "")
    assert ended.outcome is not None
    assert ended.outcome.published
    made = ended.outcome
    manifests = {**(before.manifests if before else {}), made.version: made.manifest}
    return Job(
        corpus=corpus,
        start=folder / "first" if before else None,
        manifests=manifests,
        answered={version: answers(root, version) for version in manifests},
        parts_made=made.parts_made,
        seconds=made.seconds,
        crossed=ended.crossed,
    )


def ends_well(job: Job, root: Path) -> bool:
    """Hold a store against the promises after a disturbed build, then build once more without disturbance.

    Returns whether the disturbed build had published.
    """
    old = complete_parts(job.start) if job.start is not None else {}
    newest = whole_versions(root, job.manifests, job.answered)
    assert newest in (job.version - 1, job.version)
    kept = complete_parts(root)
    assert old.items() <= kept.items()
    again = build(job.settings(root))
    assert (again.manifest, again.version) == (job.manifests[job.version], job.version)
    assert again.published == (newest < job.version)
    # What was complete is not made again: the parts that either run made are all the parts there are.
    assert again.parts_made + len(kept) - len(old) == job.parts_made
    assert kept.items() <= complete_parts(root).items()
    assert whole_versions(root, job.manifests, job.answered) == job.version
    assert list((root / "tmp").iterdir()) == []
    return newest == job.version


def killed_everywhere(forks: Forks, job: Job, boundaries: list[int], mode: str = "kill") -> None:
    published = 0
    with quick_folder() as folder:
        for at in boundaries:
            root = folder / str(at)
            ended = forks.build(job.settings(root), at, mode)
            assert ended.code == -signal.SIGKILL
            early = ends_well(job, root)
            published += early
            states = [run.state for run in runs.list_runs(open_folder(root))][job.version - 1 :]
            # A run that died before its first record is not known.
            assert states in ([["published", "unchanged"]] if early else [["published"], ["killed", "published"]])
            shutil.rmtree(root)
    assert 0 < published < len(boundaries)


def test_a_build_of_two_shards_crosses_hundreds_of_boundaries(first: Job, refresh: Job) -> None:
    # Ten stages of two shards, one of two of names, five of the whole, three of each layer of lsh_tree, six checks.
    assert first.parts_made == 10 * 2 + 1 * 2 + 5 + 3 * 1 + 6
    assert refresh.parts_made < first.parts_made
    assert len(first.crossed) > 200
    assert len(refresh.crossed) > 100
    assert refresh.manifests[1] == first.manifests[1] != refresh.manifests[2]


@pytest.mark.slow
@pytest.mark.parametrize("job", ["first", "refresh"])
def test_death_at_every_boundary(forks: Forks, job: str, request: pytest.FixtureRequest) -> None:
    chosen: Job = request.getfixturevalue(job)
    killed_everywhere(forks, chosen, chosen.sample(len(chosen.crossed) // (1 if WHOLE else 24)))


@pytest.mark.slow
@pytest.mark.parametrize("job", ["first", "refresh"])
def test_many_kills_at_random_times(forks: Forks, job: str, request: pytest.FixtureRequest) -> None:
    """Killed again and again, a build gets on all the same: what was complete stays, and the end is that of no kill."""
    chosen: Job = request.getfixturevalue(job)
    chance = random.Random(2026)  # noqa: S311
    kills = 0
    with quick_folder() as folder:
        for number in itertools.count():
            root = folder / str(number)
            kept = complete_parts(chosen.start) if chosen.start is not None else {}
            for _ in range(5):
                ended = forks.build(chosen.settings(root), after=chance.random() * chosen.seconds)
                if ended.code == 0:
                    break
                assert ended.code == -signal.SIGALRM
                kills += 1
                whole_versions(root, chosen.manifests, chosen.answered)
                assert kept.items() <= complete_parts(root).items()
                kept = complete_parts(root)
            ends_well(chosen, root)
            shutil.rmtree(root)
            if kills >= (100 if WHOLE else 20):
                return


def failing(forks: Forks, job: Job, boundaries: list[int], mode: str) -> list[Ended]:
    """Builds that meet a failing disk, each held against the promises."""
    ends = []
    with quick_folder() as folder:
        for at in boundaries:
            root = folder / str(at)
            ended = forks.build(job.settings(root), at, mode)
            if mode == "torn" and ended.code == -signal.SIGKILL:
                ends_well(job, root)
                continue
            if ended.code:
                full = mode in ("enospc", "short", "full")
                expected = ("StoreError", 1) if mode == "eio" else ("DiskFull", 6) if full else ("StoreNotWritable", 2)
                assert (ended.error, ended.code) == expected, (at, ended)
                assert str(root) in ended.message
                if full:
                    assert re.search(r"the disk of \S+ is full: free some space and run again", ended.message)
            else:  # only where nothing was left to do but to clean up
                assert ended.outcome is not None
                assert ended.outcome.published
            last = runs.list_runs(open_folder(root))[-1:] if (root / "runs").exists() else []
            if mode != "full" and [run.exit_code for run in last] == [ended.code] and ended.code:
                assert [run.state for run in last] == ["failed"]
            ends_well(job, root)
            ends.append(ended)
    return ends


@pytest.mark.end_to_end
def test_a_failing_disk_loses_nothing_and_says_what_to_do(forks: Forks, first: Job) -> None:
    total = len(first.crossed)
    ends = failing(forks, first, [2, total // 3, total // 2, first.commit[1]], "enospc")
    assert any(ended.code for ended in ends)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torn", "short", "enospc", "eio", "erofs", "eacces", "full"])
def test_a_failing_disk_at_many_boundaries(forks: Forks, first: Job, refresh: Job, mode: str) -> None:
    job = refresh if mode in ("short", "eio") else first
    ends = failing(forks, job, job.sample(len(job.crossed) // (3 if WHOLE else 120)), mode)
    assert mode == "torn" or any(ended.code for ended in ends)
