"""The local files of a corpus: paths, folders and globs expanded to a sorted list of readable files.

The list does not depend on the order of the paths. Below a folder, hidden files and folders and indexmill's own stores
are skipped; links to folders are not followed, so that a walk ends. Whether a file belongs to the corpus is checked
again when it is opened: a link out of the corpus, or a pipe, may have replaced it since it was listed.
"""

from __future__ import annotations

import datetime
import glob
import grp
import hashlib
import io
import math
import os
import pwd
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import TypeAdapter

from indexmill.errors import BadInput, IndexmillError, UnsupportedFormat
from indexmill.extras import install
from indexmill.retrieve.retrieval_method import did_you_mean
from indexmill.store.folder_files import check_store
from indexmill.store.layout import STORE_FILE
from indexmill.store.regular_files import NotRegular, open_checked
from indexmill.text.counted import counted
from indexmill.text.printable import is_utf8, utf8_name
from schemas.corpus import CorpusSettings
from schemas.sources import SourceSettings, name_of_source
from tasks.stages.ingest.formats.format_registry import FORMATS
from tasks.stages.ingest.globs import is_chosen
from tasks.stages.ingest.lake_folders import (
    LakeFormat,
    LakeTable,
    exclusion_of,
    partition_columns,
    refuse_tables,
    table_above,
)
from tasks.stages.ingest.sources.file_names import why_hidden
from tasks.stages.ingest.sources.source_interface import FileSource
from tasks.stages.ingest.sources.source_kinds import open_file_source

Kind = str
"""The name of a format in `SUFFIXES` or `formats.format_registry`."""
Compression = Literal["gzip", "zstd"]

LOCAL = "files"
"""The source key of local files."""

RECORDS: Kind = "records"
"""The kind of a record source, which is read as a whole."""

MISNAMED: Kind = "misnamed"
"""The kind of a file whose name is not UTF-8, whatever its format: it is rejected unread until it is renamed."""

_SETTLED = 2.0
"""The age in seconds after which a file's times show any later change, however coarse the file system's clock is."""

SUFFIXES: dict[str, Kind] = {
    ".jsonl": "json-lines",
    ".ndjson": "json-lines",
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "mdx",
    **{suffix: format_.kind for format_ in FORMATS if format_.is_installed for suffix in format_.suffixes},
}
"""The formats by file name; JSON and CSV may also end in .gz or .zst."""

NOT_INSTALLED: dict[str, str] = {
    suffix: install(format_.extra) for format_ in FORMATS if not format_.is_installed for suffix in format_.suffixes
}
"""The suffixes of formats that need an extra that is not installed, and the command that installs it."""

TEXT_KINDS: frozenset[Kind] = frozenset({"text", "markdown", "mdx", *(format_.kind for format_ in FORMATS)})
"""The formats in which each file is one document."""

_NAMED_ONLY = frozenset(suffix for format_ in FORMATS if not format_.by_default for suffix in format_.suffixes)
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
_COMPRESSIBLE: frozenset[Kind] = frozenset({"json", "json-lines", "csv", "tsv"})
_BLOBS = "blobs"
_QUICK_BYTES = 64 << 20
_QUICK_FILES = 10_000
_BATCH_BYTES, _BATCH_FILES = 64 << 20, 2_000  # the maximum number of bytes and of files in a batch
_SWELLS = 6  # approximate expansion of compressed records
_MAGIC = re.compile(r"[*?\[]")
_SUFFIXES_SHOWN = 5

PASSED_OVER: dict[str, str] = {
    "excluded": "corpus.include or corpus.exclude leaves it out",
    "hidden": "a part of its path begins with a dot; a hidden folder is not searched",
    "link": "a link to a folder, which is not followed",
    "left-behind": "the lock file or the backup of an editor",
    "old-format": "a Word file of 1997 to 2003: convert it, such as by `soffice --convert-to docx`",
    "not-included": "formats such as source code are read only if corpus.include names the suffix",
    "store": "a store of indexes, which is not searched",
    "suffix": "no reader takes the suffix; see corpus.formats",
}
"""The reasons why a file of the corpus' folders is not read."""

_NO_DOCUMENTS = frozenset(
    """.png .jpg .jpeg .gif .svg .webp .ico .bmp .tif .tiff .avif .heic .mp3 .mp4 .m4a .mov .ogg .wav .webm .woff .woff2
    .ttf .otf .eot .css .map .zip .gz .tgz .lock .sum""".split()  # noqa: SIM905
)
"""The suffixes of files that are beside documents in many folders, and are none."""
NO_READER = frozenset({"suffix", "not-included"})
"""The reasons of files that no reader takes, rather than a rule or setting leaves out."""


def _installs(suffixes: Iterable[str]) -> str:
    return "".join(f"; to read {suffix}: {NOT_INSTALLED[suffix]}" for suffix in suffixes if suffix in NOT_INSTALLED)


_SUFFIX_ADVICE = (
    f"Known are {' '.join(suffix for suffix in SUFFIXES if suffix not in _NAMED_ONLY)}, JSON or CSV with .gz or .zst, "
    "and source code where corpus.include names its suffix; corpus.formats gives a format to other suffixes"
    + _installs(NOT_INSTALLED)
)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the corpus."""

    path: str  # as in the file system; for the kind MISNAMED, with lone surrogates
    name: str  # for display: the path below the corpus folder, or the whole path if that is ambiguous
    kind: Kind
    document_name: str = ""  # the path below the corpus folder, POSIX and NFC: the id of a text file's document
    compression: Compression | None = None
    size: int = 0  # bytes
    within: tuple[str, ...] = ()  # real paths, one of which must contain the file; empty: the file may be anywhere
    token: str = ""  # changes whenever the bytes do; empty: only reading shows a change
    source: str = LOCAL  # the key of the file's source
    place: SourceSettings | None = None  # the file's source; None for a local file
    charset: str = ""  # the encoding that the source states
    fetched: str = ""  # the path of a local copy of a remote file
    scratch: str = ""  # a folder for the source's temporary files
    cursor: Any = None  # for a record source: the position where the previous version stopped reading
    details: Mapping[str, Any] = field(default_factory=dict)  # of a text file, `corpus.file_metadata`; else partitions


class NoCorpusFile(OSError):
    """A path with the name of a corpus file is not a corpus file. reason: a key of `documents.REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)  # the arguments for unpickling
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A file that is not read, or a folder that is not searched. reason: a key of PASSED_OVER."""

    path: str  # as in the file system or the source; that of a folder ends in a slash
    name: str  # for display, as `SourceFile.name`
    reason: str
    document_name: str = ""  # the document id that the file would have as a text
    size: int = 0  # bytes; 0 for a folder
    source: str = LOCAL

    @property
    def suffix(self) -> str:
        """See `suffix_of`."""
        return suffix_of(self.name)


def suffix_of(name: str) -> str:
    """Return a file's suffix in lower case, with that of a compression; empty if there is none."""
    stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    return os.path.splitext(stem)[1] + suffix if suffix in _COMPRESSIONS else suffix  # noqa: PTH122


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files under the paths of a corpus."""

    files: tuple[SourceFile, ...]  # sorted by name
    empty: tuple[str, ...]  # paths, as configured, without a corpus file
    warnings: tuple[str, ...] = ()  # about files that sources left out
    passed_over: tuple[PassedOver, ...] = ()  # sorted by name

    @property
    def files_passed_over(self) -> int:
        """The number of files that no reader takes; files that a setting or a rule leaves out do not count."""
        return sum(file.reason in NO_READER for file in self.passed_over)

    @property
    def files_unread(self) -> int:
        """The number of files that may be documents, but whose suffix no reader takes.

        Pictures, fonts and the like do not count, nor does code, which must be asked for.
        """
        return sum(file.reason == "suffix" and file.suffix not in _NO_DOCUMENTS for file in self.passed_over)

    @property
    def summary(self) -> str:
        """One line about the files that no reader takes; empty if there are none."""
        not_taken = [file for file in self.passed_over if file.reason in NO_READER]
        if not not_taken:
            return ""
        counts = Counter(utf8_name(file.suffix) or "without a suffix" for file in not_taken)
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        parts = [f"{count:,} {suffix}" for suffix, count in most[:_SUFFIXES_SHOWN]]
        if others := sum(count for _, count in most[_SUFFIXES_SHOWN:]):
            parts.append(f"{others:,} others")
        example = min(file.name for file in not_taken if (utf8_name(file.suffix) or "without a suffix") == most[0][0])
        return (
            f"{counted(self.files_passed_over, 'file is', 'files are')} not read, since no reader takes the suffix: "
            f"{', '.join(parts)}, such as {example}. Convert them, give them a format in corpus.formats, name the "
            "suffixes of source code in corpus.include, or leave them out with corpus.exclude"
            + _installs(suffix for suffix, _ in most)
        )


def find(settings: CorpusSettings, *, allow_none: bool = False) -> SourceFiles:
    """Return the corpus files, and the paths without corpus files.

    Raises BadInput for a missing path, a folder that cannot be listed, a path to a file of unknown format, an unknown
    name in `corpus.formats`, and, unless `allow_none`, a corpus without a file: each would otherwise look like the
    deletion of documents. Also raises BadInput for files of records in a table's folder (`lake_folders`), for two text
    files with the same document id, and for a path that is not UTF-8; a file below a path gets the kind MISNAMED if its
    name is not UTF-8.
    """
    check_formats(settings.formats)
    named = [_absolute(path) for path in settings.paths]
    for path in named:
        if not is_utf8(path):
            raise BadInput(f"the corpus path {utf8_name(path)} is not UTF-8: rename the file or folder")
    within = () if settings.follow_links else tuple(sorted({os.path.realpath(_root(path)) for path in named}))
    by_path: dict[str, SourceFile] = {}
    tables_above: dict[str, tuple[str, LakeFormat] | None] = {}
    tables: set[LakeTable] = set()
    passed_over: dict[str, PassedOver] = {}
    empty: list[str] = []
    for pattern in settings.paths:
        holds_some = False
        for path, root, why_not in _candidates(pattern, settings):
            file = None if why_not else _source_file(path, root, () if path in named else within, settings)
            if file is not None and path not in named:
                why_not = "" if asked_for(path, (*settings.include, pattern, *settings.formats)) else "not-included"
            if file is None or why_not:
                if path not in passed_over:
                    passed_over[path] = _passed_over(path, root, why_not or "suffix")
                continue
            holds_some = True
            if file.kind not in TEXT_KINDS and (table := table_above(path, tables_above)):
                is_below = len(table[0]) > len(root)  # both contain the file
                remedy = exclusion_of(_below(table[0], root)) if is_below else f"remove {pattern} from corpus.paths"
                tables.add(LakeTable(*table, remedy))
            earlier = by_path.get(file.path)
            # A file reached from two roots is named from the outer root, whichever comes first.
            if earlier is None or (len(file.name), file.name) > (len(earlier.name), earlier.name):
                by_path[file.path] = file
        if not holds_some:
            empty.append(pattern)
    refuse_tables(tables)
    if not by_path and not allow_none:
        others = [path for path, file in passed_over.items() if file.reason in NO_READER]
        seen = f"; {len(others)} other files are there, such as {utf8_name(min(others))}" if others else ""
        raise BadInput(
            f"no corpus file found in {', '.join(settings.paths)}{seen}. {_SUFFIX_ADVICE}; "
            "check `include` and `exclude`"
        )
    refuse_same_id(by_path.values())
    files = with_distinct_names(by_path.values(), lambda file: utf8_name(file.path))
    files.sort(key=lambda file: (file.name, file.path))
    not_read = [file for path, file in passed_over.items() if path not in by_path]
    not_read.sort(key=lambda file: (file.name, file.path))
    return SourceFiles(tuple(files), tuple(empty), passed_over=tuple(not_read))


def _passed_over(path: str, root: str, reason: str) -> PassedOver:
    size = 0
    if not path.endswith(os.sep):
        with suppress(OSError):  # a broken link
            size = os.stat(path).st_size  # noqa: PTH116 - a Path for each of a million files is slow
    below = _below(path, root)
    return PassedOver(path, utf8_name(below), reason, unicodedata.normalize("NFC", utf8_name(below)), size)


def with_distinct_names(files: Collection[SourceFile], name_of: Callable[[SourceFile], str]) -> list[SourceFile]:
    """Return the files; if several have the same name, `name_of` renames each of them."""
    times = Counter(file.name for file in files)
    return [replace(file, name=name_of(file)) if times[file.name] > 1 else file for file in files]


def open_source(file: SourceFile) -> io.BufferedReader:
    """Open a file for reading. Raises OSError; NoCorpusFile for a link out of the corpus, or a path that is not a file.

    The opened file is checked, not the listed path, and opening cannot block. A remote file must have been fetched.
    """
    path, flags = file.fetched if file.place else file.path, 0
    if file.within:
        path, flags = os.path.realpath(path), os.O_NOFOLLOW
        if not any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in file.within):
            raise NoCorpusFile(
                "link-outside",
                f"it leads to {utf8_name(path)}, outside the corpus: add that to corpus.paths, or set follow_links",
            )
    try:
        return open_checked(path, flags)
    except NotRegular as error:
        raise NoCorpusFile("not-a-file", str(error)) from error


@lru_cache(maxsize=16)
def _source_of(settings: str, scratch: str) -> FileSource:
    return open_file_source(TypeAdapter(SourceSettings).validate_json(settings), Path(scratch))


def as_it_is_now(file: SourceFile, settings: CorpusSettings) -> SourceFile | None:
    """Inspect a local file again; None if it no longer exists. A file that cannot be accessed counts as existing."""
    inspected = (
        {}
        if file.kind == MISNAMED
        else _inspected(file.path, file.within, file.document_name, file.kind, settings.file_metadata)
    )
    return replace(file, **inspected) if os.path.lexists(file.path) else None


def source_of(settings: SourceSettings, scratch: str) -> FileSource:
    """Return the file source with these settings; each process opens it once."""
    return _source_of(settings.model_dump_json(by_alias=True), scratch)


def batches(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    """Yield the files in order, in groups for one task each; small files share a group."""
    group: list[SourceFile] = []
    size = 0
    for file in files:
        if file.kind == RECORDS:  # a separate group, since its rows are in order
            yield (file,)
            continue
        if group and (size + file.size > _BATCH_BYTES or len(group) >= _BATCH_FILES):
            yield tuple(group)
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield tuple(group)


def bytes_to_read(file: SourceFile) -> float:
    """Return the approximate number of bytes of a file after decompression; infinite where only reading shows it."""
    if file.kind == RECORDS or (file.place and not file.size):
        return math.inf
    return file.size * (_SWELLS if file.compression else 1)


def is_quick(files: Iterable[SourceFile]) -> bool:
    """Return whether one process can read all files in a few seconds; remote files, HTML etc. take longer."""
    slow = {format_.kind for format_ in FORMATS}
    sizes = [math.inf if file.place or file.kind in slow else bytes_to_read(file) for file in files]
    return sum(sizes) <= _QUICK_BYTES and len(sizes) <= _QUICK_FILES


def digest_of_files(files: Sequence[SourceFile]) -> str | None:
    """Return the SHA-256 of the files' names and bytes; None if a file cannot be read, or reading them all is too slow.

    A changed digest shows only that something may have changed; `spill.scan` determines the documents.
    """
    if not is_quick(files):
        return None
    hashed = hashlib.sha256()
    try:
        for file in files:
            try:
                with open_source(file) as stream:
                    of_file = hashlib.file_digest(stream, "sha256").digest()
            except NoCorpusFile as none:
                of_file = hashlib.sha256(none.reason.encode()).digest()
            hashed.update(hashlib.sha256(os.fsencode(file.name)).digest() + of_file)
    except OSError:
        return None
    return hashed.hexdigest()


def check_formats(formats: Mapping[str, Kind]) -> None:
    """Raise BadInput for an unknown format in `corpus.formats`."""
    kinds = sorted(set(SUFFIXES.values()))
    for suffix, kind in formats.items():
        if kind not in kinds:
            hint = did_you_mean([kind], kinds)
            raise BadInput(
                f"corpus.formats: {suffix} has the unknown format {kind!r}{hint}; known are {', '.join(kinds)}"
            )


def kind_of(name: str, formats: Mapping[str, Kind] = MappingProxyType({})) -> tuple[Kind, Compression | None] | None:
    """Return the format and compression that a file's name states; None for an unknown format.

    formats: further formats by suffix, see `corpus.formats`.
    """
    stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122 - a name, not a path
    compression = _COMPRESSIONS.get(suffix)
    if compression is not None:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    kind = formats.get(suffix) or SUFFIXES.get(suffix)
    if kind is None or (compression is not None and kind not in _COMPRESSIBLE):
        return None
    return kind, compression


def _candidates(pattern: str, settings: CorpusSettings) -> Iterator[tuple[str, str, str]]:
    """Yield the files of a configured path, including files of unknown formats, and folders that are not searched.

    Each with its corpus folder, and the reason why it is not read: a key of PASSED_OVER, or ''.
    """
    path = _absolute(pattern)
    if Path(path).is_dir():
        yield from _walk(path, path, settings)
    elif Path(path).exists():
        if not Path(path).is_file():
            raise BadInput(f"{pattern} is neither a file nor a folder")
        if kind_of(path, settings.formats) is None:
            raise BadInput(f"{pattern} has an unknown format. {_SUFFIX_ADVICE}")
        yield path, str(Path(path).parent), ""
    elif _MAGIC.search(pattern):
        root = _root(path)
        stores: dict[str, bool] = {}
        for match in sorted(glob.glob(path, recursive=True)):  # noqa: PTH207 - absolute, and hidden names stay out
            if Path(match).is_dir():
                if "**" not in path:  # the walk of the folder lists these files
                    yield from _walk(match, root, settings)
            elif not _in_store(match, root, stores):
                yield match, root, _why_not(match, _below(match, root), root, settings)
    else:
        raise BadInput(f"corpus path {pattern} does not exist")


def _absolute(path: str) -> str:
    return str(Path(os.path.abspath(Path(path).expanduser())))  # noqa: PTH100 - resolve() would follow links


def _root(path: str) -> str:
    """Return an absolute path's corpus folder: the path itself if it exists; for a glob, the part before wildcards."""
    if Path(path).exists():
        return path
    return str(Path(*takewhile(lambda part: not _MAGIC.search(part), Path(path).parts[:-1])))


def _why_not(path: str, name: str, root: str, settings: CorpusSettings) -> str:
    chosen = is_chosen(_below(path, root), settings.include, settings.exclude)
    return why_hidden(name) or ("" if chosen else "excluded")


def _walk(folder: str, root: str, settings: CorpusSettings) -> Iterator[tuple[str, str, str]]:
    def refuse(error: OSError) -> None:
        raise BadInput(f"cannot list the corpus folder {error.filename}: {error.strerror}") from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        if STORE_FILE in files and _is_store(Path(parent)):
            folders.clear()
            if parent != root:
                yield parent + os.sep, root, "store"
            continue
        for name in sorted(folders):
            if why := why_hidden(f"{name}/"):
                yield os.path.join(parent, name, ""), root, why  # noqa: PTH118
        folders[:] = sorted(name for name in folders if not why_hidden(f"{name}/"))
        for name in folders:
            if os.path.islink(os.path.join(parent, name)):  # noqa: PTH114, PTH118
                yield os.path.join(parent, name, ""), root, "link"  # noqa: PTH118
        for name in sorted(files):
            path = os.path.join(parent, name)  # noqa: PTH118 - a Path for each of a million files is slow
            yield path, root, _why_not(path, name, root, settings)


def _in_store(path: str, root: str, in_store: dict[str, bool]) -> bool:
    """Return whether a file is in a store at or below `root`; `in_store` caches the results by folder."""
    parent = str(Path(path).parent)
    if parent not in in_store:
        within = parent != root and len(parent) > len(root) and _in_store(parent, root, in_store)
        in_store[parent] = within or _is_store(Path(parent))
    return in_store[parent]


def _is_store(folder: Path) -> bool:
    """Return whether a folder is a store of indexes, even a new one without blobs."""
    path = folder / STORE_FILE
    if not path.is_file():
        return False
    if (folder / _BLOBS).is_dir():
        return True
    try:
        check_store(folder)
    except UnsupportedFormat:
        return True
    except IndexmillError:
        return False
    return True


def refuse_same_id(files: Iterable[SourceFile]) -> None:
    """Raise BadInput if two text files have the same document id: the path below their corpus folders."""
    first_by_id: dict[str, SourceFile] = {}
    for file in sorted(files, key=lambda file: (file.path, file.source)):
        if file.kind not in TEXT_KINDS:
            continue
        first = first_by_id.setdefault(file.document_name, file)
        if (first.path, first.source) != (file.path, file.source):
            raise BadInput(
                f"{_in_full(first)} and {_in_full(file)} would both be the document "
                f"{utf8_name(file.document_name)!r}: a text file's id is its path below the corpus folder. Give one "
                "folder that contains both (and select files with include), rename one of them, or give an entry of "
                "corpus.sources a prefix"
            )


def _in_full(file: SourceFile) -> str:
    place = f" of {name_of_source(file.place)}" if file.place else ""
    return f"{utf8_name(file.path)}{place}"


def _source_file(path: str, root: str, within: tuple[str, ...], settings: CorpusSettings) -> SourceFile | None:
    kind = kind_of(path, settings.formats)
    if kind is None:
        return None
    below = _below(path, root)
    if not is_utf8(path):
        return SourceFile(path, utf8_name(below), MISNAMED, within=within, token=MISNAMED)
    name = unicodedata.normalize("NFC", below)
    inspected = _inspected(path, within, name, kind[0], settings.file_metadata)
    return SourceFile(path, utf8_name(below), kind[0], name, kind[1], within=within, **inspected)


def _inspected(path: str, within: tuple[str, ...], name: str, kind: Kind, requested: Collection[str]) -> dict[str, Any]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of a million files is slow
    except OSError:  # a broken link or a folder without permission: the reader reports it
        return {"size": 0, "token": "", "details": {}}
    link = _leads_to(path, within) if os.path.islink(path) else ""  # noqa: PTH114
    details: dict[str, Any] = (
        {key: _DETAILS[key](name, status) for key in requested if key in _DETAILS}
        if kind in TEXT_KINDS
        else partition_columns(name)
    )
    return {"size": status.st_size, "token": _token(status, link), "details": details}


def _leads_to(path: str, within: tuple[str, ...]) -> str:
    """Return the suffix for a link's token: the digest of its target, which decides whether the link is read."""
    return "-" + hashlib.sha256(b"\0".join(map(os.fsencode, (os.path.realpath(path), *within)))).hexdigest()[:16]


def _token(status: os.stat_result, link: str = "") -> str:
    """Return a file's version token; empty if it changed so recently that its times may not show another change."""
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - changed < _SETTLED * 1e9:
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}{link}"


def modified_text(seconds: float) -> str:
    """Return seconds since 1970 as an ISO 8601 time, to the second."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).isoformat().replace("+00:00", "Z")


@cache
def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@cache
def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


_DETAILS: dict[str, Callable[[str, os.stat_result], Any]] = {
    "path": lambda name, status: name,
    "modified": lambda name, status: modified_text(status.st_mtime),
    "owner": lambda name, status: _user(status.st_uid),
    "groups": lambda name, status: [_group(status.st_gid)],
}
"""The metadata of a local file that `corpus.file_metadata` may request, from its name and state."""


def _below(path: str, root: str) -> str:
    start = root.rstrip(os.sep) + os.sep
    return path[len(start) :] if path.startswith(start) else Path(path).relative_to(root).as_posix()


def asked_for(path: str, patterns: Iterable[str]) -> bool:
    """Return True unless a file's format, such as code, is read only if a pattern ends in its suffix, and none does."""
    suffix = os.path.splitext(path.lower())[1]  # noqa: PTH122 - a name, not a path
    return suffix not in _NAMED_ONLY or any(pattern.lower().endswith(suffix) for pattern in patterns)
