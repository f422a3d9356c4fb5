"""Generate hostile files and texts: each must become documents or be quarantined, and none may stop the others.

    python -m benchmarks.hostile [--files 200] [--seed 0] [--build] [--keep FOLDER]

Writes files of all formats, each an attack of a size that the seed draws: nesting, aliases, long lines, quotes, broken
archives, bombs of moderate size, odd names, links and pipes. Every file is scanned by itself, all are planned together,
and each document goes through splitting, markup, sentences and names. Prints the results of each kind, with its slowest
and its largest file. --files 2000 takes some ten minutes. --build indexes all files with the real command at the end.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import io
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

from benchmarks.machine import argument_parser, describe_machine
from indexmill.models.embedder import HashEmbedder
from indexmill.models.recogniser import open_recogniser
from indexmill.text.printable import one_line
from schemas.config import SplitSettings
from schemas.corpus import CorpusSettings
from tasks.stages.ingest import scan_process, shard_plan, spill, supervisor
from tasks.stages.ingest.sources import TEXT_KINDS, SourceFile, find
from tasks.stages.recognise.rules import recognise
from tasks.stages.split.split import split

Draw = random.Random

TEXTS: dict[str, Callable[[int], str]] = {
    "spaces": lambda n: " " * n + "x",
    "trailing spaces": lambda n: ("word" + " " * 200 + "\n") * (n // 200),
    "one long line": lambda n: "word " * n,
    "one long word": lambda n: "w" * n,
    "base64": lambda n: base64.b64encode(bytes(n)).decode(),
    "double quotes": lambda n: '"' * n,
    "single quotes": lambda n: "'a " * n,
    "open brackets": lambda n: "[" * n,
    "links that do not end": lambda n: "[a](" * n,
    "links in links": lambda n: "[" * (n // 4) + "a" + "](b)" * (n // 4),
    "images that do not end": lambda n: "![" * n,
    "references": lambda n: "".join(f"[a{i}]: b{i}\n" for i in range(n // 12)) + "[a0]" * (n // 12),
    "stars": lambda n: "*a_ " * n,
    "open stars": lambda n: "**a " * n,
    "backticks": lambda n: " ".join("`" * i for i in range(1, int((2 * n) ** 0.5))),
    "fences": lambda n: "```\n~~~\n" * n,
    "quoted quotes": lambda n: ">" * min(n, 2000) + " a",
    "lists in lists": lambda n: "".join("  " * i + "- a\n" for i in range(min(n, 300))),
    "pipes": lambda n: "|" * n + "\n" + "|-" * n,
    "a wide table": lambda n: "|a" * (n // 8) + "|\n" + "|-" * (n // 8) + "|\n" + "|b" * (n // 8) + "|\n",
    "hashes": lambda n: "#" * n + " a " + "#" * n,
    "a heading of spaces": lambda n: "# a" + " " * n + "b",
    "headings": lambda n: "# a\n" * n,
    "underlines": lambda n: "a\n=\n" * n,
    "angle brackets": lambda n: "<" * n,
    "tags that do not end": lambda n: "<a " * n,
    "tags in tags": lambda n: "<b>" * n + "a",
    "comments that do not end": lambda n: "<!--" * n,
    "entities": lambda n: "&amp;&#0;&#x110000;&" * (n // 8),
    "addresses": lambda n: "http://a." * n,
    "combining marks": lambda n: "a" + "\u0301" * n,
    "joiners": lambda n: "\u200d\U0001f468" * n,
    "direction marks": lambda n: "\u202e\u2066a\u2069" * (n // 4),
    "control characters": lambda n: "".join(map(chr, range(1, 32))) * (n // 31),
    "carriage returns": lambda n: "a\r" * n,
    "form feeds": lambda n: "a\x0c\x85\u2028" * (n // 4),
    "byte order marks": lambda n: "\ufeff" * n + "a",
    "nothing but full stops": lambda n: "." * n,
    "initials": lambda n: "A. " * n,
    "abbreviations": lambda n: "Dr. " * n,
    "capitals": lambda n: "Aa Bb of " * n,
    "names with dashes": lambda n: "Aa-" * n,
    "identifiers": lambda n: "a_b.C::" * n,
    "numbers": lambda n: "1,234.5e6 " * n,
    "Chinese": lambda n: "\u4e00\u4e8c" * n,
    "full-width": lambda n: "\uff21\uff22\u3002" * n,
    "brackets in brackets": lambda n: "(" * n + "a" + ")" * n,
    "ligatures that swell": lambda n: "\ufdfa" * n,
}
"""Texts of about so many characters, or a few times as many."""

FRONT_MATTER: dict[str, Callable[[int], str]] = {
    "nesting": lambda n: "a: " + "[" * n,
    "mappings in mappings": lambda n: "a: " + "{a: " * n,
    "indented mappings": lambda n: "".join(" " * i + "a:\n" for i in range(min(n, 1500))),
    "aliases": lambda n: "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
    "an alias of itself": lambda n: "a: &a [*a]",
    "merges": lambda n: (
        "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 30))
    ),
    "keys": lambda n: "".join(f"k{i}: 1\n" for i in range(n // 6)),
    "one key again and again": lambda n: "a: 1\n" * (n // 5),
    "a long key": lambda n: "k" * n + ": 1",
    "a key that is a list": lambda n: "? [a, b]\n: 1",
    "huge numbers": lambda n: f"a: {'9' * n}\nb: 1e{'9' * 20}\nc: .inf\nd: .nan\ne: 0x{'f' * n}",
    "times": lambda n: "a: 9999-99-99\nb: 0000-00-00\nc: 2001-12-14t21:59:43.10-99:99\nd: 1:" + ":59" * n,
    "tags": lambda n: "a: !!python/object/apply:os.system [true]\nb: !!binary '****'\nc: !<x> y",
    "quotes": lambda n: 'a: "' + '\\"' * n,
    "colons": lambda n: ": " * n,
    "dashes": lambda n: "- " * n,
    "percent": lambda n: "%" * n + "\n%YAML 9.9\n",
    "spaces": lambda n: "a:" + " " * n + "b",
    "another document": lambda n: "a: 1\n...\n" * (n // 9),
    "tabs": lambda n: "\t" * n + "a: 1",
}

VALUES: dict[str, Callable[[int], str]] = {
    "nesting": lambda n: "[" * n,
    "nesting that ends": lambda n: "[" * n + "]" * n,
    "objects in objects": lambda n: '{"a":' * n + "1" + "}" * n,
    "huge numbers": lambda n: "9" * n,
    "huge exponents": lambda n: "1e" + "9" * min(n, 300),
    "not a number": lambda n: "NaN",
    "infinity": lambda n: "-Infinity",
    "surrogates": lambda n: '"' + "\\ud800" * n + '"',
    "escaped NULs": lambda n: '"' + "\\u0000" * n + '"',
    "backslashes": lambda n: '"' + "\\\\" * n + '"',
    "a text that does not end": lambda n: '"' + "a" * n,
    "a wide list": lambda n: "[" + "1," * n + "1]",
    "a wide object": lambda n: "{" + "".join(f'"{i}":1,' for i in range(n // 8)) + '"a":1}',
    "keys again": lambda n: "{" + '"a":1,' * (n // 8) + '"a":1}',
    "true": lambda n: "true",
}
"""JSON values, whole or broken: used as text, as metadata, and as a whole line."""

IDS = (
    "\u202egnp",
    "a\nb",
    "a\tb",
    "\u0301",
    "../../etc/passwd",
    "a" * 1024,
    "a" * 1025,
    " ",
    "\x1b[31m",
    "id\x7f",
    "\\",
    "%00",
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A file: its content, and its rows if they can be counted."""

    suffix: str
    content: bytes
    rows: int | None = 1


def _text(suffix: str, draw: Draw, size: int) -> Hostile:
    name = draw.choice(sorted(TEXTS))
    text = TEXTS[name](size)
    if suffix == ".html":
        text = draw.choice(
            ["{}", "<html><body><p>{}</p></body></html>", "<article>{}", "<p>" * min(size, 3000) + "{}"]
        ).replace("{}", text)
    return Hostile(suffix, text.encode("utf-8", "surrogatepass"))


def _front_matter(draw: Draw, size: int) -> Hostile:
    front = FRONT_MATTER[draw.choice(sorted(FRONT_MATTER))](size)
    return Hostile(".md", f"---\n{front}\n---\n# Title\n\nA text.\n".encode())


def _bytes(draw: Draw, size: int) -> Hostile:
    """Return bytes that are not text."""
    content = draw.choice(
        [
            draw.randbytes(size),
            b"\xff\xfe" + "text".encode("utf-16-le") * size,
            b"\xef\xbb\xbf" * size,
            bytes(size),
            b"a\x00b" * size,
            b"\xc0\x80" * size,
            b"\xed\xa0\x80" * size,
            b"text \xf0\x9f",
            b"",
            b"\n" * size,
        ]
    )
    return Hostile(draw.choice([".txt", ".md", ".html"]), content)


def _lines(draw: Draw, size: int) -> Hostile:
    lines = []
    for number in range(draw.randrange(1, 12)):
        value = VALUES[draw.choice(sorted(VALUES))](size)
        identity = json.dumps(f"{draw.random()} {draw.choice(IDS)}"[: draw.choice([2000, 30])])
        text = json.dumps(TEXTS[draw.choice(sorted(TEXTS))](size // 4))
        lines.append(
            draw.choice(
                [
                    value.replace("\n", " "),
                    f'{{"id": {identity}, "text": {value}}}',
                    f'{{"id": {value}, "text": "A text."}}',
                    f'{{"id": {identity}, "text": {text}, "more": {value}}}',
                    f'{{"id": {identity}, "text": {text}, "title": {text}}}',
                    f'{{"id": {number}, "text": "A text of seed {draw.randrange(3)}."}}',
                ]
            )
        )
    return Hostile(
        draw.choice([".jsonl", ".ndjson"]), ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"), len(lines)
    )


def _json(draw: Draw, size: int) -> Hostile:
    rows = _lines(draw, size).content.decode("utf-8", "surrogatepass").splitlines()
    content = draw.choice(
        ["[" + ",".join(rows) + "]", "[" * size, "[" + ",".join(rows), "{" + rows[0], "[]", "{}", "[1,]" * size]
    )
    return Hostile(".json", content.encode("utf-8", "surrogatepass"), None)


def _csv(draw: Draw, size: int) -> Hostile:
    wide = ",".join(f"c{i}" for i in range(min(size, 3000)))
    content = draw.choice(
        [
            "id,text\n" + 'a,"' + "b" * size,
            "id,text\n" + '"' * size,
            "id,text\n" + "a,b\n" * (size // 4),
            "id,text,text\n1,2,3\n",
            f"id,text,{wide}\n1,2{',' * min(size, 3000)}\n",
            "," * size,
            "id,text\n" + "a," * size,
            'id,text\n1,"a\n' + '""\n' * size,
            "\ufeffid,text\r\n1,a\r\n2,\x00\r\n",
            "id;text\n1;2\n",
            "id,text\n" + f"{draw.choice(IDS)!r},{TEXTS[draw.choice(sorted(TEXTS))](size // 4)}\n",
            "id,text\r" * size,
        ]
    )
    return Hostile(".csv", content.encode("utf-8", "surrogatepass"), None)


def _parquet(draw: Draw, size: int) -> Hostile:
    deep: object = 1
    for _ in range(draw.randrange(1, 40)):
        deep = [deep]
    text = TEXTS[draw.choice(sorted(TEXTS))](size // 4)
    tables = [
        {"id": ["a", None, ""], "text": [text, "b", None]},
        {"id": [1.5, float("nan"), float("inf")], "text": [text] * 3},
        {"id": ["a"], "text": ["b"], "deep": [deep]},
        {"id": [b"\xff\x00"], "text": [b"\xff"]},
        {"id": ["a"], **{f"c{i}": [i] for i in range(min(size, 1500))}, "text": ["b"]},
        {"id": list(range(size // 8)), "text": ["b"] * (size // 8)},
        {"id": pa.array([2**62], pa.timestamp("ns")), "text": ["b"]},
        {"id": ["a"], "text": ["b"], "when": pa.array([2**50], pa.timestamp("s"))},
        {"id": [], "text": []},
        {"ids": ["a"], "texts": ["b"]},
    ]
    table = pa.table(draw.choice(tables))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=draw.choice(["none", "zstd", "snappy"]))
    content = bytearray(sink.getvalue())
    rows: int | None = table.num_rows
    if draw.random() < 0.5:
        rows = None
        for _ in range(draw.randrange(1, 9)):
            content[draw.randrange(len(content))] = draw.randrange(256)
    if draw.random() < 0.2:
        rows, content = None, content[: draw.randrange(len(content))]
    return Hostile(".parquet", bytes(content), rows if {"id", "text"} <= set(table.column_names) else None)


def _packed(draw: Draw, size: int) -> Hostile:
    suffix = draw.choice([".jsonl", ".json", ".csv"])
    line = b'{"id": 1, "text": "a"}\n'
    plain = draw.choice(
        [
            line * size,
            b"[" * (size * 500),
            b" " * (size * 500),
            line + b'{"id": 2, "text": "' + b"a" * size * 300,
            b"",
            bytes(size * 500),
        ]
    )
    packed = gzip.compress(plain, 1, mtime=0) if (gzipped := draw.random() < 0.5) else zstandard.compress(plain)
    packed = draw.choice(
        [
            packed,
            packed,
            packed * 2,
            packed[: len(packed) // 2],
            packed + b"more",
            b"x" + packed,
            plain[:9999],
            packed[:-4],
        ]
    )
    return Hostile(suffix + (".gz" if gzipped else ".zst"), packed, None)


KINDS: dict[str, Callable[[Draw, int], Hostile]] = {
    "text": functools.partial(_text, ".txt"),
    "Markdown": functools.partial(_text, ".md"),
    "front matter": _front_matter,
    "HTML": functools.partial(_text, ".html"),
    "bytes": _bytes,
    "JSON Lines": _lines,
    "JSON": _json,
    "CSV": _csv,
    "Parquet": _parquet,
    "compressed": _packed,
}

_FRESH = 200.0
"""MiB of a process that has read nothing large."""

NAMES = (
    "{}",
    "{}",
    "{}",
    "a\nb {}",
    "\u202e{}",
    "{} \x1b[31m",
    "\u0301{}",
    "{} \U0001f4a5",
    "{} '\";|&$(x)",
    "-{}",
    "{} %00",
)


def write(folder: Path, count: int, seed: int = 0, largest: int = 100_000) -> dict[str, tuple[str, int | None]]:
    """Write hostile files into a folder, with pipes, folders and links; return kind and rows by path.

    largest: characters of the largest text; a few are three times as long.
    """
    folder.mkdir(parents=True)
    written: dict[str, tuple[str, int | None]] = {}
    for number in range(count):
        draw = Draw(f"{seed} {number}")
        kind = list(KINDS)[number % len(KINDS)]
        file = KINDS[kind](draw, int(10 ** draw.uniform(1.0, len(str(largest)) - 1)))
        path = folder / f"{number % 7}" / (draw.choice(NAMES).format(f"{number:05d}") + file.suffix)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)
        written[str(path)] = kind, file.rows
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    (folder / "loop").symlink_to(folder)
    (folder / "itself.md").symlink_to(folder / "itself.md")
    (folder / "nowhere.md").symlink_to(folder / "nothing.md")
    (folder / "device.txt").symlink_to("/dev/zero")
    return written


@dataclass
class Kind:
    """The results of the files of a kind."""

    files: int = 0
    documents: int = 0  # accepted rows, before repeats are merged
    refused: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")  # seconds
    largest: tuple[float, str] = (0.0, "")  # MiB at the peak of the process that read it

    def add(self, name: str, seconds: float, mebibytes: float, documents: int, refused: Mapping[str, int]) -> None:
        self.files += 1
        self.documents += documents
        self.refused.update(refused)
        self.slowest = max(self.slowest, (seconds, name))
        self.largest = max(self.largest, (mebibytes, name))


@dataclass
class Measured:
    """The results of all files."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    unaccounted: list[str] = field(default_factory=list)  # files with rows neither accepted nor refused
    documents: int = 0
    repeats: int = 0
    refused: int = 0


def measure(folder: Path, written: Mapping[str, tuple[str, int | None]], limit: float = 60.0) -> Measured:
    """Scan every file by itself, plan all of them, and run each document through the document stages."""
    chosen = CorpusSettings(paths=(str(folder),), max_document_seconds=limit)
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="indexmill-hostile-") as temporary:
        results = []
        for file in find(chosen).files:
            kind, rows = written.get(file.path, ("links", None))
            result, seconds, mebibytes = _scanned(file, chosen, Path(temporary))
            results.append(result)
            refused = sum(result.refused.values())
            measured.kinds.setdefault(kind, Kind()).add(file.name, seconds, mebibytes, result.documents, result.refused)
            whole = file.kind in TEXT_KINDS or rows is not None
            expected = 1 if file.kind in TEXT_KINDS else rows
            cut = {
                "unreadable-file",
                "not-utf8",
                "not-json",
                "bad-columns",
                "reader-failed",
                "too-slow",
            } & result.refused.keys()
            if whole and result.documents + refused != expected and (file.kind in TEXT_KINDS or not cut):
                measured.unaccounted.append(f"{file.name}: {result.documents} and {refused} of {expected}")
        planned = shard_plan.plan(results, temporary)
        measured.documents, measured.repeats, measured.refused = (
            planned.documents,
            planned.repeats,
            sum(planned.refused.values()),
        )
        quarantined = shard_plan.quarantine_of(planned, temporary).num_rows
        rows_read = sum(result.documents + sum(result.refused.values()) for result in results)
        if planned.documents + planned.repeats + quarantined != rows_read or quarantined != measured.refused:
            measured.unaccounted.append(f"all: {planned.documents}, {planned.repeats} and {quarantined} of {rows_read}")
        stages = Kind()
        with _Apart(limit) as apart:
            for shard in planned.shards:
                table = shard_plan.documents_of(shard, temporary)
                for row in range(table.num_rows):
                    seconds, mebibytes, failed = apart.run(table.slice(row, 1))
                    name = table["document_id"][row].as_py()
                    stages.add(name, seconds, mebibytes, not failed, {failed: 1} if failed else {})
        measured.kinds["their stages"] = stages
    return measured


def _scanned(file: SourceFile, chosen: CorpusSettings, folder: Path) -> tuple[spill.ScanResult, float, float]:
    """Scan a file; return the result, its seconds, and the peak memory of its process in MiB."""
    process = scan_process.take()
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # reset the peak
    scan_process.give_back(process)
    began = time.perf_counter()
    result = supervisor.scan([file], chosen, folder)
    seconds = time.perf_counter() - began
    peak = _peak(process.pid)
    if peak > _FRESH:
        scan_process.close()  # else its memory would count as the next file's
    return result, seconds, peak


def _peak(pid: int) -> float:
    """Return the peak memory of a process, in MiB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


class _Apart:
    """A process that runs documents through their stages, one by one; replaced when it dies."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._pool: ProcessPoolExecutor | None = None

    def run(self, document: pa.Table) -> tuple[float, float, str]:
        """Run the stages of a document; return seconds, peak MiB, and the error's type or an empty text."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            self._pool.submit(_stages, document.slice(0, 0)).result()
        began = time.perf_counter()
        try:
            return *self._pool.submit(_stages, document).result(self._limit), ""
        except Exception as error:
            self.__exit__()
            return time.perf_counter() - began, 0.0, type(error).__name__

    def __enter__(self) -> _Apart:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            for process in list(self._pool._processes.values()):
                process.kill()
            self._pool.shutdown()
            self._pool = None


def _stages(document: pa.Table) -> tuple[float, float]:
    began = time.perf_counter()
    cut = split(document, _embedder(), SplitSettings())
    recognise(document, cut.passages, cut.sentences, open_recogniser("rules"))
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@functools.cache
def _embedder() -> HashEmbedder:
    return HashEmbedder()


def report(measured: Measured) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'kind':<14}{'files':>6}{'documents':>11}  {'slowest':>8}  {'largest':>8}  refused"
    for name, kind in measured.kinds.items():
        refused = ", ".join(f"{count} {reason}" for reason, count in kind.refused.most_common()) or "-"
        (seconds, slowest), (mebibytes, largest) = kind.slowest, kind.largest
        yield f"{name:<14}{kind.files:>6}{kind.documents:>11}  {seconds:>6.2f} s  {mebibytes:>4.0f} MiB  {refused}"
        yield f"{'':<14}  slowest {one_line(slowest)[:60]}, largest {one_line(largest)[:60]}"
    yield f"planned: {measured.documents} documents, {measured.repeats} repeats, {measured.refused} refused"
    yield from (f"UNACCOUNTED {problem}" for problem in measured.unaccounted)


def build(folder: Path, work: Path) -> str:
    """Index a folder with the real command and the deterministic encoder; return its exit code and output."""
    settings = {
        "store": str(work / "store"),
        "corpus": {"paths": [str(folder)]},
        "embed": {"model": "hash"},
        "run": {"max_failed_share": 1.0},
    }
    (work / "indexmill.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "indexmill", "build", "--json", "-c", str(work / "indexmill.yaml")]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    output = done.stdout.strip() or done.stderr.strip()[-2000:]
    warned = "\n".join(line for line in done.stderr.splitlines() if line.startswith("warning"))
    return f"build: exit {done.returncode} after {time.perf_counter() - began:.0f} s\n{output}\n{warned}"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one row, or one document's stages")
    parser.add_argument("--build", action="store_true", help="index all files with the real command")
    parser.add_argument("--keep", type=Path, help="a folder that keeps the files")
    chosen = parser.parse_args()
    print(describe_machine(), flush=True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="indexmill-hostile-") as temporary:
        folder = chosen.keep or Path(temporary) / "files"
        written = write(folder, chosen.files, chosen.seed)
        measured = measure(folder, written, chosen.limit)
        print("\n".join(report(measured)), flush=True)
        if chosen.build:
            print(build(folder, Path(temporary)))
    print(f"{time.perf_counter() - began:.0f} s")
    if measured.unaccounted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
