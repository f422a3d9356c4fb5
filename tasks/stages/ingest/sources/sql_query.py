"""Converts a query with `:cursor` to the form that a database driver needs.

SQLAlchemy's `text()` also finds `:30` in `'12:30'`. Here `:cursor` is found only outside string literals, quoted names
and comments, and the rest of the query stays unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_PIECES = re.compile(
    r"""
      [eE]'(?:\\.|''|[^'\\])*'          # a PostgreSQL string with escapes
    | '(?:''|[^'])*'
    | "(?:""|[^"])*"
    | `[^`]*`
    | \$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$
    | --[^\n]*
    | /\*.*?\*/
    | (?P<cursor>(?<![:\w]):cursor\b)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASKS_FOR_NULL = re.compile(r"(?:::\w[\w ]*(?:\(\d+\))?)?(?:\s+AS\s+[\w ]+)?\s*\)?\s*\bIS\s+(?:NOT\s+)?NULL\b", re.I)
_REPLACES_NULL = re.compile(r"\b(?:COALESCE|IFNULL|ISNULL|NVL)\s*\(\s*(?:CAST\s*\(\s*)?$", re.I)


@dataclass(frozen=True)
class Query:
    """A query, cut at each `:cursor`."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, sql: str) -> Query:
        """Cut a query at each `:cursor`, and drop its closing semicolon."""
        sql = re.sub(r"[\s;]+\Z", "", sql)
        parts, begin = [], 0
        for match in _PIECES.finditer(sql):
            if match["cursor"]:
                parts.append(sql[begin : match.start()])
                begin = match.end()
        return cls((*parts, sql[begin:]))

    @property
    def has_cursor(self) -> bool:
        """True if the query contains `:cursor`."""
        return len(self.parts) > 1

    @property
    def handles_null(self) -> bool:
        """True if the query handles a missing cursor: `:cursor IS NULL OR ...`, or COALESCE."""
        return any(_ASKS_FOR_NULL.match(part) for part in self.parts[1:]) or any(
            _REPLACES_NULL.search(part) for part in self.parts[:-1]
        )

    def with_literal(self, literal: str) -> str:
        """Return the query with an SQL constant in place of `:cursor`."""
        return literal.join(self.parts)

    def bound(self, value: Any, paramstyle: str, cast: str = "") -> tuple[str, Any]:
        """Return the query and parameters. paramstyle: PEP 249's, or DuckDB's `dollar`. cast: follows placeholders."""
        times = len(self.parts) - 1
        if paramstyle in ("format", "pyformat"):  # in these styles a percent sign must be doubled
            mark = ("%s" if paramstyle == "format" else "%(cursor)s") + cast
            sql = mark.join(part.replace("%", "%%") for part in self.parts)
            return sql, (value,) * times if paramstyle == "format" else {"cursor": value}
        if paramstyle == "qmark":
            return f"?{cast}".join(self.parts), (value,) * times
        if paramstyle in ("numeric", "numeric_dollar"):
            return ((":1" if paramstyle == "numeric" else "$1") + cast).join(self.parts), (value,)
        return ((":cursor" if paramstyle == "named" else "$cursor") + cast).join(self.parts), {"cursor": value}
