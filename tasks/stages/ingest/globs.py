"""Which files `include` and `exclude` choose, by their names below a place."""

from __future__ import annotations

import re
from collections.abc import Sequence


def is_chosen(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """True for a name that a glob of `include` fits, or where there is none, and that none of `exclude` fits."""
    included = not include or any(_matches(name, pattern) for pattern in include)
    return included and not any(_matches(name, pattern) for pattern in exclude)


def _matches(name: str, pattern: str) -> bool:
    """Glob over a relative path: ** crosses folders, * and ? do not; without a slash it matches the last part."""
    if "/" not in pattern:
        name = name.rpartition("/")[2]
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern.removeprefix("/"))
    translated = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    wanted = "".join(
        translated.get(piece) or (re.sub(r"^\[!", "[^", piece) if piece.startswith("[") else re.escape(piece))
        for piece in pieces
        if piece
    )
    return re.fullmatch(wanted, name, re.DOTALL) is not None
