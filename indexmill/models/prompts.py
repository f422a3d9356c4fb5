"""The prompts for language models: files whose versions are hashes of their text.

Prompts contain no corpus text. Files in the folder `llm.prompts` replace the built-in files of the same name.
"""

from __future__ import annotations

from pathlib import Path

from indexmill.errors import ConfigurationError
from indexmill.store.canonical import digest_of

Prompt = tuple[str, str]
"""A prompt's text and its version."""

_VERSION_DIGITS = 16


def read_prompt(ours: Path, folder: Path | None = None) -> Prompt:
    """Read a prompt's text and version; a file of the same name in `folder` replaces `ours`.

    The version is the start of the text's SHA-256. Raises ConfigurationError if the folder is missing, or the file is
    unreadable or empty.
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
        raise ConfigurationError(f"the prompt {path} is empty; write one, or remove the file to use the default")
    return text, digest_of(text.encode("utf-8"))[:_VERSION_DIGITS]
