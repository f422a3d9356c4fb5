"""The check of a part, without a build around it."""

from __future__ import annotations

import dataclasses

from storage.folder import open_store
from tasks.core.stage import WHOLE, Inputs, Job
from tasks.registry import FAMILIES
from tasks.stages.check.check import STAGE, CheckSettings, checks_of

__all__ = ["MODULE", "check"]

MODULE = STAGE.module


def check(job: Job) -> None:
    """Run the checks of all families that have their inputs in a job; raises CheckError."""
    settings = CheckSettings(checks=checks_of(FAMILIES, job.inputs, whole=job.shard == WHOLE))
    STAGE.compute(Inputs(open_store(job.store_url), dataclasses.replace(job, settings=settings)))
