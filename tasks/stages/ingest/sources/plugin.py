"""A user's class that lists and reads files, for sources without a connector.

    class Wiki:
        def __init__(self, *, space: str) -> None: ...          # the options, as keyword arguments
        def list(self) -> Iterable[FileEntry]: ...              # name, size, token; see `source_interface.FileEntry`
        def read(self, name: str) -> bytes | BinaryIO: ...      # OSError: this file cannot be read

An entry is a `FileEntry`, another object with these attributes, or a mapping with these keys. `read` gets names in NFC.
If `list` has a parameter `known`, it gets the previous version's tokens (the `tokens` of `FileSource.list`); if `read`
has a parameter `token`, it gets the entry's token. Any other error of the class ends the build with a message that
names the class: an incomplete listing would look like the deletion of documents.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import math
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from indexmill.errors import IndexmillError
from indexmill.store.canonical import canonical_json
from schemas.sources import PluginSettings
from tasks.stages.ingest.sources.file_names import is_plain, shown, shown_error
from tasks.stages.ingest.sources.source_interface import FileEntry, SourceError
from tasks.stages.ingest.sources.temporary import filled

_FIELDS = ("name", "size", "token", "modified", "details", "charset")
_CHUNK = 1 << 20


class PluginSource:
    """A user's class as a file source."""

    def __init__(self, settings: PluginSettings, scratch: Path) -> None:
        """Raises SourceError if the class cannot be imported or instantiated. scratch: not used."""
        self._class = settings.named
        plugin_class = _imported(settings.named)
        try:
            self._place = plugin_class(**settings.options)
        except Exception as error:
            named = ", ".join(sorted(settings.options)) or "none"
            raise SourceError(
                f"the plug-in {self._class} cannot be instantiated: {shown_error(error)}. Its options are keyword "
                f"arguments ({named}); its signature is {_signature(plugin_class) or 'unknown'}"
            ) from error
        lacking = [name for name in ("list", "read") if not callable(getattr(self._place, name, None))]
        if lacking:
            raise SourceError(
                f"the plug-in {self._class} has no method {' and no method '.join(lacking)}: it needs list(self), "
                "which yields entries, and read(self, name), which returns bytes or an open binary file"
            )
        self._takes_known = _takes(self._place.list, "known")
        self._takes_token = _takes(self._place.read, "token")
        self.warnings: list[str] = []

    def list(self, tokens: Mapping[str, str]) -> Iterable[FileEntry]:
        """List every file, sorted by name. Raises SourceError for an invalid entry."""
        self.warnings = []
        entries: dict[str, FileEntry] = {}
        try:
            listed = self._place.list(known=dict(tokens)) if self._takes_known else self._place.list()
            for number, item in enumerate(listed, 1):
                entry = self._entry(item, number)
                if entry.name in entries:
                    raise SourceError(
                        f"the plug-in {self._class} lists {shown(entry.name)} twice: names must be unique"
                    )
                entries[entry.name] = entry
        except (SourceError, IndexmillError):
            raise
        except Exception as error:
            raise SourceError(f"the plug-in {self._class} failed while it was listing: {shown_error(error)}") from error
        warnings = getattr(self._place, "warnings", [])
        self.warnings += [str(warning) for warning in warnings] if isinstance(warnings, (list, tuple)) else []
        return [entries[name] for name in sorted(entries)]

    def read(self, name: str, token: str) -> BinaryIO:
        """Read a file, and copy it to an unlinked temporary file unless the class returns a real file."""
        try:
            content = self._place.read(name, token=token) if self._takes_token else self._place.read(name)
            return _file(content, f"the plug-in {self._class}", name)
        except (OSError, SourceError, IndexmillError):
            raise
        except Exception as error:
            message = f"the plug-in {self._class} failed to read {shown(name)}: {shown_error(error)}"
            raise SourceError(message) from error

    def _entry(self, item: object, number: int) -> FileEntry:
        where = f"entry {number} of the plug-in {self._class}"
        if isinstance(item, Mapping):
            if odd := sorted(str(key) for key in item if key not in _FIELDS):
                raise SourceError(f"{where} has unknown keys ({', '.join(odd)}); allowed keys: {', '.join(_FIELDS)}")
            values = dict(item)
        elif hasattr(item, "name"):
            values = {key: getattr(item, key) for key in _FIELDS if hasattr(item, key)}
        else:
            raise SourceError(f"{where} is {_kind(item)}: expected an object or mapping with name, size and token")
        name, size, token = values.get("name"), values.get("size"), values.get("token")
        modified, details = values.get("modified"), values.get("details")
        if not isinstance(name, str):
            raise SourceError(f"{where} has the name {_kind(name)}: expected a string")
        if not is_plain(name):
            raise SourceError(
                f"{where} has the name {shown(name)}: expected a path below the source, with / between its parts and "
                "without empty parts, `.`, `..` and control characters"
            )
        where = f"the plug-in {self._class} lists {shown(name)} with"
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise SourceError(f"{where} the size {_kind(size)}: expected a number of bytes, or None")
        if token is not None and not isinstance(token, str):
            raise SourceError(f"{where} the token {_kind(token)}: expected a string that changes with the bytes, or ''")
        if modified is not None and (
            isinstance(modified, bool) or not isinstance(modified, int | float) or not math.isfinite(modified)
        ):
            raise SourceError(f"{where} the time {_kind(modified)}: expected seconds since 1970, or None")
        charset = values.get("charset") or ""
        if not isinstance(charset, str):
            raise SourceError(f"{where} the charset {_kind(charset)}: expected the name of an encoding, or ''")
        details = _details(details or {}, f"{where} details")
        return FileEntry(unicodedata.normalize("NFC", name), size, token or "", modified, details, charset)


def _details(details: object, where: str) -> dict[str, Any]:
    if not isinstance(details, Mapping) or not all(isinstance(key, str) for key in details):
        raise SourceError(f"{where} that are {_kind(details)}: expected a mapping with string keys")
    try:
        canonical_json(dict(details))
    except (TypeError, ValueError) as error:
        raise SourceError(f"{where} that JSON cannot represent: {shown_error(error)}") from error
    return dict(details)


def _imported(named: str) -> Callable[..., Any]:
    """Import the class `module:Class`."""
    module, _, path = named.partition(":")
    try:
        target: Any = importlib.import_module(module)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0])
        advice = (
            "install its package into this environment, or add its folder to PYTHONPATH"
            if absent
            else "the module exists, but fails when it is imported"
        )
        raise SourceError(f"the plug-in {named} cannot be imported: {shown_error(error)}; {advice}") from error
    for part in path.split("."):
        classes = [name for name, member in vars(target).items() if inspect.isclass(member)]
        public = sorted(name for name in classes if not name.startswith("_"))
        target = getattr(target, part, None)
        if target is None:
            seen = f"; its classes are {', '.join(public[:10])}" if public else ""
            raise SourceError(f"the plug-in {named} cannot be found: {module} has no {part}{seen}")
    if not callable(target):
        raise SourceError(f"the plug-in {named} is {_kind(target)}: expected a class")
    return cast("Callable[..., Any]", target)


def _file(content: object, who: str, name: str) -> BinaryIO:
    """Convert a plug-in's result to a real file, positioned at its start."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        content = io.BytesIO(content)
    if not hasattr(content, "read") or isinstance(content, io.TextIOBase):
        close = getattr(content, "close", None)
        if close is not None:
            close()
        raise SourceError(
            f"{who} read {shown(name)} as {_kind(content)}: expected bytes, or a file opened in binary mode"
        )
    source = cast("BinaryIO", content)
    if _is_real(source):
        return source

    def fill(copy: io.BufferedRandom) -> None:
        while chunk := source.read(_CHUNK):
            if not isinstance(chunk, bytes):
                raise SourceError(f"{who} read {shown(name)} from a file that returns {_kind(chunk)}: expected bytes")
            copy.write(chunk)

    with contextlib.closing(source):
        return filled(fill)


def _is_real(file: BinaryIO) -> bool:
    """Return whether a file is a real file, and rewind it. A GzipFile is not, as its descriptor is the .gz file's."""
    if not isinstance(file, io.BufferedReader) or not isinstance(file.raw, io.FileIO):
        return False
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.seek(0) == 0
    except (OSError, ValueError):
        return False


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _takes(method: Callable[..., Any], name: str) -> bool:
    signature = _signature(method)
    return signature is not None and name in signature.parameters


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} ({shown(str(value))})"
