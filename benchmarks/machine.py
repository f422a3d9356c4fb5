"""What a benchmark says of the machine it ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["describe_machine"]


def describe_machine() -> str:
    """Processor, cores, memory, Python and the libraries that carry the numbers, in one line."""
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
