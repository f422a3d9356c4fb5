"""Texts that a language model writes: which prompt asks for them, and what determines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.config import Configuration, LlmSettings
from tasks.llm.prompts import Prompt, prompt

__all__ = ["BoundWriter", "Writer"]


@dataclass(frozen=True)
class Writer:
    """One kind of text that a language model writes, or an extractive fallback where there is none.

    task: what prompts and answers are filed under; the prompt's file has this name. model: what a manifest calls the
    writer among its models. fingerprint: of a configuration and the prompt, what determines the texts beside what
    they are made of, JSON-ready. needed: whether the settings ask for such texts.
    """

    task: str
    model: str
    fingerprint: Callable[[Configuration, Prompt | None], dict[str, Any]]
    needed: Callable[[Configuration], bool]

    def prompt(self, settings: LlmSettings) -> Prompt | None:
        """The prompt by which a model is asked, read once for a run: workers need not have the file. None for no model.

        Raises ConfigurationError where it cannot be read.
        """
        return None if settings.backend == "extractive" else prompt(self.task, settings.prompts)


@dataclass(frozen=True)
class BoundWriter:
    """A writer as the settings of a run bind it. prompt: None where no model is asked."""

    prompt: Prompt | None
    fingerprint: Mapping[str, Any]

    @property
    def asks(self) -> bool:
        """Whether a language model is asked."""
        return self.prompt is not None
