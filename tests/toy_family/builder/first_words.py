"""Stage `first_words`: the first words of each passage of a shard, and the keys of these words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from indexmill.families.incipits.schema import FIRST_KEYS
from tasks.families.incipits.tables import INCIPITS

from indexmill.text.terms import Analyser, term_keys
from schemas.tables import PASSAGES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings


@dataclass(frozen=True, kw_only=True)
class FirstWordsSettings(StageSettings):
    """words: the number of first words of a passage."""

    words: int


def drive(run: Run) -> None:
    """Take the first words of passages."""
    settings = FirstWordsSettings(words=run.configuration.families.incipits.words)
    run.make(STAGE, [PartSpec(label, run.inputs(STAGE, label), settings) for label in run.labels])


def _compute(part: Part[FirstWordsSettings]) -> Outputs:
    passages = part.table("passages", "passage_id", "text")
    begun = [" ".join(text.split()[: part.settings.words]) for text in passages["text"].to_pylist()]
    keys = [term_keys(set(Analyser().terms(text))) for text in begun]
    table = pa.table({"passage_id": passages["passage_id"], "incipit": pa.array(begun, pa.string())}, INCIPITS)
    return Outputs(
        tables={"incipits": table},
        packs={"first_keys": {"keys": np.sort(np.concatenate([np.empty(0, np.uint64), *keys]))}},
    )


STAGE = Stage(
    "first_words",
    version=1,
    compute=_compute,
    libraries=("PyStemmer", "numpy"),
    inputs=(Input("passages", PASSAGES),),
    outputs=(Output("incipits", INCIPITS, artifact="incipit_texts/{label}"), Output("first_keys", FIRST_KEYS)),
)
