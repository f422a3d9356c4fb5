"""Check that tests notice changes: mutmut mutates a package or a module and runs the tests that call each mutant.

    python -m benchmarks.mutants storage                                # a tenth of its mutants, with tests/storage
    python -m benchmarks.mutants storage/lease.py --digits 0123456789   # all mutants, with the module's tests
    python -m benchmarks.mutants tasks/core --tests tests/tasks tests/flows/test_build.py --pytest=-k=part

Prints the surviving mutants as diffs. A survivor means a missing test or a change without effect: the developer
decides. mutmut numbers the mutants of a function; `--digits` samples them by last digit, so the sample is the same
every time. mutmut works in build/mutants, where the packages are links, and never changes the sources. It skips
decorated functions and removes no statements.
"""

from __future__ import annotations

import argparse
import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutants"
PACKAGES = ("indexmill", "schemas", "storage", "tasks", "flows")
UNNOTICED = ("survived", "suspicious", "segfault", "not checked")
"""mutmut's statuses of mutants for which no test failed."""


def default_tests(target: str) -> list[str]:
    """Return the tests that mirror a package or module, or those of the nearest folder above it."""
    path = Path("tests", target)
    if path.suffix:
        path = path.with_name(f"test_{path.name}")
    while not (ROOT / path).exists():
        path = path.parent
    return [path.as_posix()]


def prepare(target: str, tests: Sequence[str], options: Sequence[str]) -> None:
    """Create mutmut's working folder: links to what the tests need, and its settings."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "mutants").mkdir(parents=True)  # before Python starts, since it caches missing path entries
    entries = [path.name for path in ROOT.iterdir() if path.name not in (".git", ".venv", "build", "setup.cfg")]
    for name in entries:
        (FOLDER / name).symlink_to(ROOT / name)
    settings = configparser.ConfigParser(interpolation=None)
    settings["mutmut"] = {
        name: "\n" + "\n".join(values)
        for name, values in {
            "source_paths": PACKAGES,
            "only_mutate": [target if target.endswith(".py") else f"{target}/*"],
            "also_copy": sorted({*entries} - {*PACKAGES}),
            "pytest_add_cli_args_test_selection": tests,
            "pytest_add_cli_args": ["-p", "no:cacheprovider", *options],
        }.items()
    }
    # Each mutant runs in a process that starts from imports alone, so no cache holds results of the unchanged code.
    settings["mutmut"].update({"process_isolation": "forkserver", "use_git_change_detection": "false"})
    with (FOLDER / "setup.cfg").open("w", encoding="utf-8") as file:
        settings.write(file)


def mutmut(*arguments: str, capture: bool = False) -> str:
    """Run a command of mutmut in its folder; return its output if captured."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER / "mutants"), "PYTHONHASHSEED": "0"}
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    return subprocess.run(
        command, cwd=FOLDER, env=environment, check=True, text=True, stdout=subprocess.PIPE if capture else None
    ).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a mutant of the sample survives or a function is not called."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="a folder or file of a package: storage, storage/lease.py")
    parser.add_argument("--tests", nargs="+", help="files and folders; by default those that mirror the target")
    parser.add_argument("--digits", default="7", help="last digits of the mutants' numbers: each digit samples a tenth")
    parser.add_argument("--jobs", default="1", help="mutants at a time")
    parser.add_argument("--pytest", action="append", default=[], metavar="OPTION", help="--pytest=--deselect=TEST")
    options = parser.parse_args(arguments)
    target = options.target.rstrip("/")
    if not (ROOT / target).exists() or target.partition("/")[0] not in PACKAGES:
        parser.error(f"{target!r} is not a folder or file of {', '.join(PACKAGES)}")
    prepare(target, options.tests or default_tests(target), options.pytest)
    patterns = [f"*{digit}" for digit in options.digits]
    mutmut("run", "--max-children", options.jobs, *patterns)
    results = [line.strip().rpartition(": ") for line in mutmut("results", capture=True).splitlines()]
    sample = [(name, status) for name, _, status in results if name[-1:] in {*options.digits}]
    survivors = [name for name, status in sample if status in UNNOTICED]
    uncalled = {name.rpartition("__mutmut_")[0] for name, status in sample if status == "no tests"}
    for name in survivors:
        print(mutmut("show", name, capture=True))
    for name in sorted(uncalled):
        print(f"none of these tests calls {name}")
    print(
        f"{target}, digits {options.digits}: {len(survivors)} mutants survive, {len(uncalled)} functions are not called"
    )
    return 1 if survivors or uncalled else 0


if __name__ == "__main__":
    sys.exit(main())
