"""Stage `passage_codes`: codes, a quarter the size of the vectors, that a reader scans to find the nearest passages.

Each passage has one code: its vector plus that of its document's title, weighted as in dense retrieval
(`indexmill.retrieve.code_scan`), so that one scan ranks by both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from indexmill.retrieve.code_scan import encoded
from indexmill.retrieve.directions import unit_vectors
from indexmill.retrieve.passage_vectors import DenseParameters
from indexmill.retrieve.shared_schema import CODES, TITLES, VECTORS
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings


@dataclass(frozen=True, kw_only=True)
class PassageCodeSettings(StageSettings):
    """Settings of the `passage_codes` stage. title: the weight of a title's vector."""

    title: float


def settings_of(run: Run) -> PassageCodeSettings:
    """Return the settings of a run's parts."""
    titled = run.configuration.split.title_in_passage
    weight = float(run.configuration.families.dense.parameters.get("title", DenseParameters().title)) if titled else 0.0
    return PassageCodeSettings(title=weight)


def _compute(part: Part[PassageCodeSettings]) -> Outputs:
    vectors = np.concatenate([pack["passages"] for pack in part.packs("vectors")])
    if part.settings.title:
        titles = part.pack("titles")
        vectors += np.float32(part.settings.title) * unit_vectors(titles["vectors"])[titles["passage_document"]]
    return Outputs(packs={"passage_codes": encoded(vectors, part.settings.title)})


STAGE: Stage[Any] = Stage(
    "passage_codes",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(Input("vectors", VECTORS, pieces=True), Input("titles", TITLES, optional=True)),
    outputs=(Output("passage_codes", CODES, artifact="passage_codes/{label}"),),
)
