"""The prompts of the pipeline: see ``indexmill.models.prompts``."""

from __future__ import annotations

from pathlib import Path

from indexmill.models.prompts import Prompt as Prompt
from indexmill.models.prompts import read_prompt


def prompt(name: str, folder: Path | None = None) -> Prompt:
    """Read the text and version of the prompt `<name>.md`, from `folder` if it has the file: see ``read_prompt``."""
    return read_prompt(Path(__file__).parent / f"{name}.md", folder)
