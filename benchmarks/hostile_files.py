"""Hostile files of the formats of documents: what becomes of each, how long it takes, and how much memory.

    python -m benchmarks.hostile_files [--only PATTERN] [--seconds 10] [--memory 1024] [--json]

Each file of `hostile_documents` lies between two honest ones in a folder, and a corpus of the three is read as a build
reads it: in a process that is killed at the limits of time and memory. Fails if a scan ends with an error, an honest
file is lost, a document or a refusal repeats a file outside of the corpus, something outside is written or called, a
limit is not kept, or the outcome is not the expected one. Seconds are those of the processor, of all processes that
read the folder; memory is the most that one of them had.

`hostile` does the same for texts and records, of which it makes any number.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.hostile_documents import ATTACKS, HONEST, WORDS, Attack, Outside
from benchmarks.machine import argument_parser, describe_machine
from indexmill.text.printable import one_line
from schemas.corpus import CorpusSettings, ExtractSettings
from tasks.stages.ingest import scan_process, shard_plan, supervisor
from tasks.stages.ingest.formats.registry import FORMATS
from tasks.stages.ingest.sources import find

_USERS = "/etc/passwd"
_TICK = 0.02
"""Seconds between two looks at the memory of the processes that read."""
_OVER = 0.25
"""GiB that a process may have besides its data, such as code and mapped files, which the limit does not count."""
_FRESH = 200.0
"""MiB that a process takes which has read nothing large."""
_OUTSIDE = "the secret of the file outside"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a hostile file. outcome: `document`, a reason, or both; wrong: what should not have happened."""

    file: str
    what: str
    outcome: str
    detail: str
    seconds: float
    mebibytes: float
    wrong: tuple[str, ...] = ()


def measure(attacks: Iterable[Attack], *, seconds: float = 10.0, mebibytes: int = 1024) -> Iterator[Outcome]:
    """Scan each file between the honest ones, with these limits for reading."""
    patterns = tuple(f"**/*{suffix}" for one in FORMATS for suffix in one.suffixes)
    with tempfile.TemporaryDirectory(prefix="indexmill-hostile-") as temporary, closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        secret = Path(temporary) / "secret.txt"
        secret.write_text(_OUTSIDE, encoding="utf-8")
        outside = Outside(secret, _USERS, f"http://127.0.0.1:{listening.getsockname()[1]}/x")
        for number, attack in enumerate(attacks):
            if attack.ocr and shutil.which("tesseract") is None:
                continue
            folder = Path(temporary) / f"{number}"
            corpus, work = folder / "corpus", folder / "work"
            corpus.mkdir(parents=True)
            work.mkdir()
            for name, make in HONEST:
                (corpus / name).write_bytes(make())
            _write(corpus / attack.name, attack, outside)
            settings = CorpusSettings(
                paths=(str(corpus),),
                include=patterns,
                extract=ExtractSettings(ocr=attack.ocr),
                max_document_seconds=attack.seconds or seconds,
                max_reading_memory_bytes=mebibytes << 20,
            )
            yield _outcome(attack, settings, folder, seconds, mebibytes, listening)


def _write(path: Path, attack: Attack, outside: Outside) -> None:
    data = attack.make(outside)
    if attack.written_as == "link":
        path.symlink_to(os.fsdecode(data))
    elif attack.written_as == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(data)


def _outcome(
    attack: Attack, settings: CorpusSettings, folder: Path, seconds: float, mebibytes: int, listening: socket.socket
) -> Outcome:
    before = sorted((folder / "corpus").iterdir())
    wrong: list[str] = []
    said: dict[str, str] = {}
    refused: list[dict[str, str]] = []
    process = scan_process.take()
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    scan_process.give_back(process)
    with _Watch() as watch:
        try:
            result = supervisor.scan(find(settings).files, settings, folder / "work")
        except Exception as error:
            wrong.append(f"the scan ended: {type(error).__name__}: {one_line(str(error))[:300]}")
            result = None
    if watch.mebibytes > _FRESH:
        scan_process.close()  # or what it keeps would count as the next file's
    if result is not None:
        planned = shard_plan.plan([result], folder / "work")
        for shard in planned.shards:
            for row in shard_plan.documents_of(shard, folder / "work").to_pylist():
                said[row["document_id"]] = json.dumps(row, default=str, ensure_ascii=False)
        refused = shard_plan.quarantine_of(planned, folder / "work").to_pylist()
    of_file = [row for row in refused if row["file"] == attack.name]
    outcome = " and ".join([*(["document"] if attack.name in said else []), *(row["reason"] for row in of_file)])
    detail = "; ".join(row["detail"] for row in of_file)
    if outcome not in attack.expected:
        wrong.append(f"{outcome or 'nothing'} instead of {' or '.join(attack.expected)}")
    if outcome == "document" and attack.says not in said[attack.name]:
        wrong.append("the document lacks what the file says")
    wrong += [f"{name} is lost" for name, _ in HONEST if WORDS not in said.get(name, "")]
    everything = "\n".join([*said.values(), *(str(row) for row in refused)])
    if any(line in everything for line in _lines_of(_USERS)) or _OUTSIDE in everything:
        wrong.append("a file outside of the corpus is read")
    if sorted((folder / "corpus").iterdir()) != before or _written(folder):
        wrong.append("a file is written")
    if _called(listening):
        wrong.append("an address is called")
    if watch.seconds > seconds + watch.processes * 5:
        wrong.append(f"{watch.seconds:.1f} s")
    if watch.mebibytes > mebibytes + _OVER * 1024:
        wrong.append(f"{watch.mebibytes:.0f} MiB")
    return Outcome(attack.name, attack.what, outcome, detail, watch.seconds, watch.mebibytes, tuple(wrong))


def _lines_of(path: str) -> list[str]:
    return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]


def _written(folder: Path) -> bool:
    """True if a hostile file left the mark that it tries to leave."""
    return any((place / "ran").exists() for place in (folder, folder.parent, Path.cwd(), Path(tempfile.gettempdir())))


def _called(listening: socket.socket) -> bool:
    try:
        connection, _ = listening.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


class _Watch:
    """Processor seconds and the most memory of the processes that this one starts, for the time of a `with` block."""

    def __init__(self) -> None:
        self.mebibytes = 0.0
        self._seconds: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._mine = psutil.Process().cmdline()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def seconds(self) -> float:
        """Of the processor, of all processes."""
        return sum(self._seconds.values()) - sum(self._before.values())

    @property
    def processes(self) -> int:
        """How many there were."""
        return len(self._seconds)

    def _run(self) -> None:
        me = psutil.Process()
        while not self._ends.is_set():
            self._look(me)
            self._ends.wait(_TICK)
        self._look(me)

    def _look(self, me: psutil.Process) -> None:
        for process in me.children(recursive=True):
            try:
                if process.cmdline() == self._mine:
                    continue  # forked, and not yet the program that it will be
                times = process.cpu_times()
                self._seconds[process.pid] = times.user + times.system
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            except (psutil.Error, OSError):
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    self.mebibytes = max(self.mebibytes, int(line.split()[1]) / 1024)

    def __enter__(self) -> _Watch:
        self._look(psutil.Process())
        self._before, self.mebibytes = dict(self._seconds), 0.0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def report(found: Iterable[Outcome]) -> Iterator[str]:
    """The table, line by line."""
    yield "| file | what it is | outcome | detail of the refusal | s | MiB |"
    yield "|" + " --- |" * 6
    for one in found:
        outcome = one.outcome + "".join(f" **{wrong}**" for wrong in one.wrong)
        cells = [f"`{one.file}`", one.what, outcome, one_line(one.detail), f"{one.seconds:.1f}", f"{one.mebibytes:.0f}"]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def main() -> int:
    """Print the table, or the numbers as JSON; returns 1 if something happened that should not have."""
    parser = argument_parser(__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the files with such names")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the processor, for reading a file")
    parser.add_argument("--memory", type=int, default=1024, help="MiB, for the process that reads")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    began = time.perf_counter()
    chosen = [one for one in ATTACKS if fnmatch.fnmatch(one.name, arguments.only)]
    found: list[Outcome] = []
    for one in measure(chosen, seconds=arguments.seconds, mebibytes=arguments.memory):
        found.append(one)
        print(f"{len(found)} of {len(chosen)}: {one.file}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"machine": describe_machine(), "files": [asdict(one) for one in found]}, indent=2))
    else:
        wrong = sum(bool(one.wrong) for one in found)
        print(describe_machine())
        print(f"\n{len(found)} hostile files, {wrong} of them wrong, {time.perf_counter() - began:.0f} s\n")
        print("\n".join(report(found)))
    return int(any(one.wrong for one in found))


if __name__ == "__main__":
    sys.exit(main())
