"""From settings to a place. The module of a kind is imported when it is opened: each needs libraries of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from schemas.places import PlaceSettings
from tasks.stages.ingest.places.place import FilePlace, RecordPlace

_FILES = {"bucket": "bucket", "git": "git", "plugin": "plugin", "web": "web"}
_RECORDS = {"feed": "feed", "sql": "sql", "table": "table"}

RECORD_KINDS = frozenset(_RECORDS)
"""The kinds of places that hold records; the others hold files."""


def open_file_place(settings: PlaceSettings, scratch: Path) -> FilePlace:
    """The place of files with these settings; raises PlaceError, ConfigurationError, or what names a missing extra.

    scratch: a folder of the run, which the processes of this machine share. A place may keep there what it fetched
    while it listed, for those that read.
    """
    module = import_module(f"tasks.stages.ingest.places.{_FILES[settings.kind]}")
    return cast("FilePlace", module.open_place(settings, scratch))


def open_record_place(settings: PlaceSettings, scratch: Path) -> RecordPlace:
    """The place of records with these settings; raises as `open_file_place` does."""
    module = import_module(f"tasks.stages.ingest.places.{_RECORDS[settings.kind]}")
    return cast("RecordPlace", module.open_place(settings, scratch))
