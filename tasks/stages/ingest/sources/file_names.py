"""Checks file names from remote sources, warns of skipped files, and formats names and errors for messages."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Literal

_SHOWN = 200
_LEFT_BEHIND = re.compile(
    r"(?:.*/)?(?:(?:~\$|~wr[ld]|~lock)[^/]*|lu\w+\.tmp|#[^/]*#|[^/]*~|[^/]*\.(?:sw[a-p]|bak|orig|asd|wbk)"
    r"|thumbs\.db|desktop\.ini)|(?:.*/)?(?:__macosx|\$recycle\.bin)/.*",
    re.IGNORECASE,
)
"""Lock files and backups of Office, vi, Emacs and others, and what systems and archivers add; `.#x` and `.~lock.x#`
begin with a dot."""


class Skipped:
    """The files that a listing leaves out: their number for each reason, and an example."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, why: str, name: str) -> None:
        """Count a file. why: the reason, as the end of a sentence such as "3 files are left out: ..."."""
        self._counts[why] += 1
        if why not in self._examples or name < self._examples[why]:
            self._examples[why] = name

    def sentences(self) -> list[str]:
        """Return a sentence for each reason, sorted; the example is the file whose name sorts first."""
        return [
            f"{'1 file is' if count == 1 else f'{count:,} files are'} left out: {why}, such as {shown(name)}"
            for why, count in sorted(self._counts.items())
            for name in (self._examples[why],)
        ]


def why_hidden(name: str) -> Literal["", "hidden", "left-behind"]:
    """Return why a file is skipped: a part of its path begins with a dot, or an editor left it behind; else ''.

    The mark of a Hudi table is not skipped.
    """
    is_mark = name.endswith(".hoodie/hoodie.properties")
    if f"/{name}".count("/.") > is_mark:
        return "hidden"
    return "left-behind" if _LEFT_BEHIND.fullmatch(name) else ""


def is_plain(name: str) -> bool:
    """Return whether a name is a relative path without empty parts, `.`, `..` and control characters.

    Lone surrogates, from bytes that are not UTF-8, pass: `tasks.stages.ingest.listing` rejects such a file by name.
    """
    if any(part in ("", ".", "..") for part in name.split("/")):
        return False
    return name.isprintable() or not any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name)


def shown(name: str) -> str:
    """Return a name for messages: shortened, with characters that cannot be printed escaped."""
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name[: _SHOWN + 1])
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...").replace("\\\\", "\\")


def shown_error(error: Exception) -> str:
    """Return an error for messages: its class, and the beginning of its message on one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
