"""Open a source from its settings. The module of a kind is imported on opening: each needs its own libraries."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from schemas.sources import SourceSettings
from tasks.stages.ingest.sources.source_interface import FileSource, RecordSource

_FILES = {"bucket": "bucket_objects", "git": "git", "plugin": "plugin", "web": "web"}
_RECORDS = {"feed": "feed", "sql": "sql", "table": "lake_table"}

RECORD_KINDS = frozenset(_RECORDS)
"""The kinds of record sources; the others are file sources."""


def open_file_source(settings: SourceSettings, scratch: Path) -> FileSource:
    """Open a file source; raises SourceError, ConfigurationError, or an error that names a missing extra.

    scratch: a folder of the run, which the processes of this machine share. A source may store there what it fetched
    while it listed, for the processes that read.
    """
    module = import_module(f"tasks.stages.ingest.sources.{_FILES[settings.kind]}")
    return cast("FileSource", module.open_source(settings, scratch))


def open_record_source(settings: SourceSettings, scratch: Path) -> RecordSource:
    """Open a record source; raises as `open_file_source` does."""
    module = import_module(f"tasks.stages.ingest.sources.{_RECORDS[settings.kind]}")
    return cast("RecordSource", module.open_source(settings, scratch))
