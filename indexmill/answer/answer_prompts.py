"""The prompts for answering questions and comparing answers: see ``indexmill.models.prompts``."""

from __future__ import annotations

from pathlib import Path

from indexmill.models.prompts import Prompt, read_prompt


def prompt(name: str, folder: Path | None = None) -> Prompt:
    """Read the text and version of the prompt `<name>.md`; a file in `folder` replaces it: see ``read_prompt``."""
    return read_prompt(Path(__file__).parent / f"{name}.md", folder)
