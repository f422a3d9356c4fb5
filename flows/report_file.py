"""The report of a version as a file that each build which publishes writes anew: the setting `run.report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from indexmill.text.printable import one_line
from storage.protocol import Store


def write_report(path: Path, store: Store, version: int, warn: Callable[[str], None]) -> None:
    """Write the report of a version, in one step: readers find the old page or the new one.

    The version is published: whatever keeps the report from being written is a warning, and ends nothing.
    """
    from indexmill.report import render_report
    from indexmill.report.page import GENERATOR
    from indexmill.store.pages import write_page

    try:
        write_page(path, render_report(store.url, version), GENERATOR)
    except Exception as error:
        warn(
            f"the report of version {version} was not written to {path}: {type(error).__name__}: "
            f"{one_line(str(error))}; `indexmill report {version}` writes it by hand"
        )
