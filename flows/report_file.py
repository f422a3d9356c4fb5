"""The report file of the setting `run.report`, rewritten by each build that publishes a version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from indexmill.text.printable import one_line
from storage.protocol import Store


def write_report(path: Path, store: Store, version: int, warn: Callable[[str], None]) -> None:
    """Write the report of a version atomically. The version is already published, so any failure is a warning."""
    from indexmill.report import render_report
    from indexmill.report.report_page import GENERATOR
    from indexmill.store.pages import write_page

    try:
        write_page(path, render_report(store.url, version), GENERATOR)
    except Exception as error:
        warn(
            f"the report of version {version} was not written to {path}: {type(error).__name__}: "
            f"{one_line(str(error))}; `indexmill report {version}` writes it by hand"
        )
