"""Measure what reading documents of each format costs and yields, as a table by format.

    python -m benchmarks.formats FOLDER... [--include GLOB...] [--quick N] [--ocr LANGUAGES] [--json]

Every file of a known format below the folders is read as in a build: in the scan process, one file after
another, within the limits of the settings. --quick reads at most N files of each format, at even intervals of their
sorted list; with 20, most folders take a minute. Times are CPU seconds of one core, which a busy machine does not
change, and include the programs that a format calls. The time of a format's first file includes importing its library.
Memory is the peak of the scan process over the format's files.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benchmarks.machine import argument_parser, describe_machine
from schemas.corpus import CorpusSettings, FileExtractSettings
from tasks.stages.ingest import scan_process, shard_plan, spill, supervisor
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.ingest.source_files import SourceFile, find

_FRESH = 200.0  # MiB of a process that has read nothing large; a larger process is replaced before the next file


@dataclass
class FormatResults:
    """The results of a format's files. refused: rejected rows by reason. pages: the sum over documents with pages."""

    kind: str
    extractor: str
    files: int = 0
    documents: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    characters: int = 0
    megabytes: float = 0.0
    seconds: float = 0.0  # CPU seconds
    mebibytes: float = 0.0  # peak memory
    slowest: tuple[float, str] = (0.0, "")  # seconds, file


def files_below(folders: Sequence[str], settings: CorpusSettings) -> list[SourceFile]:
    """Return the files below the folders, by format and path."""
    files: dict[str, SourceFile] = {}
    for folder in folders:
        for file in find(settings.model_copy(update={"paths": (folder,)}), allow_none=True).files:
            files.setdefault(file.path, file)
    return sorted(files.values(), key=lambda file: (file.kind, file.path))


def chosen(files: Iterable[SourceFile], most: int) -> list[SourceFile]:
    """Return at most ``most`` files of each format, at even intervals of its list; all files if ``most`` is 0."""
    by_kind: dict[str, list[SourceFile]] = {}
    for file in files:
        by_kind.setdefault(file.kind, []).append(file)
    if not most:
        return [file for group in by_kind.values() for file in group]
    return [
        group[at * len(group) // min(most, len(group))]
        for group in by_kind.values()
        for at in range(min(most, len(group)))
    ]


def measure(files: Iterable[SourceFile], settings: CorpusSettings) -> list[FormatResults]:
    """Read each file separately; return the results by format."""
    by_kind: dict[str, FormatResults] = {}
    for file in files:
        measured = by_kind.setdefault(file.kind, FormatResults(file.kind, _extractor(file.kind)))
        with tempfile.TemporaryDirectory(prefix="indexmill-formats-") as temporary:
            result, seconds, mebibytes = _scanned(file, settings, Path(temporary))
            planned = shard_plan.plan([result], temporary)
            for shard in planned.shards:
                table = shard_plan.documents_of(shard, temporary)
                for text, metadata in zip(table["text"].to_pylist(), table["metadata"].to_pylist(), strict=True):
                    pages = json.loads(metadata).get("pages")
                    measured.pages += pages if isinstance(pages, int) else 0
                    measured.characters += len(text)
        measured.files += 1
        measured.documents += result.documents
        measured.refused.update(result.refused)
        measured.megabytes += file.size / 1e6
        measured.seconds += seconds
        measured.mebibytes = max(measured.mebibytes, mebibytes)
        measured.slowest = max(measured.slowest, (seconds, file.name))
    return [by_kind[kind] for kind in sorted(by_kind)]


def _scanned(file: SourceFile, settings: CorpusSettings, folder: Path) -> tuple[spill.ScanResult, float, float]:
    """Scan a file; return the result, its CPU seconds, and the peak memory of its process in MiB."""
    process = scan_process.take()
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # reset the peak
    before = _processor_seconds(process.pid)
    scan_process.give_back(process)
    began = time.perf_counter()
    result = supervisor.scan([file], settings, folder)
    wall = time.perf_counter() - began
    after, peak = _processor_seconds(process.pid), _peak(process.pid)
    if peak > _FRESH:
        scan_process.close()
    return result, after - before if after > before else wall, peak  # a dead process reports no CPU time


def _processor_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _peak(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _extractor(kind: str) -> str:
    """Return the names and versions of the libraries that read a format."""
    file_format = format_of(kind)
    if file_format is None:
        return "-"
    libraries = []
    for library in file_format.libraries:
        try:
            libraries.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            libraries.append(f"{library} (not installed)")
    return f"{', '.join(libraries) or 'own'}; {file_format.module} {file_format.version}"


def report(measurements: Iterable[FormatResults]) -> Iterator[str]:
    heads = ["format", "files", "documents", "refused", "pages", "pages/s", "files/s", "MB/s", "characters"]
    heads += ["peak, MiB", "slowest, s", "extractor"]
    yield f"| {' | '.join(heads)} |"
    yield "|" + " --- |" * len(heads)
    for measured in measurements:
        refused = ", ".join(f"{count} {reason}" for reason, count in sorted(measured.refused.items())) or "-"
        seconds = max(measured.seconds, 1e-9)
        pages = [f"{measured.pages:,}", f"{measured.pages / seconds:.1f}"] if measured.pages else ["-", "-"]
        rates = [f"{measured.files / seconds:.1f}", f"{measured.megabytes / seconds:.2f}"]
        cells = [
            measured.kind,
            f"{measured.files:,}",
            f"{measured.documents:,}",
            refused,
            *pages,
            *rates,
            f"{measured.characters:,}",
        ]
        cells += [f"{measured.mebibytes:.0f}", f"{measured.slowest[0]:.1f}", measured.extractor]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--include", nargs="+", default=[], metavar="GLOB", help="as corpus.include; code needs it")
    parser.add_argument("--quick", type=int, default=0, metavar="N", help="read at most N files of a format")
    parser.add_argument("--ocr", default="", help="languages for scanned pages, such as eng+deu")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    settings = CorpusSettings(
        paths=tuple(arguments.folders), include=tuple(arguments.include), extract=FileExtractSettings(ocr=arguments.ocr)
    )
    files = chosen(files_below(arguments.folders, settings), arguments.quick)
    measurements = measure(files, settings)
    scan_process.close()
    if arguments.json:
        print(
            json.dumps(
                {"machine": describe_machine(), "formats": [asdict(measured) for measured in measurements]}, indent=2
            )
        )
        return
    print(describe_machine())
    print(f"\n{len(files):,} files, one core\n")
    print("\n".join(report(measurements)))


if __name__ == "__main__":
    sys.exit(main())
