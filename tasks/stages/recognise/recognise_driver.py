"""The driver of `recognise`: by rules or another recogniser, or by a language model."""

from __future__ import annotations

from typing import Any

from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Stage
from tasks.llm.llm_recogniser import TASK, LlmRecogniser
from tasks.stages.recognise import llm_recognise, rules


def drive(run: Run) -> None:
    """Find the entities that documents mention."""
    stage: Stage[Any] = rules.STAGE
    fingerprint, chosen = run.models.recogniser(), run.configuration.recognise
    settings = rules.RecogniserSettings(fingerprint=fingerprint, recogniser=chosen.recogniser)
    if chosen.asks_llm:
        stage, asking = llm_recognise.STAGE, run.asking(llm_recognise.STAGE.name)
        recogniser = LlmRecogniser(*run.models.prompt(TASK), run.configuration.llm.shaping())
        settings = llm_recognise.LlmRecogniseSettings(fingerprint=fingerprint, recogniser=recogniser, asking=asking)
    run.make(stage, [PartSpec(label, run.inputs(stage, label), settings) for label in run.labels])
