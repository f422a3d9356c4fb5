"""The rows in a snapshot of a Delta table (read by delta-rs) or of an Iceberg table (read by PyIceberg).

Both libraries have the Apache licence and need no JVM. delta-rs streams rows from DataFusion, and applies deletion
vectors and column mappings. PyIceberg reads a table from its metadata file, without a catalog, and applies deletes. By
default it loads all rows of all data files into memory. Here it reads the files one by one, so that memory grows only
with the largest file.

The token is the table's id and version, so that an unchanged table is not read again. A changed table is read
completely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs

from indexmill.extras import not_installed
from indexmill.models.secrets import redacted
from schemas.sources import TableSettings
from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.formats.record_batches import records_of
from tasks.stages.ingest.sources.source_interface import Deleted, RecordSource, SourceError, Until

_ROWS = 64
"""The maximum number of rows in a batch; each row may be a long document."""
_URL = re.compile(r"[A-Za-z][\w+.-]*://")
_METADATA = re.compile(r"(?:v(?P<hadoop>\d+)|(?P<other>\d+)-[\w-]+)(?:\.gz)?\.metadata\.json$")


def table_source(settings: TableSettings, scratch: Path) -> RecordSource:
    """Open a table. scratch: not used. Raises ModelUnavailable if a package is missing."""
    return _Delta(settings) if settings.format == "delta" else _Iceberg(settings)


class _Table:
    """The common part of both formats. The snapshot is opened once, for both the token and the rows."""

    def __init__(self, settings: TableSettings) -> None:
        self._settings = settings
        self._location = _location(settings.url)
        self._shown = redacted(settings.url)
        self._opened: Any = None

    def rows(self, cursor: Any) -> Iterator[SourceRow | RejectedRow | Deleted | Until]:
        """Yield all rows of the snapshot, whatever the cursor. Raises SourceError."""
        number = 0
        try:
            for batch in self._batches(self._snapshot()):
                for start in range(0, batch.num_rows, _ROWS):
                    for record in records_of(batch.slice(start, _ROWS)):
                        number += 1
                        yield SourceRow(number, record)
        except (MemoryError, GeneratorExit, SourceError):
            raise
        except Exception as error:  # the libraries raise errors of many classes for a damaged table
            self._raise(error, f"failed after {number:,} rows", "these rows are not used; build again")
        yield Until(None, whole=True)

    def _snapshot(self) -> Any:
        if self._opened is None:
            try:
                self._opened = self._open()
            except (MemoryError, SourceError):
                raise
            except Exception as error:
                version = "" if self._settings.version is None else f" with version {self._settings.version}"
                advice = "give the table's folder (for Iceberg, or its .metadata.json) and a version that still exists"
                self._raise(error, f"is not a readable {self._settings.format.title()} table{version}", advice)
        return self._opened

    def _open(self) -> Any:
        raise NotImplementedError

    def _batches(self, opened: Any) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def _raise(self, error: Exception, what: str, advice: str) -> NoReturn:
        lines = redacted(str(error)).strip().splitlines()
        message = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
        raise SourceError(f"{self._shown} {what}: {message}; {advice}") from error


class _Delta(_Table):
    def token(self) -> str:
        opened = self._snapshot()
        return f"{opened.metadata().id} {opened.version()}"

    def _open(self) -> Any:
        try:
            import deltalake
        except ImportError as error:
            raise not_installed("reading a Delta table", "deltalake", error) from error
        return deltalake.DeltaTable(self._location, version=self._settings.version)

    def _batches(self, opened: Any) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        options = {"datafusion.execution.batch_size": str(_ROWS), "datafusion.execution.target_partitions": "1"}
        reader = QueryBuilder(options).register("rows", opened).execute("SELECT * FROM rows")
        yield from pa.RecordBatchReader.from_stream(reader)


class _Iceberg(_Table):
    def token(self) -> str:
        """Return the table's id and snapshot and, if no version is configured, the schema, which may change alone."""
        table, snapshot = self._snapshot()
        schema = table.schema().schema_id if self._settings.version is None else ""
        return f"{table.metadata.table_uuid} {snapshot} {schema}"

    def _open(self) -> Any:
        try:
            from pyiceberg.table import StaticTable
        except ImportError as error:
            raise not_installed("reading an Iceberg table", "pyiceberg", error) from error
        table = StaticTable.from_metadata(self._metadata_file())
        version = self._settings.version
        if version is not None and table.snapshot_by_id(version) is None:
            snapshots = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-5:]) or "none"
            what = f"no snapshot {version}; its last snapshots are {snapshots}"
            raise SourceError(f"{self._shown} has {what}: correct the version")
        newest = table.current_snapshot()
        return table, version if version is not None else newest and newest.snapshot_id

    def _metadata_file(self) -> str:
        """Return the configured metadata file, or the newest metadata file in the configured folder."""
        if self._location.endswith(".metadata.json"):
            return self._location
        files, folder = pyarrow.fs.FileSystem.from_uri(self._location)
        folder = f"{folder.rstrip('/')}/metadata"
        listed = files.get_file_info(pyarrow.fs.FileSelector(folder))
        hint = next((file for file in listed if file.base_name == "version-hint.text"), None)
        if hint is not None:
            return self._location  # PyIceberg reads the hint there
        by_version: dict[int, list[str]] = {}
        for file in listed:
            if named := _METADATA.fullmatch(file.base_name):
                by_version.setdefault(int(named["hadoop"] or named["other"]), []).append(file.base_name)
        newest = by_version[max(by_version)] if by_version else []
        if len(newest) != 1:
            what = f"several newest metadata files, {' and '.join(sorted(newest))}" if newest else "no metadata file"
            raise SourceError(f"{self._shown} has {what}: give the file that the catalog names as url")
        return f"{self._location.rstrip('/')}/metadata/{newest[0]}"

    def _batches(self, opened: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io.pyarrow import ArrowScan

        table, snapshot = opened
        if snapshot is None:
            return
        scan = table.scan(snapshot_id=self._settings.version)  # None means the newest, with the newest schema
        for task in sorted(scan.plan_files(), key=lambda task: str(task.file.file_path)):
            reading = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
            yield from reading.to_record_batches([task])


def _location(url: str) -> str:
    """Return a URL unchanged, and a local path as an absolute path."""
    if _URL.match(url):
        return url
    return str(Path(url).expanduser().absolute())
