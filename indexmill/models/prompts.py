"""The prompts that models are sent: files, each versioned by its text.

Prompts contain no corpus text. A folder (`llm.prompts`) may hold files that replace ours, one by one.
"""

from __future__ import annotations

from pathlib import Path

from indexmill.errors import ConfigurationError
from indexmill.store.canonical import digest_of

Prompt = tuple[str, str]
"""A text and its version."""

_VERSION_DIGITS = 16


def read_prompt(ours: Path, folder: Path | None = None) -> Prompt:
    """The text of a prompt, that of the file of the same name in `folder` if it has one, and its version.

    The version is the start of the text's SHA-256. Raises ConfigurationError where the folder is not there, or the file
    cannot be read as a text or is empty.
    """
    path = ours
    if folder is not None:
        if not folder.is_dir():
            raise ConfigurationError(f"llm.prompts: {folder} is not a folder")
        if (folder / ours.name).exists():
            path = folder / ours.name
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the prompt {path} cannot be read: {error}") from error
    if not text:
        raise ConfigurationError(f"the prompt {path} is empty; write one, or remove the file to have ours")
    return text, digest_of(text.encode("utf-8"))[:_VERSION_DIGITS]
