"""The driver of `extract`: with a language model, or without."""

from __future__ import annotations

from typing import Any

from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Stage
from tasks.stages.extract import extractive, llm_extract


def drive(run: Run) -> None:
    """Extract units, entities and relations from passages."""
    stage: Stage[Any] = extractive.STAGE
    fingerprint = run.models.extractor()
    settings = extractive.ExtractorSettings(extractor=fingerprint)
    if run.configuration.llm.backend != "extractive":
        stage, prompts, asking = (
            llm_extract.STAGE,
            llm_extract.extractor_of(run.models.prompt),
            run.asking(llm_extract.STAGE.name),
        )
        settings = llm_extract.LlmExtractSettings(extractor=fingerprint, prompts=prompts, asking=asking)
    run.make(stage, [PartSpec(label, run.inputs(stage, label), settings) for label in run.labels])
