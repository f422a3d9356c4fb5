"""Shared by all benchmarks: options, a description of the machine, time, memory, and the real command."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the module's docstring, line by line."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_command(*words: object) -> Any:
    """Run `indexmill WORDS --json` and return the object it prints. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "indexmill", *map(str, words), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def peak_memory() -> float:
    """Return the peak resident memory of this process, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Stopwatch:
    """CPU and wall seconds since its creation."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __str__(self) -> str:
        return f"{self.cpu:.1f} s CPU, {self.wall:.1f} s"

    @property
    def cpu(self) -> float:
        """CPU seconds of this process."""
        return time.process_time() - self._cpu

    @property
    def wall(self) -> float:
        """Wall seconds."""
        return time.perf_counter() - self._wall


def describe_machine() -> str:
    """Describe processor, cores, memory, Python and the libraries that shape the numbers, in one line."""
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
