"""The stage `split` that documents kill."""

from __future__ import annotations

import dataclasses

from tasks.core.stage import Inputs, Outputs
from tasks.stages.split import split
from tests.flows.deadly import strike

_REAL = split.STAGE


def _compute(inputs: Inputs) -> Outputs:
    strike(inputs)
    return _REAL.compute(inputs)


STAGE = dataclasses.replace(_REAL, compute=_compute)
