"""Format values as Markdown (CommonMark with GitHub's tables), escaped so that data cannot become markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from indexmill.text.printable import one_line

_LONGEST = 600  # maximum characters of a value


def code(value: object) -> str:
    """Return a value as a one-line code span that its content cannot close; ``-`` if empty. Truncates long values."""
    text = one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)).strip()
    if not text:
        return "-"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return code_span(text)


def code_span(line: str) -> str:
    """Return a code span; empty for an empty text."""
    if not line:
        return ""
    ticks = "`" * (most_ticks(line) + 1)
    blank = " " if "`" in (line[0], line[-1]) else ""
    return f"{ticks}{blank}{line}{blank}{ticks}"


def most_ticks(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def table_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of one-line Markdown cells."""
    cells = ([re.sub(r"(\\*)\|", _escaped_pipe, cell) for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells))


def _escaped_pipe(match: re.Match[str]) -> str:
    """Escape a pipe, whatever backslashes precede it, so that it does not end a cell."""
    return match[1] + "\\" * (1 + len(match[1]) % 2) + "|"


def json_block(value: object) -> str:
    """Return a value as a block of JSON. Its content cannot end the block: strings are escaped and quoted."""
    return f"```json\n{json.dumps(value, indent=2, sort_keys=True)}\n```"
