"""Lists all files of a corpus: local files, and files of other sources.

A record source, such as a database, is listed as one file of the kind `RECORDS`. Nothing is read here, except web
pages, which must be requested to detect changes.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from indexmill.errors import BadInput
from indexmill.models.secrets import redacted
from indexmill.store.canonical import digest_of
from indexmill.text.printable import escaped, is_utf8, utf8_name
from schemas.corpus import CorpusSettings
from schemas.sources import SourceSettings, is_url, name_of_source
from tasks.stages.ingest.globs import is_chosen
from tasks.stages.ingest.lake_folders import (
    LakeFormat,
    LakeTable,
    exclusion_of,
    note_table,
    partition_columns,
    refuse_tables,
    table_of,
)
from tasks.stages.ingest.source_files import (
    MISNAMED,
    RECORDS,
    TEXT_KINDS,
    PassedOver,
    SourceFile,
    SourceFiles,
    as_it_is_now,
    asked_for,
    check_formats,
    find,
    kind_of,
    modified_text,
    refuse_same_id,
    source_of,
    with_distinct_names,
)
from tasks.stages.ingest.sources.source_interface import FileEntry
from tasks.stages.ingest.sources.source_kinds import RECORD_KINDS, open_record_source


def source_key(settings: SourceSettings) -> str:
    """Return a source's key: a digest of the settings, except passwords and formats, that determine its rows."""
    moves = {"url", "paths", "formats"} if getattr(settings, "name", "") else {"formats"}
    shaping = settings.model_dump_json(by_alias=True, exclude=moves)
    return f"{settings.kind}-{digest_of(redacted(shaping).encode())[:16]}"


def list_corpus(
    settings: CorpusSettings,
    scratch: Path,
    *,
    tokens: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    allow_none: bool = False,
    doing: Callable[[str], None] = lambda what: None,
) -> SourceFiles:
    """Return the files of a corpus, sorted by name.

    tokens: the previous version's tokens, by source key and path. scratch: a folder for data that a source must fetch
    to list its files. doing: called with a description of each slow step. Raises what `source_files.find` raises, and
    SourceError for a source that cannot be listed.
    """
    here = tuple(path for path in settings.paths if not is_url(path))
    places = settings.places
    _refuse_twice(places)
    check_formats(settings.formats)
    files: list[SourceFile] = []
    empty: list[str] = []
    warnings: list[str] = []
    passed_over: list[PassedOver] = []
    if here:
        local = find(settings.model_copy(update={"paths": here}), allow_none=allow_none or bool(places))
        files += local.files
        empty += local.empty
        passed_over += local.passed_over
    for place in places:
        key = source_key(place)
        if place.kind in RECORD_KINDS:
            files.append(_records(place, key, scratch))
            continue
        scratch.mkdir(parents=True, exist_ok=True)
        doing(f"listing {name_of_source(place)}")
        listing = _listed(place, key, scratch, settings, tokens.get(key, {}))
        files += listing.files
        empty += listing.empty
        warnings += listing.warnings
        passed_over += listing.passed_over
    if not files and not allow_none:
        seen = SourceFiles((), (), (), tuple(passed_over)).summary
        where = ", ".join(empty)
        raise BadInput(f"no corpus file found in {where}; check `include` and `exclude`. {seen}".rstrip(". "))
    refuse_same_id(files)
    files = with_distinct_names(files, _full_name)
    files = with_distinct_names(files, _unique_name)  # two queries of a database, or two branches of a repository
    files.sort(key=lambda file: (file.name, file.source, file.path))
    passed_over.sort(key=lambda file: (file.name, file.source, file.path))
    return SourceFiles(tuple(files), tuple(empty), tuple(warnings), tuple(passed_over))


def list_again(files: Sequence[SourceFile], settings: CorpusSettings, scratch: Path) -> SourceFiles:
    """List some files of a listing again, without files that no longer exist.

    The result's `empty` contains the paths and sources that now have no files. Raises what `list_corpus` raises. A web
    source is not listed again, since that would request all of its pages: its files stay as they are.
    """
    current: list[SourceFile] = []
    empty: list[str] = []
    local = [as_it_is_now(file, settings) for file in files if file.place is None]
    current += [file for file in local if file is not None]
    if None in local:  # the listing detects a missing folder
        here = tuple(path for path in settings.paths if not is_url(path))
        empty += find(settings.model_copy(update={"paths": here}), allow_none=True).empty
    for place in settings.places:
        key = source_key(place)
        mine = {file.path: file for file in files if file.source == key and file.place is not None}
        if not mine or place.kind == "web":
            current += mine.values()
            continue
        listing = _listed(place, key, scratch, settings, {path: file.token for path, file in mine.items()})
        current += [replace(file, name=mine[file.path].name) for file in listing.files if file.path in mine]
        empty += listing.empty
    return SourceFiles(tuple(current), tuple(empty))


def _refuse_twice(places: Sequence[SourceSettings]) -> None:
    times = Counter(map(source_key, places))
    for place in places:
        if times[source_key(place)] > 1:
            raise BadInput(
                f"{name_of_source(place)} occurs twice in the corpus: remove one, or, for databases and change feeds, "
                "give each a different `name`"
            )


def _listed(
    place: SourceSettings, key: str, scratch: Path, settings: CorpusSettings, tokens: Mapping[str, str]
) -> SourceFiles:
    opened = source_of(place, str(scratch))
    files: list[SourceFile] = []
    passed_over: list[PassedOver] = []
    seen: set[str] = set()
    tables: dict[str, LakeFormat] = {}
    include, exclude = getattr(place, "include", ()), getattr(place, "exclude", ())
    for entry in opened.list(tokens):
        if note_table(entry.name, tables) == "hudi":  # a hidden file, listed only to note the table
            continue
        globs = ((settings.include, settings.exclude), (include, exclude))
        chosen = all(is_chosen(entry.name, *pair) for pair in globs)
        file = _source_file(entry, place, key, scratch, settings) if chosen else "excluded"
        if isinstance(file, str):
            name = unicodedata.normalize("NFC", f"{getattr(place, 'prefix', '')}{entry.name}")
            passed_over.append(PassedOver(entry.name, escaped(name), file, utf8_name(name), entry.size or 0, key))
            continue
        if entry.name in seen:
            raise BadInput(f"{name_of_source(place)} lists {escaped(entry.name)!r} twice")
        seen.add(entry.name)
        files.append(file)
    records = (file for file in files if tables and file.kind not in TEXT_KINDS)
    within = {table for file in records if (table := table_of(file.path, tables)) is not None}
    refuse_tables(_lake_table(place, folder, tables[folder]) for folder in within)
    empty = () if files else (name_of_source(place),)
    return SourceFiles(tuple(files), empty, tuple(opened.warnings), tuple(passed_over))


def _lake_table(place: SourceSettings, folder: str, table_format: LakeFormat) -> LakeTable:
    name = name_of_source(place)
    remedy = exclusion_of(folder) if folder else f"remove {name} from the corpus"
    return LakeTable(f"{name.rstrip('/')}/{folder}".rstrip("/"), table_format, remedy, can_open=place.kind == "bucket")


def _source_file(
    entry: FileEntry, place: SourceSettings, key: str, scratch: Path, settings: CorpusSettings
) -> SourceFile | str:
    """Return the corpus file for an entry of a listing, or the reason why it is passed over."""
    formats = getattr(place, "formats", {})
    kind = kind_of(entry.name, formats)
    if kind is None:
        return "suffix"
    if not asked_for(entry.name, (*settings.include, *getattr(place, "include", ()), *formats)):
        return "not-included"
    name = unicodedata.normalize("NFC", f"{getattr(place, 'prefix', '')}{entry.name}")
    file = SourceFile(
        entry.name, escaped(name), MISNAMED, token=MISNAMED, source=key, place=place, scratch=str(scratch)
    )
    if not is_utf8(name):
        return file
    return replace(
        file,
        kind=kind[0],
        document_name=name,
        compression=kind[1],
        size=entry.size or 0,
        token=entry.token,
        charset=entry.charset,
        details=dict(_details(entry, name, settings)) if kind[0] in TEXT_KINDS else partition_columns(name),
    )


def _details(entry: FileEntry, name: str, settings: CorpusSettings) -> Iterator[tuple[str, Any]]:
    requested = settings.file_metadata
    if "path" in requested:
        yield "path", name
    if "modified" in requested and entry.modified is not None:
        yield "modified", modified_text(entry.modified)
    yield from ((key, entry.details[key]) for key in ("owner", "groups") if key in requested and key in entry.details)


def _records(place: SourceSettings, key: str, scratch: Path) -> SourceFile:
    scratch.mkdir(parents=True, exist_ok=True)
    token = open_record_source(place, scratch).token()
    name = name_of_source(place)
    return SourceFile(name, name, RECORDS, token=token, source=key, place=place, scratch=str(scratch))


def _full_name(file: SourceFile) -> str:
    """Return a file's path, preceded by its source's name; the name alone for record sources and local files."""
    if file.place is None or file.kind == RECORDS:
        return file.name
    return f"{name_of_source(file.place).rstrip('/')}/{utf8_name(file.path)}"


def _unique_name(file: SourceFile) -> str:
    """Return the name of a file, with the key of its source or a digest of its path."""
    key = file.source if file.place else digest_of(file.path.encode("utf-8", "surrogateescape"))[:16]
    return f"{file.name} ({key})"
