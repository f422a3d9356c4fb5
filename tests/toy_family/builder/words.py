"""Stage `incipits`: count the passages of the whole corpus that begin with each word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from indexmill.families.incipits.schema import FIRST_KEYS, WORDS

from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, NoSettings, Output, Outputs, Part, Stage


def drive(run: Run) -> None:
    """Count the passages that begin with each word."""
    run.make(STAGE, [PartSpec(WHOLE, run.inputs(STAGE, WHOLE), NoSettings())])


def counts(pack: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts in the manifest."""
    return {"words": len(pack["keys"]), "occurrences": int(pack["passages"].sum())}


def _compute(part: Part[NoSettings]) -> Outputs:
    every = [np.empty(0, np.uint64), *(pack["keys"] for pack in part.packs("first_keys"))]
    keys, passages = np.unique(np.concatenate(every), return_counts=True)
    return Outputs(packs={"words": {"keys": keys, "passages": passages.astype(np.int64)}})


STAGE = Stage(
    "incipits",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    inputs=(Input("first_keys", FIRST_KEYS, each=True),),
    outputs=(Output("words", WORDS, artifact="incipits/words"),),
)
