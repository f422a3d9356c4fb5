"""Build one corpus undisturbed, killed and resumed, and into a bucket: all builds must have the same manifest."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.acceptance.commands import Programs, RunningProgram
from benchmarks.acceptance.corpora import WIKI, CorpusCut
from benchmarks.acceptance.journey import write_settings
from benchmarks.acceptance.rows import AcceptanceRow, Group, Measure
from tests.storage.services import bucket_of, s3_variables

_STAGES = 8  # finished stages when the build is killed; a whole build has some forty


@dataclass
class _Builds:
    """A cut, and the programs that build it."""

    data: Path
    folder: Path
    programs: Programs
    manifest: str = ""

    @cached_property
    def corpus(self) -> CorpusCut:
        return WIKI[150].make(self.data, self.folder)

    def words(self, store: object) -> list[object]:
        settings = write_settings(self.folder)
        return ["build", "--config", settings, "--store", store, "--corpus", self.corpus.first]

    def same(self, outcome: dict[str, Any], more: str = "", *, is_met: bool = True) -> Measure:
        is_same = outcome["manifest"] == self.manifest
        return Measure(f"manifest {outcome['manifest'][:8]}{more}", self.manifest[:8], is_same and is_met)


def _undisturbed(builds: _Builds) -> Iterator[Measure]:
    outcome = builds.programs.json(*builds.words(builds.folder / "store"))
    builds.manifest = outcome["manifest"]
    yield Measure(
        f"manifest {outcome['manifest'][:8]}, {outcome['parts_made']} parts", "published", outcome["published"]
    )


def _killed(builds: _Builds) -> Iterator[Measure]:
    store = builds.folder / "killed"
    with builds.programs.starting(*builds.words(store)) as program:
        if not program.wait_for(lambda: _finished_stages(program) >= _STAGES):
            raise program.failure("ended before it was killed")
        program.kill()
        killed = _finished_stages(program)
    outcome = builds.programs.json(*builds.words(store))
    reused = outcome["parts_reused"]
    yield builds.same(outcome, f", killed after {killed} stages, {reused} parts reused", is_met=reused > 0)


def _finished_stages(program: RunningProgram) -> int:
    return len(re.findall(r"^\w+: \d+ made, \d+ reused", program.err, re.MULTILINE))


def _bucket(builds: _Builds) -> Iterator[Measure]:
    with builds.programs.running(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", 0) as server:
        address = re.compile(r"Running on (http://\S+)")
        if not server.wait_for(lambda: address.search(server.err) is not None):
            raise server.failure("ended")
        match = address.search(server.err)
        assert match is not None
        environment = s3_variables(match[1])
        url = f"{bucket_of(match[1])}/index"
        outcome = builds.programs.json(*builds.words(url), environment=environment)
        server.terminate()
        server.wait()
    yield builds.same(outcome, " in a bucket of moto")


DURABILITY = Group(
    "2wiki-150",
    (
        AcceptanceRow("undisturbed build", _undisturbed),
        AcceptanceRow("kill -9 and resume", _killed, ("undisturbed build",)),
        AcceptanceRow("bucket", _bucket, ("undisturbed build",)),
    ),
    _Builds,
    WIKI[150].files,
)
