"""Matches file names, relative to their source, with the globs of `include` and `exclude`."""

from __future__ import annotations

import re
from collections.abc import Sequence


def is_chosen(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Return whether a name matches no glob of `exclude`, and a glob of `include` unless `include` is empty."""
    included = not include or any(_matches(name, pattern) for pattern in include)
    return included and not any(_matches(name, pattern) for pattern in exclude)


def _matches(name: str, pattern: str) -> bool:
    """Match a glob with a relative path, or with the file name if the glob has no slash. Only ** crosses folders."""
    if "/" not in pattern:
        name = name.rpartition("/")[2]
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern.removeprefix("/"))
    translated = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    regex = "".join(
        translated.get(piece) or (re.sub(r"^\[!", "[^", piece) if piece.startswith("[") else re.escape(piece))
        for piece in pieces
        if piece
    )
    return re.fullmatch(regex, name, re.DOTALL) is not None
