"""Open a source from its settings. The module of a kind is imported on opening: each needs its own libraries."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from schemas.places import PlaceSettings
from tasks.stages.ingest.places.place import FilePlace, RecordPlace

_FILES = {"bucket": "bucket", "git": "git", "plugin": "plugin", "web": "web"}
_RECORDS = {"feed": "feed", "sql": "sql", "table": "table"}

RECORD_KINDS = frozenset(_RECORDS)
"""The kinds of record sources; the others are file sources."""


def open_file_place(settings: PlaceSettings, scratch: Path) -> FilePlace:
    """Open a file source; raises PlaceError, ConfigurationError, or an error that names a missing extra.

    scratch: a folder of the run, which the processes of this machine share. A source may store there what it fetched
    while it listed, for the processes that read.
    """
    module = import_module(f"tasks.stages.ingest.places.{_FILES[settings.kind]}")
    return cast("FilePlace", module.open_place(settings, scratch))


def open_record_place(settings: PlaceSettings, scratch: Path) -> RecordPlace:
    """Open a record source; raises as `open_file_place` does."""
    module = import_module(f"tasks.stages.ingest.places.{_RECORDS[settings.kind]}")
    return cast("RecordPlace", module.open_place(settings, scratch))
