"""Code that all benchmarks share: options, a description of the machine, time, memory, and the real command."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from indexmill.store.reader import StoreReader


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the module's docstring, line by line."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_command(*words: object) -> Any:
    """Run `indexmill WORDS --json` and return the object it prints. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "indexmill", *map(str, words), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def differing(first: Path, second: Path) -> list[str]:
    """Return the names of the artifacts that differ between the newest versions of two stores."""
    stores = [StoreReader(path) for path in (first, second)]
    named = [{a.name: a.digest for a in store.manifest(store.newest().manifest).artifacts} for store in stores]
    return sorted(name for name in named[0].keys() | named[1].keys() if named[0].get(name) != named[1].get(name))


class PrivateMemory:
    """Samples the private memory of this process during a block, in MiB. before: at its start. peak: the maximum."""

    def __init__(self, interval: float = 0.004) -> None:
        self._interval = interval

    def __enter__(self) -> Self:
        self.before = self.peak = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval):
            self.peak = max(self.peak, self._now())

    @staticmethod
    def _now() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


class Stopwatch:
    """Measures the CPU and wall-clock seconds since it was created."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __str__(self) -> str:
        return f"{self.cpu:.1f} s CPU, {self.wall:.1f} s"

    @property
    def cpu(self) -> float:
        """The CPU seconds of this process since the stopwatch was created."""
        return time.process_time() - self._cpu

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall


def describe_machine() -> str:
    """Describe the processor, cores, memory, Python and the libraries that affect the numbers, in one line."""
    processor = platform.processor() or platform.machine()
    names = Path("/proc/cpuinfo")
    if names.exists():
        lines = [line for line in names.read_text().splitlines() if line.startswith("model name")]
        processor = lines[0].partition(":")[2].strip() if lines else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(
        f"{name} {version(name)}" for name in ("openvino", "numpy", "pyarrow", "distributed", "prefect")
    )
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB; Python {platform.python_version()}; {libraries}"
