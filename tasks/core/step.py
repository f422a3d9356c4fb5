"""The steps of a run: the nodes of its graph, as shown in Prefect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from indexmill.telemetry import span
from schemas.config import Configuration
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import NoSettings, Stage, StageSettings


def _always(_: Configuration) -> bool:
    return True


@dataclass(frozen=True)
class Step:
    """A node of the run's graph, which drives one or more stages once the steps that it needs have ended.

    drive: runs the step. stages: the stages that it drives. after: steps that it follows for reasons other than reading
    their outputs. enabled: returns False if the settings disable the step; steps that need it then do not wait for it.
    of_shards: True if it makes a part for each shard, so that a backfill runs it wave by wave. needs: the steps that it
    waits for, derived by `tasks.core.order`.
    """

    name: str
    drive: Callable[[Run], None]
    stages: tuple[Stage[Any], ...] = ()
    after: tuple[str, ...] = ()
    enabled: Callable[[Configuration], bool] = _always
    of_shards: bool = False
    needs: tuple[str, ...] = ()

    def run(self, run: Run) -> None:
        """Drive the step as a part of the run's trace."""
        with span(f"step {self.name}", {"indexmill.step": self.name}, inner=True):
            self.drive(run)


class StageModule(Protocol):
    """A module that declares a stage."""

    STAGE: Stage[Any]


def shard_step(
    name: str,
    module: StageModule,
    settings: Callable[[Run], StageSettings] = lambda _: NoSettings(),
    enabled: Callable[[Configuration], bool] = _always,
) -> Step:
    """Return a step that makes a part of a module's stage for each shard. settings: returns the parts' settings."""

    def drive(run: Run) -> None:
        stage, run_settings = module.STAGE, settings(run)
        run.make(stage, [PartSpec(label, run.inputs(stage, label), run_settings) for label in run.labels])

    return Step(name, drive, (module.STAGE,), enabled=enabled, of_shards=True)
