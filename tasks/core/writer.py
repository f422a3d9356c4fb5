"""Writers declare the prompt of the texts that a language model writes, and the values that determine these texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.config import Configuration, LlmSettings
from tasks.llm.prompts import Prompt, prompt


@dataclass(frozen=True)
class Writer:
    """One kind of text, written by a language model, or by an extractive fallback if there is none.

    task: the name of prompts and answers in the ledger, and of the prompt's file. model: the name of the writer among a
    manifest's models. fingerprint: computes, from a configuration and the prompt, the JSON-ready values that determine
    the texts, apart from their sources. needed: returns True if the settings require such texts.
    """

    task: str
    model: str
    fingerprint: Callable[[Configuration, Prompt | None], dict[str, Any]]
    needed: Callable[[Configuration], bool]

    def prompt(self, settings: LlmSettings) -> Prompt | None:
        """Read the prompt's file, which workers may lack; None without a language model. Raises ConfigurationError."""
        return None if settings.backend == "extractive" else prompt(self.task, settings.prompts)


@dataclass(frozen=True)
class BoundWriter:
    """A writer bound to the settings of a run. prompt: None if no model is asked."""

    prompt: Prompt | None
    fingerprint: Mapping[str, Any]

    @property
    def asks(self) -> bool:
        return self.prompt is not None
