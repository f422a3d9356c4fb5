"""The tables of docs/format.md that the code declares; ``python -m tests.format_tables`` writes them.

A table stands between two comments, which name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import tasks.registry  # noqa: F401 - declares the tables of families
from indexmill.retrieve.schemas import PACKS
from indexmill.store.pack_schema import Array, PackSchema
from indexmill.store.sbom import SBOM
from schemas.tables import TABLES, Table
from tests.paths import ROOT

T = TypeVar("T")

PAGE = ROOT / "docs" / "format.md"

_SBOM = (
    f"`{SBOM}`",
    "file",
    "the software of the environment that built it, in CycloneDX's JSON; only where `run.sbom` is set",
)
_ENCODER = (
    "`encoder/<file>`",
    "file",
    "the model that encodes a question, ready to be opened without torch; absent where the encoder needs no files",
)


def generated(page: str) -> str:
    """The page with its generated tables as the code has them; raises ValueError where it lacks a marker."""
    for name, lines in {
        "artifacts": _artifacts(),
        "columns": _sections(dict(sorted(TABLES.items())), _columns),
        "arrays": _sections(PACKS, _arrays),
    }.items():
        start, end = f"<!-- {name}: written by python -m tests.format_tables -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = page.partition(start)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"{PAGE} has no place for the generated {name}")
        page = "\n".join([before + start, *lines, "", end + after])
    return page


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _artifacts() -> list[str]:
    rows = [
        *((f"`{name}`", "table", table.holds) for name, table in sorted(TABLES.items())),
        *((f"`{name}`", "arrays", schema.holds) for name, schema in PACKS.items()),
        _ENCODER,
        _SBOM,
    ]
    return _grid(("name", "kind", "holds"), rows)


def _columns(table: Table) -> list[str]:
    rows = [
        (f"`{one.name}`", f"{one.type}{' or null' if one.nullable else ''}", table.columns[one.name])
        for one in table.schema
    ]
    return _grid(("column", "type", "holds"), rows)


def _arrays(schema: PackSchema) -> list[str]:
    rows = [
        (f"`{name}`", array.dtype, " x ".join(map(str, array.shape)), _values(array), array.holds)
        for name, array in schema.arrays.items()
    ]
    checks = [line for check in schema.checks for line in ("", f"Besides, {check.holds}.")]
    return [*_grid(("array", "type", "dimensions", "values", "holds"), rows), *checks]


def _values(array: Array) -> str:
    """What a reader checks of the values."""
    bounds = [f"from 0 to {array.into}, ascending" * bool(array.into), "ascending" * array.rising]
    if array.below != "":
        bounds.append(f"{array.least or 0} to less than {array.below}")
    elif array.least is not None:
        bounds.append(f"{array.least} at least")
    presence = "absent from older snapshots" * array.optional
    return "; ".join(filter(None, [*bounds, presence]))


def _sections(declared: Mapping[str, T], table: Callable[[T], list[str]]) -> list[str]:
    lines: list[str] = []
    for name, one in declared.items():
        lines += [f"**`{name}`**", "", *table(one), ""]
    return lines[:-1]


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
