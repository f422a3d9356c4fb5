"""Opens sources from their settings. A kind's module needs libraries of its own, so it is imported only when used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from schemas.sources import SourceSettings
from tasks.stages.ingest.sources.source_interface import FileSource, RecordSource

_FILES = {
    "bucket": "bucket_objects.BucketSource",
    "git": "git.GitSource",
    "plugin": "plugin.PluginSource",
    "web": "web.WebSource",
}
_RECORDS = {"feed": "feed.FeedSource", "sql": "sql.SqlSource", "table": "lake_table.table_source"}

RECORD_KINDS = frozenset(_RECORDS)
"""The kinds of record sources; the others are file sources."""


def open_file_source(settings: SourceSettings, scratch: Path) -> FileSource:
    """Open a file source. Raises SourceError, ConfigurationError, or an error that names a missing extra.

    scratch: a folder of the run, shared by the processes of this machine. A source may store there what it fetched
    while listing files, for the processes that read them.
    """
    return cast("FileSource", _opened(_FILES[settings.kind], settings, scratch))


def open_record_source(settings: SourceSettings, scratch: Path) -> RecordSource:
    """Open a record source. Raises as `open_file_source` does."""
    return cast("RecordSource", _opened(_RECORDS[settings.kind], settings, scratch))


def _opened(name: str, settings: SourceSettings, scratch: Path) -> object:
    module, _, opener = name.partition(".")
    return getattr(import_module(f"tasks.stages.ingest.sources.{module}"), opener)(settings, scratch)
