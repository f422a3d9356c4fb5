"""A backfill: the work of a build in waves, stopped and started at will, and readers who see none of it."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.build_run import BuildOutcome, Publish, backfill_inline, run_stages
from indexmill.command import main
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from schemas.config import Configuration
from storage import refs, runs
from storage.folder import open_folder
from storage.lease import holding
from tasks.core.executor import InlineExecutor, StoppedError
from tasks.core.report import Progress, Silent
from tasks.pipeline.backfill import Waves, backfill, phases
from tasks.pipeline.build import Build
from tasks.registry import enabled_steps
from tests.corpora import documents, write_corpus
from tests.deep import WHOLE, share
from tests.flows.children import Forks, build, settings
from tests.flows.commands import command, write_settings
from tests.flows.readers import answers, complete_parts
from tests.storage.quick import quick_folder

START, STAGES, OF_CORPUS = (
    [step.name for step in steps] for steps in phases(enabled_steps(Configuration(store=Path("store"))))
)
"""The stages of a wave: no family that these settings enable needs an extraction."""

DOCUMENTS = 32
"""They fill eight shards: four waves of two, three of three."""


@dataclass
class Told(Silent):
    """Keeps what a run says when stages end, and its notes."""

    said: list[str] = field(default_factory=list)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        self.said.append(f"{stage}: {summary}")

    def note(self, message: str) -> None:
        self.said.append(message)


@dataclass(frozen=True)
class Expected:
    """What a plain build makes of the corpus."""

    folder: Path
    corpus: Path
    built: BuildOutcome
    shards: int

    def settings(self, name: str) -> dict[str, Any]:
        return settings(self.folder / name, self.corpus)


@pytest.fixture(scope="module")
def expected() -> Iterator[Expected]:
    with quick_folder() as folder:
        yield undisturbed(folder, DOCUMENTS)


@pytest.fixture(scope="module")
def small() -> Iterator[Expected]:
    with quick_folder() as folder:
        yield undisturbed(folder, 12)


def undisturbed(folder: Path, count: int) -> Expected:
    corpus = write_corpus(folder / "corpus.jsonl", documents(count, words=110))
    built = build(settings(folder / "built", corpus))
    with indexmill.open(folder / "built") as snapshot:
        shards = len(snapshot.shards("passages"))
    return Expected(folder, corpus, built, shards)


def filled(chosen: dict[str, Any], waves: Waves, told: Silent | None = None) -> BuildOutcome:
    return backfill_inline(Configuration.model_validate(chosen), waves, progress=told or Silent())


class _Stopped(Exception):
    pass


def stopped(chosen: dict[str, Any], waves: Waves, stages: int) -> None:
    """A backfill that is stopped after so many stages, wherever that is."""
    left = iter(range(stages))

    def run(build_: Build, publish: Publish) -> Manifest:
        def together(_: str, steps: Any) -> None:
            for step in steps:
                step.drive(build_)
                if next(left, None) is None:
                    raise _Stopped

        return backfill(build_, waves, together, publish)

    with pytest.raises(_Stopped):
        run_stages("backfill", Configuration.model_validate(chosen), InlineExecutor(), run, progress=Silent())


@pytest.mark.slow
def test_a_backfill_in_waves_of_any_size_is_the_build_to_the_byte(expected: Expected) -> None:
    assert expected.shards == 8
    for size in (1, 2, 3, expected.shards, 1000, None):
        outcome = filled(expected.settings(f"waves-{size}"), Waves(size))
        assert outcome.manifest == expected.built.manifest
        assert (outcome.version, outcome.parts_made) == (1, expected.built.parts_made)
        assert outcome.vectors_made == expected.built.vectors_made
        assert (outcome.documents, outcome.passages) == (expected.built.documents, expected.built.passages)
        assert list((expected.folder / f"waves-{size}" / "tmp").iterdir()) == []
    assert [run.start.command for run in runs.list_runs(open_folder(expected.folder / "waves-1"))] == ["backfill"]


def test_a_finished_backfill_has_nothing_to_do(expected: Expected) -> None:
    chosen = expected.settings("twice")
    filled(chosen, Waves(2))
    told = Told()
    again = filled(chosen, Waves(2, publish_every=1), told)
    assert (again.published, again.version, again.parts_made) == (False, 1, 0)
    waves = -(-expected.shards // 2)
    assert f"waves 1-{waves} of {waves} were done" in told.said
    assert not any(line.startswith("wave ") for line in told.said)
    assert not build(chosen).published


@pytest.mark.slow
def test_waves_are_told_with_their_pace_and_those_that_were_done(expected: Expected) -> None:
    chosen = expected.settings("told")
    stopped(chosen, Waves(2), stages=2 + 2 * len(STAGES) + 2)  # in the third wave
    told = Told()
    outcome = filled(chosen, Waves(2), told)
    assert outcome.manifest == expected.built.manifest
    waves = -(-expected.shards // 2)
    made = [line for line in told.said if line.startswith("wave ")]
    assert told.said[told.said.index(made[0]) - 1] == f"waves 1-2 of {waves} were done"
    assert [int(line.split()[1]) for line in made] == list(range(3, waves + 1))
    rates = r"[\d,.]+ documents/s, [\d,]+ tokens/s"
    assert re.fullmatch(
        rf"wave 3 of {waves}: shards p[01]+ to p[01]+, \d+ documents; {rates}, \d+ s left; made", made[0]
    )
    assert re.fullmatch(rf"wave {waves} of {waves}: shards p[01]+ to p[01]+, \d+ documents; {rates}; made", made[-1])


@pytest.mark.slow
@pytest.mark.parametrize("after", share([1, 2, 4, 2 + len(STAGES), 2 + len(STAGES) * 3 // 2, 2 + len(STAGES) * 3], 2))
def test_a_stopped_backfill_goes_on_and_so_does_a_build(expected: Expected, after: int) -> None:
    for name, going_on in (("filled", lambda chosen: filled(chosen, Waves(2))), ("built", build)):
        chosen = expected.settings(f"stopped-{after}-{name}")
        root = Path(chosen["store"])
        stopped(chosen, Waves(2), after)
        assert not StoreReader(root).versions()
        assert list((root / "tmp").iterdir()) == []
        kept = complete_parts(root)
        outcome = going_on(chosen)
        assert outcome.manifest == expected.built.manifest
        assert outcome.parts_made + len(kept) == expected.built.parts_made
        states = [(run.start.command, run.state) for run in runs.list_runs(open_folder(root))]
        assert states == [("backfill", "failed"), ("backfill" if name == "filled" else "build", "published")]


def killed_everywhere(small: Expected, forks: Forks, points: int) -> None:
    waves = Waves(1, publish_every=2)
    whole = forks.build(small.settings("undisturbed"), waves=waves)
    assert whole.outcome is not None
    assert whole.outcome.manifest == small.built.manifest
    manifests = {ref.version: ref.manifest for ref in refs.history(open_folder(small.folder / "undisturbed"))}
    crossed = whole.crossed
    commits = [at for at, name in enumerate(crossed, 1) if "refs/" in name]
    assert len(commits) == 3 * len(manifests) == 3 * whole.outcome.version > 3
    found = set()
    for at in sorted({*(len(crossed) * part // points + 1 for part in range(points)), *commits[:3], commits[2] + 1}):
        root = small.folder / f"killed-{at}"
        ended = forks.build(small.settings(root.name), at, waves=waves)
        assert ended.code == -signal.SIGKILL
        kept = complete_parts(root)
        versions = StoreReader(root).versions() if (root / "store.json").exists() else []
        found.add(len(versions))
        again = filled(small.settings(root.name), waves)
        assert {ref.version: ref.manifest for ref in refs.history(open_folder(root))} == manifests
        assert again.manifest == small.built.manifest
        # A part that a version on the way needs alone is made once, too.
        assert again.parts_made + len(kept) == whole.outcome.parts_made
        shutil.rmtree(root)
    shutil.rmtree(small.folder / "undisturbed")
    assert {0, 1} <= found


@pytest.mark.slow
def test_a_backfill_killed_at_many_boundaries_loses_no_finished_part(small: Expected, forks: Forks) -> None:
    killed_everywhere(small, forks, 100 if WHOLE else 12)


@pytest.mark.slow
def test_versions_on_the_way_follow_each_other_and_each_is_whole(expected: Expected) -> None:
    chosen = expected.settings("versions")
    outcome = filled(chosen, Waves(2, publish_every=1))
    root = Path(chosen["store"])
    waves = -(-expected.shards // 2)
    assert outcome.version == waves
    assert outcome.manifest == expected.built.manifest
    reader = StoreReader(root)
    assert reader.versions() == list(range(1, waves + 1))
    before: set[str] = set()
    for version in reader.versions():
        checked = verify(reader, version)
        assert checked.ok, checked.problems
        with indexmill.open(root, version=version) as snapshot:
            rows = snapshot.table("documents").to_pylist()
            assert len(snapshot.shards("documents")) == min(2 * version, expected.shards)
            corpus = snapshot.manifest.corpus
            assert corpus.documents == len(rows)
            assert corpus.passages == snapshot.table("passages").num_rows
        ids = {row["document_id"] for row in rows}
        assert before < ids
        before = ids
        if version in (1, waves - 1):  # the documents alone, but for how they are cut, are a corpus of their own
            alone = {identity: text for identity, text in documents(DOCUMENTS, words=110).items() if identity in ids}
            own = write_corpus(expected.folder / f"alone-{version}.jsonl", alone)
            assert answers(root, version)
            fresh = build(settings(expected.folder / f"alone-{version}", own))
            with indexmill.open(expected.folder / f"alone-{version}") as snapshot:
                assert snapshot.manifest.corpus.fingerprint == corpus.fingerprint
                assert fresh.documents == corpus.documents
    costs = [ref.cost["vectors_made"] for ref in refs.history(open_folder(root))]
    assert sum(int(str(cost)) for cost in costs) == outcome.vectors_made
    assert all(int(str(cost)) < expected.built.vectors_made for cost in costs)
    (run,) = runs.list_runs(open_folder(root))
    assert (run.state, run.version) == ("published", waves)


@pytest.mark.slow
def test_a_reader_keeps_its_version_while_a_backfill_is_at_work(expected: Expected, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store", write_corpus(tmp_path / "old.jsonl", documents(4, words=110)))
    old = build(chosen)
    before = answers(tmp_path / "store")
    chosen["corpus"] = {"paths": [str(expected.corpus)]}
    seen: list[int] = []

    class Watching(InlineExecutor):
        def run(self, calls: Any, **options: Any) -> Iterator[Any]:
            for done in super().run(calls, **options):
                if len(seen) % 7 == 0:
                    assert StoreReader(tmp_path / "store").versions() == [1]
                    assert answers(tmp_path / "store") == before
                seen.append(1)
                yield done

    with indexmill.open(tmp_path / "store") as held:
        question = "Who built the bridge of Vell with Esme Quill?"
        first = [hit.to_dict() for hit in held.retrieve(question, k=3)]
        outcome = run_stages(
            "backfill",
            Configuration.model_validate(chosen),
            Watching(),
            lambda one, publish: backfill(one, Waves(2), lambda _, names: in_order(one, names), publish),
            progress=Silent(),
        )
        assert [hit.to_dict() for hit in held.retrieve(question, k=3)] == first
    assert len(seen) > 20
    assert (outcome.version, outcome.manifest) == (2, expected.built.manifest)
    assert answers(tmp_path / "store", 1) == before
    assert StoreReader(tmp_path / "store").ref(1).manifest == old.manifest


def in_order(build_: Build, steps: Any) -> None:
    for step in steps:
        step.drive(build_)


@pytest.mark.slow
def test_no_version_on_the_way_takes_documents_away(expected: Expected) -> None:
    """A backfill under other settings over an index of the whole corpus: publishing its first waves would."""
    chosen = expected.settings("again")
    build(chosen)
    chosen["split"] = {"tokens": 64}
    told = Told()
    outcome = filled(chosen, Waves(2, publish_every=1), told)
    assert outcome.version == 2
    assert build(chosen | {"store": str(expected.folder / "again-fresh")}).manifest == outcome.manifest
    refused = [line for line in told.said if line.endswith("not published")]
    waves = -(-expected.shards // 2)
    assert 0 < len(refused) <= waves - 1
    assert re.fullmatch(
        rf"up to wave 1 of \d+ there are \d+ documents, version 1 has {DOCUMENTS}: not published", refused[0]
    )


@pytest.mark.slow
def test_rows_of_a_killed_backfill_that_had_published_are_copied(expected: Expected, tmp_path: Path) -> None:
    rows = documents(DOCUMENTS, words=110)
    chosen = settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", rows))
    half = expected.shards // 2
    waves = expected.shards - 1
    stopped(chosen, Waves(1, publish_every=half), len(START) + waves * len(STAGES) + len(OF_CORPUS))
    assert StoreReader(tmp_path / "store").versions() == [1]
    changed = {name: (title, text + " Yorrick Ansel left Vell.") for name, (title, text) in rows.items()}
    touched = dict(list(changed.items())[::6])
    write_corpus(tmp_path / "corpus.jsonl", rows | touched)
    outcome = filled(chosen, Waves(1))
    fresh = build(chosen | {"store": str(tmp_path / "fresh")})
    assert outcome.manifest == fresh.manifest
    assert outcome.vectors_made < fresh.vectors_made / 3


@pytest.mark.slow
def test_stopping_the_executor_ends_a_backfill_and_its_record(expected: Expected) -> None:
    class Stopping(InlineExecutor):
        calls = 0

        def run(self, calls: Any, **options: Any) -> Iterator[Any]:
            for done in super().run(calls, **options):
                self.calls += 1
                if self.calls == 12:
                    self.stop()
                yield done

    chosen = expected.settings("stopping")
    with pytest.raises(StoppedError):
        run_stages(
            "backfill",
            Configuration.model_validate(chosen),
            Stopping(),
            lambda one, publish: backfill(one, Waves(2), lambda _, names: in_order(one, names), publish),
            progress=Silent(),
        )
    assert complete_parts(Path(chosen["store"]))
    assert filled(chosen, Waves(2)).manifest == expected.built.manifest


@pytest.mark.slow
def test_the_command_passes_on_how_waves_are_cut_and_published(
    expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Waves] = []

    def here(
        configuration: Configuration, *, waves: Waves, progress: Progress, cold: bool, **_: object
    ) -> BuildOutcome:
        asked.append(waves)
        return backfill_inline(configuration, waves, progress=progress, cold=cold)

    monkeypatch.setattr("flows.local.build_under_prefect", here)
    chosen = settings(tmp_path / "store", expected.corpus, run={"wave_shards": 3})
    argv = ["backfill", "-c", str(write_settings(tmp_path / "indexmill.yaml", chosen)), "--json"]
    assert main([*argv, "--publish-every", "2"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    waves = -(-expected.shards // 3)
    assert (told["published"], told["version"]) == (True, -(-waves // 2))
    assert told["manifest"] == expected.built.manifest
    assert re.search(
        rf"^ingest: {DOCUMENTS} documents of about [\d,]+ tokens, {expected.shards} shards in {waves} waves;",
        err,
        re.MULTILINE,
    )
    assert err.startswith(f"indexmill backfill: store {tmp_path / 'store'}, corpus {expected.corpus}\n")
    assert f"\nwave {waves} of {waves}: " in err
    assert main([*argv, "--wave-shards", "1"]) == 0
    assert f"waves 1-{expected.shards} of {expected.shards} were done" in capsys.readouterr().err
    assert asked == [Waves(3, 2), Waves(1, None)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_the_real_command_ends_at_every_signal_and_goes_on_where_it_was(
    expected: Expected, prefect_environment: dict[str, str], tmp_path: Path, number: int
) -> None:
    """Of a terminal that closes, and of a kill, the run learns nothing: the next one takes over what it held."""
    told_of = number in (signal.SIGTERM, signal.SIGINT)
    chosen = settings(tmp_path / "store", expected.corpus, run={"wave_shards": 2, "workers": 2})
    argv = ["backfill", "-c", write_settings(tmp_path / "indexmill.yaml", chosen), "--json"]
    with command(tmp_path, *argv, environment=prefect_environment) as ended:
        ended.wait_for("wave 2 of")
        ended.signal(number, everywhere=number == signal.SIGINT)
        assert ended.wait(60) == (130 if told_of else -number), ended.err
        assert ended.left_behind() == {}
    lease = holding(open_folder(tmp_path / "store"))
    assert lease is not None
    assert lease.released == told_of
    if told_of:
        assert ended.lines[-1] == "interrupted\n"
    kept = complete_parts(tmp_path / "store")
    with command(tmp_path, *argv, environment=prefect_environment) as going_on:
        assert going_on.wait() == 0, going_on.err
        assert going_on.left_behind() == {}
    assert re.search(r"^(waves 1-\d+ of \d+ were|wave 1 of \d+ was) done$", going_on.err, re.MULTILINE)
    told = going_on.json()
    assert told["manifest"] == expected.built.manifest
    assert told["parts_made"] + len(kept) == expected.built.parts_made
    assert not build(settings(tmp_path / "store", expected.corpus)).published


@pytest.mark.slow
def test_stages_are_named_after_their_wave_or_the_version_that_they_are_for(expected: Expected) -> None:
    titles: list[str] = []

    def run(build_: Build, publish: Publish) -> Manifest:
        def together(title: str, steps: Any) -> None:
            titles.extend(title + step.name for step in steps)
            in_order(build_, steps)

        return backfill(build_, Waves(7, 1), together, publish)

    chosen = Configuration.model_validate(expected.settings("titles"))
    run_stages("backfill", chosen, InlineExecutor(), run, progress=Silent())
    waves = [[f"wave {number} of 2: {stage}" for stage in STAGES] for number in (1, 2)]
    on_the_way = [f"up to wave 1 of 2: {stage}" for stage in OF_CORPUS]
    assert titles == [*START, *waves[0], *on_the_way, *waves[1], *OF_CORPUS]


@pytest.mark.slow
def test_a_wave_is_given_back_to_the_disk_before_the_next(expected: Expected) -> None:
    chosen = expected.settings("disk")
    held: list[int] = []

    def run(build_: Build, publish: Publish) -> Manifest:
        def together(title: str, steps: Any) -> None:
            in_order(build_, steps)
            spilled = Path(chosen["store"]).glob("tmp/*/spill/*.documents.*")
            held.append(sum(file.stat().st_size for file in spilled))

        return backfill(build_, Waves(1), together, publish)

    run_stages("backfill", Configuration.model_validate(chosen), InlineExecutor(), run, progress=Silent())
    assert held == sorted(held, reverse=True)
    assert held[0] > held[expected.shards // 2] > held[-1] == 0
