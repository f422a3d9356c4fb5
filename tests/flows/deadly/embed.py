"""The stage `embed` that documents kill."""

from __future__ import annotations

import dataclasses

from tasks.core.stage import Outputs, Part
from tasks.stages.embed import embed
from tests.flows.deadly import strike

_REAL = embed.STAGE


def _compute(part: Part) -> Outputs:
    strike(part)
    return _REAL.compute(part)


STAGE = dataclasses.replace(_REAL, compute=_compute)
