"""The stage `split` that documents kill."""

from __future__ import annotations

import dataclasses

from tasks.core.stage import Outputs, Part
from tasks.stages.split import split
from tests.flows.deadly import strike

_REAL = split.STAGE


def _compute(part: Part) -> Outputs:
    strike(part)
    return _REAL.compute(part)


STAGE = dataclasses.replace(_REAL, compute=_compute)
