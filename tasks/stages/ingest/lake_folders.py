"""The folders of data lakes: tables, whose files must not be read as files, and partitions, whose names hold columns.

A folder of a Delta, Iceberg or Hudi table keeps the files of deleted and replaced rows; only the table's log or
metadata says which rows count. Read as plain files, deleted rows would be published.

Partition folders such as `lang=en` are read as pyarrow's hive partitioning reads them, except that values stay strings:
pyarrow infers their type from all files, so that a new file would change the rows of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import yaml

from indexmill.errors import BadInput
from indexmill.text.printable import utf8_name

LakeFormat = Literal["delta", "iceberg", "hudi"]

_DELTA, _ICEBERG, _HUDI = "_delta_log", "metadata", ".hoodie"
_METADATA = re.compile(r"v?\d[\w-]*(\.gz)?\.metadata\.json(\.gz)?")
_TITLES: Mapping[LakeFormat, str] = {"delta": "a Delta", "iceberg": "an Iceberg", "hudi": "a Hudi"}
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SHOWN = 20


@dataclass(frozen=True, order=True)
class LakeTable:
    """A table among the files of a corpus.

    folder: its path or URL. remedy: how to leave out its files, as an imperative. can_open: whether a library can open
    the folder, unlike that of a git repository.
    """

    folder: str
    format: LakeFormat
    remedy: str
    can_open: bool = True

    def __str__(self) -> str:
        folder = utf8_name(self.folder)
        advice = "such tables cannot be read, so write its rows to a folder of Parquet files"
        if self.format != "hudi":
            url = folder if self.can_open else "FOLDER_OR_BUCKET_URL"
            entry = _yaml({"kind": "table", "format": self.format, "url": url})
            advice = f"to read the table, add {entry} to corpus.sources"
        what = f"{folder} is {_TITLES[self.format]} table, whose files also hold deleted and replaced rows"
        return f"{what}: {advice}, and {self.remedy} so that its files are not read"


def format_at(folder: str) -> LakeFormat | None:
    """Return the format of the table in a local folder; None if the folder is not a table's."""
    path = Path(folder)
    if (path / _DELTA).is_dir():
        return "delta"
    try:
        if any(map(_METADATA.fullmatch, os.listdir(path / _ICEBERG))):  # noqa: PTH208 - the names alone
            return "iceberg"
    except OSError:  # there is no such folder
        pass
    return "hudi" if (path / _HUDI).is_dir() else None


def table_above(path: str, tables: dict[str, tuple[str, LakeFormat] | None]) -> tuple[str, LakeFormat] | None:
    """Return the nearest table folder above a local file's absolute path, and its format; None if there is none.

    tables: the results so far, by folder, which this extends.
    """
    inspected = []
    folder = os.path.dirname(path)  # noqa: PTH120 - a Path for each of a million files is slow
    while folder not in tables:
        inspected.append(folder)
        table_format, parent = format_at(folder), os.path.dirname(folder)  # noqa: PTH120
        if table_format is not None or parent == folder:
            tables[folder] = None if table_format is None else (folder, table_format)
        else:
            folder = parent
    tables.update(dict.fromkeys(inspected, tables[folder]))
    return tables[folder]


def note_table(name: str, formats: dict[str, LakeFormat]) -> LakeFormat | None:
    """Add the table to whose log or metadata a listed file belongs, if any, and return its format. Folders have no /.

    A folder with the logs of several formats, as UniForm and XTable write them, counts as Delta, else as Iceberg.
    """
    parts = name.split("/")
    for number, part in enumerate(parts[:-1]):
        table_format: LakeFormat | None = "delta" if part == _DELTA else "hudi" if part == _HUDI else None
        if part == _ICEBERG and number == len(parts) - 2 and _METADATA.fullmatch(parts[-1]):
            table_format = "iceberg"
        if table_format is not None:
            folder = "/".join(parts[:number])
            formats[folder] = min(table_format, formats.get(folder, table_format), key=list(_TITLES).index)
            return table_format
    return None


def table_of(name: str, formats: Mapping[str, LakeFormat]) -> str | None:
    """Return the innermost of some table folders that contains a listed file; None if none does."""
    while name:
        name = name.rpartition("/")[0]
        if name in formats:
            return name
    return None


def exclusion_of(folder: str) -> str:
    """Return how to exclude a table's folder, below the corpus folder, as an imperative."""
    return f"add {_yaml([re.sub(r'[*?[]', '?', utf8_name(folder)) + '/**'])} to corpus.exclude"


def refuse_tables(tables: Iterable[LakeTable]) -> None:
    """Raise BadInput if there is a table; the message has the entry of `corpus.sources` to write instead."""
    lines = [str(table) for table in sorted(set(tables))]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"and {len(lines) - _SHOWN:,} more"]
    if lines:
        raise BadInput(lines[0] if len(lines) == 1 else "\n  ".join(["folders of the corpus are tables", *lines]))


def _yaml(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n")


def partition_columns(name: str) -> dict[str, str | None]:
    """Return the columns in the names of a file's folders. name: the path below the corpus folder.

    Keys and values are URL-decoded; `__HIVE_DEFAULT_PARTITION__` is null; of folders with one key, the first counts.
    """
    columns: dict[str, str | None] = {}
    for folder in name.split("/")[:-1] if "=" in name else ():
        key, equals, value = folder.partition("=")
        if key and equals:
            decoded = _decoded(value)
            columns.setdefault(_decoded(key), None if decoded == _NULL else decoded)
    return columns


def _decoded(text: str) -> str:
    """Decode URL escapes, unless they stand for bytes that no text can contain."""
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
    return text if "\x00" in decoded else decoded
