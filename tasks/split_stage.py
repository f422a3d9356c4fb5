"""Stage `split`: the shell around `tasks.split`."""

from __future__ import annotations

from schemas.tables import DOCUMENTS
from tasks.encoder import encoder_of
from tasks.split import SplitSettings, split
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE"]


def _compute(inputs: Inputs) -> Outputs:
    settings = SplitSettings(**inputs.settings["split"])
    passages, sentences = split(inputs.table("documents", DOCUMENTS), encoder_of(inputs), settings)
    return Outputs(tables={"passages": passages, "sentences": sentences})


STAGE = Stage("split", version=1, compute=_compute, libraries=("sentencex", "tokenizers"))
