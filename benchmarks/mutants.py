"""Whether tests would notice: lines are changed for the worse, one at a time, and the tests named for each must fail.

    python -m benchmarks.mutants                 # every mutant; exit code 1 where one survives
    python -m benchmarks.mutants --only lease    # those whose file or line holds this
    python -m benchmarks.mutants --list

The mutants stand in `benchmarks.mutant_table`. Each is made in a copy of the working tree, so that nothing here
changes. A mutant whose line is not found exactly once is an error: the table cannot fall behind the code. The tests are
run without any change first, and have to pass. A mutant with a reason why it is equivalent has to survive.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutant_table import MUTANTS, Mutant

__all__ = ["Outcome", "main", "run", "working_copy"]

ROOT = Path(__file__).resolve().parent.parent
_SECONDS = 120.0
"""After which the tests of a mutant are ended: a loop that never ends is noticed as well."""

_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. killed_by: the first test that failed; '' where none did."""

    mutant: Mutant
    killed_by: str
    seconds: float

    @property
    def wrong(self) -> bool:
        """Whether a test is missing, or the reason given for the mutant's equivalence does not hold."""
        return bool(self.killed_by) == bool(self.mutant.equivalent)


@contextlib.contextmanager
def working_copy() -> Iterator[Path]:
    """A copy of the files of this working tree that git knows or would add, in a temporary folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="pytest-mutants-") as folder:  # as tests expect that open folders to others
        root = Path(folder) / "tree"
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        yield root


@contextlib.contextmanager
def _applied(mutant: Mutant, root: Path) -> Iterator[None]:
    path = root / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(before), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def _failing(tests: Sequence[str], root: Path, seconds: float) -> str:
    """The first of some tests that fails in a tree, '' where all pass; raises RuntimeError where they cannot be run."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    command += [f"--basetemp={root.parent / 'basetemp'}", *tests]
    # Without files of bytecode: a change within a second that leaves the length as it was would not be seen.
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode == 0:
        return ""
    found = _FAILED.search(done.stdout)
    if found is None and done.returncode == 1:
        return "a test"
    if found is None:
        raise RuntimeError(f"the tests cannot be run: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1]


def run(mutants: Sequence[Mutant], jobs: int = 1) -> list[Outcome]:
    """Try some mutants, and print what became of each as it comes; raises RuntimeError where the tests fail without."""
    print("| file | line | killed by | seconds |\n| --- | --- | --- | --- |")
    with contextlib.ExitStack() as copies:
        trees = queue.SimpleQueue[Path]()
        for _ in range(jobs):
            trees.put(copies.enter_context(working_copy()))
        root = trees.get()
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        began = time.monotonic()
        if failing := _failing(tests, root, 10 * _SECONDS):
            raise RuntimeError(f"{failing} fails without any change: mend it first")
        print(f"| none | | none of {len(tests)} tests | {time.monotonic() - began:.1f} |", flush=True)
        trees.put(root)

        def tried(mutant: Mutant) -> Outcome:
            tree = trees.get()
            started = time.monotonic()
            try:
                with _applied(mutant, tree):
                    killed_by = _failing(mutant.tests, tree, _SECONDS)
            finally:
                trees.put(tree)
            outcome = Outcome(mutant, killed_by, time.monotonic() - started)
            said = killed_by or ("none, it is equivalent" if mutant.equivalent else "**none**")
            print(f"| {mutant.file} | `{mutant.shown}` | {said} | {outcome.seconds:.1f} |", flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(tried, mutants))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 1 where a mutant survives, or one that is called equivalent does not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose file or line holds this")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time, each in a copy of the tree")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.file} {mutant.old}"]
    if not chosen:
        parser.error(f"no mutant's file or line holds {options.only!r}: see --list")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.file}: {mutant.shown}")
        return 0
    began = time.monotonic()
    outcomes = run(chosen, options.jobs)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"\n{len(outcomes)} mutants in {time.monotonic() - began:.0f} s; {len(wrong)} of them not as they should be")
    for outcome in wrong:
        what = f"is killed, though {outcome.mutant.equivalent}" if outcome.killed_by else "survives"
        print(f"{outcome.mutant.file} {what}:\n    {outcome.mutant.shown}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
