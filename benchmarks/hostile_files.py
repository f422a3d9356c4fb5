"""Read hostile files of document formats, and print the outcome, CPU time and memory of each.

    python -m benchmarks.hostile_files [--only PATTERN] [--seconds 10] [--memory 1024] [--json]

Each file of `hostile_documents` lies between two honest files in a folder, and the three are read as a build reads
them: in a process that is killed at the limits of time and memory. Fails if a scan ends with an error, an honest file
is lost, a document or a quarantine row has text of a file outside the corpus, something outside is written or called, a
limit is exceeded, or the outcome is unexpected. Seconds are the CPU time of all processes that read the folder; memory
is the peak of one of them.

`hostile` does the same for generated texts and records.
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
"""Seconds between two samples of the reading processes' memory."""
_OVER = 0.25
"""GiB of a process that the limit does not count, such as code and mapped files."""
_FRESH = 200.0
"""MiB of a process that has read nothing large."""
_OUTSIDE = "the secret of the file outside"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a hostile file. outcome: `document`, a reason of quarantine, or both. wrong: the failed checks."""

    file: str
    what: str
    outcome: str
    detail: str
    seconds: float
    mebibytes: float
    wrong: tuple[str, ...] = ()


def measure(attacks: Iterable[Attack], *, seconds: float = 10.0, mebibytes: int = 1024) -> Iterator[Outcome]:
    """Scan each file between the honest ones, within these limits; yield its outcome."""
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
    documents: dict[str, str] = {}
    refused: list[dict[str, str]] = []
    process = scan_process.take()
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    scan_process.give_back(process)
    with _Watch() as watch:
        try:
            result = supervisor.scan(find(settings).files, settings, folder / "work")
        except Exception as error:
            wrong.append(f"the scan ended: {type(error).__name__}: {one_line(str(error))[:300]}")
            result = None
    if watch.mebibytes > _FRESH:
        scan_process.close()  # else its memory would count as the next file's
    if result is not None:
        planned = shard_plan.plan([result], folder / "work")
        for shard in planned.shards:
            for row in shard_plan.documents_of(shard, folder / "work").to_pylist():
                documents[row["document_id"]] = json.dumps(row, default=str, ensure_ascii=False)
        refused = shard_plan.quarantine_of(planned, folder / "work").to_pylist()
    of_file = [row for row in refused if row["file"] == attack.name]
    outcome = " and ".join([*(["document"] if attack.name in documents else []), *(row["reason"] for row in of_file)])
    detail = "; ".join(row["detail"] for row in of_file)
    if outcome not in attack.expected:
        wrong.append(f"{outcome or 'nothing'} instead of {' or '.join(attack.expected)}")
    if outcome == "document" and attack.says not in documents[attack.name]:
        wrong.append("the document lacks what the file says")
    wrong += [f"{name} is lost" for name, _ in HONEST if WORDS not in documents.get(name, "")]
    everything = "\n".join([*documents.values(), *(str(row) for row in refused)])
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
    """Return whether a hostile file has written the file `ran`."""
    return any((place / "ran").exists() for place in (folder, folder.parent, Path.cwd(), Path(tempfile.gettempdir())))


def _called(listening: socket.socket) -> bool:
    try:
        connection, _ = listening.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


class _Watch:
    """CPU seconds and peak memory of this process's children during a `with` block."""

    def __init__(self) -> None:
        self.mebibytes = 0.0
        self._seconds: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._mine = psutil.Process().cmdline()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def seconds(self) -> float:
        """CPU seconds of all child processes."""
        return sum(self._seconds.values()) - sum(self._before.values())

    @property
    def processes(self) -> int:
        """The number of child processes."""
        return len(self._seconds)

    def _run(self) -> None:
        me = psutil.Process()
        while not self._ends.is_set():
            self._sample(me)
            self._ends.wait(_TICK)
        self._sample(me)

    def _sample(self, me: psutil.Process) -> None:
        for process in me.children(recursive=True):
            try:
                if process.cmdline() == self._mine:
                    continue  # forked, but the program has not started yet
                times = process.cpu_times()
                self._seconds[process.pid] = times.user + times.system
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            except (psutil.Error, OSError):
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    self.mebibytes = max(self.mebibytes, int(line.split()[1]) / 1024)

    def __enter__(self) -> _Watch:
        self._sample(psutil.Process())
        self._before, self.mebibytes = dict(self._seconds), 0.0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def report(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| file | what it is | outcome | detail of the refusal | s | MiB |"
    yield "|" + " --- |" * 6
    for result in outcomes:
        outcome = result.outcome + "".join(f" **{wrong}**" for wrong in result.wrong)
        cells = [
            f"`{result.file}`",
            result.what,
            outcome,
            one_line(result.detail),
            f"{result.seconds:.1f}",
            f"{result.mebibytes:.0f}",
        ]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def main() -> int:
    """Print the table, or the numbers as JSON; return 1 if a check failed."""
    parser = argument_parser(__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only files whose names match")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time limit for reading a file")
    parser.add_argument("--memory", type=int, default=1024, help="memory limit of the reading process, in MiB")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    began = time.perf_counter()
    chosen = [attack for attack in ATTACKS if fnmatch.fnmatch(attack.name, arguments.only)]
    outcomes: list[Outcome] = []
    for outcome in measure(chosen, seconds=arguments.seconds, mebibytes=arguments.memory):
        outcomes.append(outcome)
        print(f"{len(outcomes)} of {len(chosen)}: {outcome.file}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({"machine": describe_machine(), "files": [asdict(outcome) for outcome in outcomes]}, indent=2))
    else:
        wrong = sum(bool(outcome.wrong) for outcome in outcomes)
        print(describe_machine())
        print(f"\n{len(outcomes)} hostile files, {wrong} of them wrong, {time.perf_counter() - began:.0f} s\n")
        print("\n".join(report(outcomes)))
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
