"""The stage `bm25` that documents kill."""

from __future__ import annotations

import dataclasses

from tasks.core.stage import Inputs, Outputs
from tasks.families.bm25 import postings as bm25
from tests.flows.deadly import strike

_REAL = bm25.STAGE


def _compute(inputs: Inputs) -> Outputs:
    strike(inputs)
    return _REAL.compute(inputs)


STAGE = dataclasses.replace(_REAL, compute=_compute)
